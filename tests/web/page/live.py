"""`python -m tests.web.page.live FOLDER [--publish]`: pictures of the page over a real stack with a finished, a failed, a running and a
waiting job, at three widths, light and dark. `--publish` also writes those that the documents show. Needs Debian's `chromium`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.local.flights import flights_folder
from deploy.local.stack import Options
from millrace.edge.graph_file import load_graph
from tests.end_to_end.running import EXAMPLES, Held, RunningStack, Watched

from .pictures import LIMIT_MS, SHOWN, WIDTHS, browser

OPTIONS = Options(slots=2, task_managers=2, heap_mb=768, web=True)
PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
LATE = "round(avg(CAST(dep_delay > 30 AS INT)), 3) AS late_share\n"
SLOW = """
import pathlib, time

import ranking


def rank(delays):
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.05)
    return ranking.rank(delays)
"""


@dataclass(frozen=True)
class Scene:
    """The page's address, and the jobs by what has become of them."""

    address: str
    jobs: Mapping[str, str]

    @property
    def screens(self) -> dict[str, str]:
        """Name -> path of the screens that show them."""
        jobs = {name: f"/jobs/{job}" for name, job in self.jobs.items()}
        return {
            "overview": "/", "jobs": "/jobs", **jobs, "now": f"{jobs['running']}?tab=now", "logs": f"{jobs['failed']}?tab=logs",
            "story": f"{jobs['finished']}?tab=story", "queue": "/queue", "taskmanagers": "/taskmanagers", "leaders": "/leaders",
            "letters": "/letters", "submit": "/submit",
        }  # fmt: skip


@contextmanager
def scene(running: RunningStack, folder: Path) -> Iterator[Scene]:
    """The flights of 2013 four times: ranked; with a column that is not there; while they are ranked; and behind what holds all slots."""
    folder.mkdir(parents=True, exist_ok=True)
    finished = _flights(running, folder / "out-1")
    assert finished.end["type"] == "JobFinished", finished.end
    failed = _flights(running, folder / "out-2", typo=True)
    assert failed.end["type"] == "JobFailed", failed.end
    go = folder / "go"
    runs = _flights(running, folder / "out-3", go=go)
    runs.running(task="delays+ranked+report")
    held = [Held(running, folder / f"held-{n}") for n in range(OPTIONS.slots * OPTIONS.task_managers - 1)]
    for each in held:
        each.started()
    waits = _flights(running, folder / "out-4")
    waits.event("JobWaiting")
    jobs = {"finished": finished.id, "failed": failed.id, "running": runs.id, "waiting": waits.id}
    try:
        yield Scene(f"{running.stack.facts()['web_url']}/page", jobs)
    finally:
        go.touch()
        for each in held:
            each.let_go()
        assert waits.end["type"] == "JobFinished", waits.end


def _flights(running: RunningStack, out: Path, typo: bool = False, go: Path | None = None) -> Watched:
    """The pipeline of the examples. `typo`: it asks for a column that is not there; `go`: it waits for this file before it ranks."""
    loaded = load_graph(EXAMPLES / "flights.yaml", {"data": str(flights_folder()), "out": str(out)})
    assert loaded.errors == []
    graph, uploads = dict(loaded.raw), dict(loaded.uploads)
    vertices: dict[str, Any] = {name: dict(each) for name, each in graph["vertices"].items()}
    graph["vertices"] = vertices
    if typo:
        assert LATE in vertices["delays"]["sql"]
        vertices["delays"]["sql"] = vertices["delays"]["sql"].replace(LATE, f"{LATE[:-1]},\n       max(late_ratio) AS worst\n")
    if go is not None:
        sha256, path = running.module(SLOW.format(go=str(go)), "slowly.py")
        graph["modules"] = [*graph["modules"], {"name": "slowly.py", "sha256": sha256, "kind": "py"}]
        uploads[sha256] = path
        vertices["ranked"]["python"] = "slowly:rank"
    return running.submit(graph, uploads)


def main(folder: Path, publish: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    archives = Path("build/class-data-archives").absolute()
    archives.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["MILLRACE_HOME"] = home
        with RunningStack("page", OPTIONS, archives) as running, scene(running, Path(home) / "scene") as found, browser() as chromium:
            for scheme in ("light", "dark"):
                for width, high in WIDTHS.items():
                    view = chromium.new_page(viewport={"width": width, "height": high}, color_scheme=scheme)
                    view.set_default_timeout(LIMIT_MS)
                    for name, path in found.screens.items():
                        view.goto(found.address + path)
                        view.evaluate("document.fonts.ready")
                        view.screenshot(path=str(folder / f"{name}-{width}-{scheme}.png"))
                        if publish and (name, width, scheme) in SHOWN:
                            view.screenshot(path=str(PICTURES / f"page-{name}.png"))
                    view.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--publish" in sys.argv)
