"""`python -m tests.web.page.live FOLDER [--publish]`: a walk through every screen of a real stack, at three widths, light and dark.

The stack has a finished, a failed, a running and a waiting job, one that fits into no slot, one with a second attempt, and one of 10,000
rows; a schedule, and a dead letter. Of each screen there is a picture. Then every action is done by keyboard alone (`keys.py`), the last
one shuts the cluster down. The exit code is 1 where axe finds something serious, the console is not empty, a screen is wider than its
window, or one does not see where the focus is. `--publish` also writes the pictures that the documents show. Needs Debian's `chromium`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from deploy.local.flights import flights_folder
from deploy.local.stack import Options
from millrace.edge.graph_file import load_graph
from tests.end_to_end.running import EXAMPLES, Event, Held, RunningStack, Watched

from .axe import AXE, RUN_AXE, RUN_CONTRAST
from .keys import by_keys
from .pictures import LIMIT_MS, SHOWN, WIDTHS, browser

OPTIONS = Options(slots=1, task_managers=3, heap_mb=600, web=True)
LIMIT_S = 600.0
"""For a job to end: a laptop of two cores draws pages meanwhile."""
RANKS = {"type": "AttemptStateChanged", "state": "RUNNING", "task": "delays+ranked+report"}
ROWS = {"name": "squares", "vertices": {"squares": {"sql": "SELECT id, id * id AS square, repeat('x', id % 40) AS word FROM range(10000)"}}}
UNFIT = {"name": "training", "resources": {"memory_mb": 64_000, "extras": {"gpu": 1}}, "vertices": {"fitted": {"sql": "SELECT 1 AS a"}}}
SUMS = """
name: sums
modules: [summing.py]
speculative: {baseline_ratio: 0.5, baseline_lower_bound_ms: 1000}
vertices:
  numbers: {sql: SELECT id FROM range(100)}
  sums:
    python: summing:sums
    schema: n LONG
    parallelism: 2
    inputs: {numbers: hash(id)}
"""
HANGS = """
import os, time


def sums(numbers):
    try:
        os.mkdir({mark!r})
    except FileExistsError:
        return numbers.groupBy().sum("id").toDF("n")
    time.sleep(3600)  # one attempt alone hangs
"""
PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
LATE = "round(avg(CAST(dep_delay > 30 AS INT)), 3) AS late_share\n"
SLOW = """
import pathlib, time

import ranking


def held(batches):
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.05)
    yield from batches


def rank(delays):
    return ranking.rank(delays.mapInPandas(held, delays.schema))  # the plan calls this, too: only rows may wait
"""


@dataclass(frozen=True)
class Scene:
    """The page's address, and the jobs by what has become of them."""

    address: str
    jobs: Mapping[str, str]
    processes: Mapping[str, str] = field(default_factory=dict)
    """Name -> path of the screens of a TaskManager and of a service."""

    @property
    def screens(self) -> dict[str, str]:
        """Name -> path of the screens that show them."""
        jobs = {name: f"/jobs/{job}" for name, job in self.jobs.items()}
        return {
            "overview": "/", "jobs": "/jobs", **jobs, "now": f"{jobs['running']}?tab=now", "logs": f"{jobs['failed']}?tab=logs",
            "story": f"{jobs['finished']}?tab=story", "queue": "/queue", "taskmanagers": "/taskmanagers", "leaders": "/leaders",
            "letters": "/letters", "submit": "/submit", "schedules": "/schedules", "services": "/services", "more": "/more",
            "configuration": f"{jobs['finished']}?tab=configuration", "work": f"{jobs['finished']}?tab=work",
            "found": "/jobs?q=state:failed", "schedule": "/schedules/nightly", "letter": "/letters?letter=0",
            "rescale": f"{jobs['running']}/rescale", "cancel": f"{jobs['running']}/cancel", "again": f"{jobs['finished']}/again",
            "block": "/block", "deregister": "/deregister", "shutdown": "/shutdown", **self.processes,
        }  # fmt: skip


@contextmanager
def scene(running: RunningStack, folder: Path) -> Iterator[Scene]:
    """The flights of 2013 four times: ranked; with a column that is not there; while they are ranked; and behind what holds all slots.
    And 10,000 rows, a subtask that hangs until a second attempt has finished it, and what no slot is large enough for."""
    folder.mkdir(parents=True, exist_ok=True)
    producer = Producer({"bootstrap.servers": running.facts["kafka_bootstrap"]})
    producer.produce("client.commands", b'{"type": "SubmitJobs", "version": 1}')
    assert producer.flush(60) == 0
    running.client.set_schedule("nightly", ROWS, "0 3 * * *", "Europe/Berlin")
    finished, failed, rows = _flights(running, folder / "out-1"), _flights(running, folder / "out-2", typo=True), running.submit(ROWS)
    second = _second(running, folder)
    for each, end in ((finished, "JobFinished"), (failed, "JobFailed"), (rows, "JobFinished"), (second, "JobFinished")):
        assert _ended(each)["type"] == end, each.end
    go = folder / "go"
    runs = _flights(running, folder / "out-3", go=go)
    runs.until("its last task", lambda events: next((each for each in events if RANKS.items() <= each.items()), None), LIMIT_S)
    held = [Held(running, folder / f"held-{n}") for n in range(OPTIONS.slots * OPTIONS.task_managers - 1)]
    for each in held:
        each.started()
    waits = _flights(running, folder / "out-4")
    waits.event("JobWaiting")
    unfit = running.submit(UNFIT)
    unfit.event("JobWaiting")
    jobs = {"finished": finished.id, "failed": failed.id, "running": runs.id, "waiting": waits.id, "unfit": unfit.id, "second": second.id,
            "rows": rows.id}  # fmt: skip
    member, service = "/taskmanagers/task-manager-1", "/services/dispatcher"
    processes = {"taskmanager": member, **{f"taskmanager-{tab}": f"{member}?tab={tab}" for tab in ("settings", "logs", "threads")},
                 "service": service, "service-settings": f"{service}?tab=settings"}  # fmt: skip
    try:
        yield Scene(f"{running.stack.facts()['web_url']}/page", jobs, processes)
    finally:
        go.touch()
        for each in held:
            each.let_go()
        assert _ended(waits)["type"] == "JobFinished", waits.end
        unfit.job.cancel()
        _ended(unfit)


def _ended(job: Watched) -> Event:
    ends = ("JobFinished", "JobFailed", "JobCanceled")
    return job.until("its end", lambda events: next((each for each in events if each["type"] in ends), None), LIMIT_S)


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


def _second(running: RunningStack, folder: Path) -> Watched:
    """A job that is finished by the second attempt of a subtask."""
    (folder / "sums.yaml").write_text(SUMS)
    (folder / "summing.py").write_text(HANGS.format(mark=str(folder / "hangs")))
    loaded = load_graph(folder / "sums.yaml")
    assert loaded.errors == []
    return running.submit(loaded.raw, loaded.uploads)


def walk(found: Scene, chromium: Any, folder: Path, publish: bool) -> list[str]:
    """Visits every screen: what is wrong with each, in sentences. One that is open is looked at in each width and colour."""
    view = chromium.new_page()
    view.set_default_timeout(LIMIT_MS)
    wrong: list[str] = []
    said: list[str] = []
    view.on("console", lambda message: said.append(f"the console has {message.type}: {message.text}"))
    view.on("pageerror", lambda error: said.append(str(error)))
    for name, path in found.screens.items():
        answer = view.goto(found.address + path)
        if answer.status != 200:
            said.append(f"answered {answer.status}")
        view.evaluate(AXE)
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                said += _looked_at(view, folder, name, width, scheme, publish)
        wrong += _told(f"{name}: {each}" for each in said)
        said.clear()
    view.close()
    return wrong


def _told(wrong: Iterable[str]) -> list[str]:
    """What is wrong is told as soon as it is found: the walk takes minutes."""
    found = list(wrong)
    for each in found:
        print(each, file=sys.stderr, flush=True)
    return found


def _looked_at(view: Any, folder: Path, name: str, width: int, scheme: str, publish: bool) -> list[str]:
    view.emulate_media(color_scheme=scheme)
    view.set_viewport_size({"width": width, "height": WIDTHS[width]})
    view.evaluate("document.fonts.ready")
    picture = view.screenshot(path=str(folder / f"{name}-{width}-{scheme}.png"))
    if publish and (name, width, scheme) in SHOWN:
        (PICTURES / f"page-{name}.png").write_bytes(picture)
    wide = view.evaluate("document.documentElement.scrollWidth - innerWidth")
    found = [f"{wide} px too wide"] if wide > 0 else []
    found += view.evaluate(RUN_AXE if scheme == "light" else RUN_CONTRAST)
    return [f"{width} px, {scheme}: {each}" for each in found]


def _used(found: Scene, chromium: Any, folder: Path) -> list[str]:
    view = chromium.new_page(viewport={"width": 1440, "height": 900}, color_scheme="dark")
    view.set_default_timeout(1000 * LIMIT_S)  # a slot that was canceled gets a new JVM, beside whatever else the machine does
    said: list[str] = []
    view.on("console", lambda message: said.append(f"by keys, the console has {message.type}: {message.text}"))
    view.on("pageerror", lambda error: said.append(f"by keys: {error}"))
    wrong = by_keys(view, found.address, folder, found.jobs["failed"])
    view.close()
    # A form that is typed wrongly is answered with 400, which Chromium tells; in the end the service is gone.
    return wrong + [each for each in said if "400 (Bad Request)" not in each and "ERR_CONNECTION_REFUSED" not in each]


def main(folder: Path, publish: bool) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["MILLRACE_HOME"] = home
        with RunningStack("page", OPTIONS) as running, browser() as chromium:
            with scene(running, Path(home) / "scene") as found:
                wrong = walk(found, chromium, folder, publish)
            wrong += _used(found, chromium, folder)
    told = f"{len(found.screens)} screens at {len(WIDTHS)} widths, light and dark, and every action by keys"
    print("\n".join(wrong) or f"{told}: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--publish" in sys.argv))
