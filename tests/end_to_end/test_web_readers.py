"""Readers that go on while the web service and the leading Dispatcher are killed: no answer contradicts an earlier one."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import pytest

from deploy.local.stack import Options
from services.web.flink.ids import job_id
from tests.end_to_end.running import Held, RunningStack, until

RANKS = {
    "INITIALIZING": 0, "CREATED": 0, "RUNNING": 1, "RESTARTING": 1, "SUSPENDED": 1, "FAILING": 2, "CANCELLING": 3,
    "FINISHED": 4, "FAILED": 4, "CANCELED": 4,
}  # fmt: skip
"""A job never goes to a lower one, and of the highest it keeps the state."""
ROW = re.compile(r'<tr id="r-([^"]+)".*?<span class="st [^"]*" title="(\w+)"')
KILLS = (("web",), ("dispatcher",), ("web", "dispatcher"), ("web",))
AWAY = (502, 503, 504)
Seen = dict[str, str]


class Readers:
    """Threads that read in a loop. Each answer has all that an answer had which was complete before it was asked for."""

    def __init__(self, url: str) -> None:
        self._url, self._lock, self._over = url, threading.Lock(), threading.Event()
        self._states: Seen = {}
        self._listed: set[str] = set()
        self._accepted: list[str] = []
        self.wrong: list[str] = []
        self.answers: Counter[str] = Counter()
        reads = (self._list, self._one, self._flink_list, self._flink_one, self._page_list)
        self._threads = [threading.Thread(target=self._loop, args=(read,)) for read in reads]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def accepted(self, job: str) -> None:
        """From now on nobody may say that there is no such job."""
        with self._lock:
            self._accepted.append(job)

    def state(self, job: str) -> str:
        """The last that somebody read of it."""
        with self._lock:
            return self._states.get(job, "")

    def each_has_read_again(self) -> None:
        """Every reader has had an answer that began after this was called."""
        before = Counter(self.answers)

        def done() -> bool:
            return all(self.answers[name] > times + 1 for name, times in before.items())

        until("an answer for each reader", done, shown=lambda: self.answers)

    def _loop(self, read: Callable[[httpx.Client], None]) -> None:
        with httpx.Client(base_url=self._url, timeout=30, trust_env=False) as http:
            while not self._over.wait(0.02):
                try:
                    read(http)
                except httpx.TransportError:
                    continue  # the process is away, or was killed while it answered
                except Exception as failure:  # what cannot be read is wrong, too, and the others go on
                    with self._lock:
                        self.wrong.append(f"{read.__name__}: {failure!r}")

    def _list(self, http: httpx.Client) -> None:
        self._listing(http, "/api/v1/jobs?limit=1000", lambda answer: ((row["job"], row["status"]) for row in answer.json()["jobs"]))

    def _flink_list(self, http: httpx.Client) -> None:
        def rows(answer: httpx.Response) -> Iterable[tuple[str, str]]:
            with self._lock:
                # Another reader may have listed a job before its submission was answered.
                own = {job_id(job): job for job in (*self._accepted, *self._listed)}
            return ((own[row["jid"]], row["state"]) for row in answer.json()["jobs"] if row["jid"] in own)

        self._listing(http, "/jobs/overview", rows)

    def _page_list(self, http: httpx.Client) -> None:
        self._listing(http, "/page/jobs", lambda answer: [] if ">Starting<" in answer.text else ROW.findall(answer.text))

    def _listing(self, http: httpx.Client, path: str, rows: Callable[[httpx.Response], Iterable[tuple[str, str]]]) -> None:
        with self._lock:
            listed, states = set(self._listed), dict(self._states)
        answer = http.get(path)
        if answer.status_code in AWAY or (path.startswith("/page") and ">Starting<" in answer.text):
            return
        found = dict(rows(answer))
        if gone := listed - found.keys():
            self._say(f"{path}: {answer.status_code}, without {sorted(gone)}, which were listed before")
        with self._lock:
            self._listed |= found.keys()
        self._compared(path, found, states)

    def _one(self, http: httpx.Client) -> None:
        for job in list(self._accepted):
            self._job(http, f"/api/v1/jobs/{job}", job, lambda answer: answer.json()["job"]["status"])

    def _flink_one(self, http: httpx.Client) -> None:
        for job in list(self._accepted):
            self._job(http, f"/jobs/{job_id(job) if job in self._listed else job}", job, lambda answer: answer.json()["state"])

    def _job(self, http: httpx.Client, path: str, job: str, state: Callable[[httpx.Response], str]) -> None:
        with self._lock:
            states = dict(self._states)
        answer = http.get(path)
        if answer.status_code in AWAY:
            return
        if answer.status_code != 200:
            self._say(f"{path}: {answer.status_code} for an accepted job that was {states.get(job)}: {answer.text[:300]}")
            return
        self._compared(path.replace(job, "JOB").replace(job_id(job), "JOB"), {job: state(answer)}, states)

    def _compared(self, path: str, found: Seen, before: Seen) -> None:
        for job, state in found.items():
            was = before.get(job, state)
            if RANKS[state] < RANKS[was] or (RANKS[was] == max(RANKS.values()) and state != was):
                self._say(f"{path}: {job} is {state}, and was {was} before")
        with self._lock:
            for job, state in found.items():
                if RANKS[state] >= RANKS[self._states.get(job, state)]:
                    self._states[job] = state
        self.answers[path] += 1

    def _say(self, wrong: str) -> None:
        with self._lock:
            self.wrong.append(f"{time.time():.2f} {wrong}")


@pytest.mark.long
def test_readers_see_no_job_vanish_or_go_back_while_web_and_dispatcher_are_killed(stacks_home: Path, tmp_path: Path) -> None:
    """Jobs come, run and end in each way before, during and after each kill."""
    with RunningStack("readers", Options(slots=2, task_managers=1, heap_mb=512, web=True)) as running:
        facts = running.stack.facts()
        ends = {}
        with Readers(facts["web_url"]) as readers:
            for n, victims in enumerate(KILLS):
                held = Held(running, tmp_path / f"held-{n}", settings={"restart": {"strategy": "none"}})
                canceled = running.submit({"name": "wide", "resources": {"memory_mb": 64_000}, "vertices": {"n": {"sql": "SELECT 1 AS a"}}})
                for job in (held.watched, canceled):
                    readers.accepted(job.id)
                held.started()
                old = {victim: running.pid(victim) for victim in victims}
                running.kill(*victims)
                held.let_go()  # it ends while they are away
                begun = [
                    running.client.begin_submit({"name": "n", "vertices": {"n": {"sql": sql}}})
                    for sql in (f"SELECT {n} AS n", "SELECT raise_error('no')")
                ]
                for victim, pid in old.items():
                    running.started_again(victim, pid)
                for ended, each in zip(("FINISHED", "FAILED"), begun, strict=True):
                    job = running.watch(each.result())
                    readers.accepted(job.id)
                    ends[job.id] = ended
                canceled.job.cancel()
                ends |= {held.watched.id: "FINISHED", canceled.id: "CANCELED"}
                readers.each_has_read_again()
                assert readers.wrong == []
            for job, end in ends.items():
                until(f"{job} to be {end}", lambda job=job, end=end: readers.state(job) == end, shown=lambda: readers.wrong)
            readers.each_has_read_again()
        assert readers.wrong == []
        assert set(readers.answers) == {
            "/api/v1/jobs?limit=1000", "/api/v1/jobs/JOB", "/jobs/overview", "/jobs/JOB", "/page/jobs",
        }  # fmt: skip
