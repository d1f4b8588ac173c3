"""`python -m tests.web.page.pictures FOLDER`: pictures of the page over the cluster of the tests, as Debian's Chromium draws them."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millrace.io.http.server import HttpServer

from .seed import FAILED, FINISHED, RUNNING, WAITING, Cluster

CHROMIUM = shutil.which("chromium")
SCREENS = {
    "overview": "/", "jobs": "/jobs", "running": f"/jobs/{RUNNING}", "failed": f"/jobs/{FAILED}", "logs": f"/jobs/{FAILED}?tab=logs",
    "waiting": f"/jobs/{WAITING}", "finished": f"/jobs/{FINISHED}", "now": f"/jobs/{RUNNING}?tab=now",
    "configuration": f"/jobs/{RUNNING}?tab=configuration",
    "queue": "/queue", "taskmanagers": "/taskmanagers", "taskmanager": "/taskmanagers/task-manager-1",
    "silent": "/taskmanagers/task-manager-2", "own-logs": "/taskmanagers/task-manager-1?tab=logs",
    "threads": "/taskmanagers/task-manager-1?tab=threads", "services": "/services", "service": "/services/dispatcher-2",
    "leaders": "/leaders",
    "letters": "/letters?letter=401", "submit": "/submit", "more": "/more", "question": f"/jobs/{RUNNING}/cancel",
    "block": "/block?host=ws-04", "deregister": "/deregister", "shutdown": "/shutdown",
}  # fmt: skip
LIMIT_MS = 180_000
"""For a browser to start, and for each thing that it waits for."""
WIDTHS = {1440: 900, 900: 1000, 390: 844}
SHOWN = (("overview", 1440, "light"), ("failed", 1440, "light"), ("running", 1440, "dark"))
"""Those that the documents show."""


@contextmanager
def served(more: int = 300) -> Iterator[tuple[str, Cluster]]:
    """The page's address, and the cluster behind it."""
    cluster = Cluster(time.time_ns() // 1_000_000, more)
    server = HttpServer(cluster.app(), "127.0.0.1", 0, name="page")
    try:
        yield f"http://127.0.0.1:{server.start()}/page", cluster
    finally:
        server.stop()


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # In containers tests run as root: that needs no sandbox.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=LIMIT_MS)
        try:
            yield chromium
        finally:
            chromium.close()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with served() as (address, _), browser() as chromium:
        for name, width, scheme in SHOWN:
            view = chromium.new_page(viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme)
            view.goto(address + SCREENS[name])
            view.evaluate("document.fonts.ready")
            view.screenshot(path=str(folder / f"page-{name}.png"))
            view.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
