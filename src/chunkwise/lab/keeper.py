"""The one that holds a server's hand: started by us, parent of the server.

It does nothing but wait, for the server's end or for ours. Invariant: whichever
comes first, nothing of this process group is left afterwards. Our end is the end
of stdin, so `kill -9` of a comparison ends its servers too; they are asked first
(vLLM then removes its shared memory), and made to a little later.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

STDIN = 0
GRACE = 10.0  # seconds for a server that we stop
GRACE_OF_THE_REST = 1.0  # for what a dead server left behind


def main(command: list[str]) -> None:
    """Run a server and end with it. Usage: `python -m chunkwise.lab.keeper PROGRAM …`."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # after the start: the server must heed it
    threading.Thread(target=_stop_at_our_end, args=(server,), daemon=True).start()
    code = server.wait()
    print(f"chunkwise: the server ended with code {code}", flush=True)
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_OF_THE_REST)
    os.killpg(0, signal.SIGKILL)


def _stop_at_our_end(server: subprocess.Popen[bytes]) -> None:
    while os.read(STDIN, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
