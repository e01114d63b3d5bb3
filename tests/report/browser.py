"""Open a page in a real browser, without a network."""

import shutil
import subprocess
from pathlib import Path

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def opened(path: Path, home: Path, width: int) -> tuple[str, str]:
    """Open the page in a frame of that width; return what the browser made and said."""
    assert BROWSER, "run scripts/setup-browser"
    outer = path.with_name(f"frame-{width}.html")
    outer.write_text(
        f'<body><iframe src="{path.name}" style="width:{width}px;height:3000px"></iframe>'
        "<script>onload = () => { const inside = document.querySelector('iframe').contentDocument;"
        "document.title = inside.documentElement.scrollWidth;"
        "const copy = document.createElement('main');"
        "copy.innerHTML = inside.body.innerHTML; document.body.append(copy) }</script>"
    )
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--allow-file-access-from-files",
            f"--user-data-dir={home}",
            "--enable-logging=stderr",
            "--v=0",
            "--virtual-time-budget=8000",
            "--dump-dom",
            outer.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
