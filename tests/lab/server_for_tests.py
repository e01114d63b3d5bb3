"""A stand-in for vLLM's server: healthy at once, or with a fault that is asked for."""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

parser = argparse.ArgumentParser()
for name in ("--model", "--served-model-name", "--host", "--fault"):
    parser.add_argument(name)
parser.add_argument("--port", type=int)
asked = parser.parse_args()

if asked.fault == "memory":
    print("ValueError: No available memory for the cache blocks.")
    sys.exit(1)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = json.dumps({"data": [{"id": asked.served_model_name}]}).encode()
        self.send_response(503 if asked.fault == "ill" else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


HTTPServer((asked.host, asked.port), Handler).serve_forever()
