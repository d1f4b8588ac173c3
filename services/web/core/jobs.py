"""The table of jobs: a row for each job and one for each of its subtasks, folded from `job.events`.

A subtask has a row of its own (`<job>/<task>/<subtask>`), so that an event writes little however large its job is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.core.faults import is_for_storage
from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.messages.client import state_of
from millrace.core.messages.execution import TimeSpent
from millrace.core.states import ENDED_BY, ENDED_EXECUTION, ENDED_JOB, IN_SLOT, ExecutionState, JobStatus

from .facts import Ended, Fact, Naming, Row, Rows, is_news, noted, place_of, shown

TOPIC = "job.events"
ATTEMPTS_KEPT = 10  # of a subtask, the newest
BEFORE_DEPLOYING = {ExecutionState.CREATED.value: "created_ms", ExecutionState.SCHEDULED.value: "scheduled_ms"}
"""States before an attempt's first fact, and where that has their times."""
SKEWED_KEPT = 20
PAST_KEPT = 50  # of what was said about a job itself: its first words and the newest


class Jobs:
    """The table, over rows that somebody else keeps. Of ended jobs the newest `retained` stay."""

    def __init__(self, rows: Rows, retained: int) -> None:
        self._rows, self._retained = rows, retained
        self._live: dict[str, None] = {}
        self._ended: list[tuple[int, str]] = []  # (ended_ms, job), sorted
        self._progress: dict[str, Row] = {}  # of a subtask, by its row's key: at_ms, attempt, progress
        self._held: dict[str, dict[str, Row]] = {}  # of a live job, by its subtasks' keys and 0 or 1: the attempts that hold a slot
        self._counts: dict[str, int] = {}  # of jobs by status

    def load(self) -> None:
        """Looks through the rows, which were kept over a restart."""
        jobs = [self._rows[key] for key in list(self._rows) if "/" not in key]
        self._live = {row["job"]: None for row in jobs if row["status"] not in ENDED_JOB}
        self._ended = sorted((row["ended_ms"], row["job"]) for row in jobs if row["status"] in ENDED_JOB)
        self._held, self._counts = {}, {}
        for row in jobs:
            self._count(None, row)
            self._hold_all(row)

    # folding

    def fold(self, fact: Fact) -> bool:
        """Takes a fact in. False: it is known already, or of a kind that this table does not hold."""
        if fact.kind == "AttemptStateChanged":
            return self._attempt(fact)
        if fact.kind == "AttemptsProgressing":
            return self._progressing(fact)
        if fact.kind == "SubtasksKept":
            return self._kept(fact)
        if fact.kind == "JobRescaled":
            return self._rescaled(fact)
        row = self._rows.get(fact.body["job"])
        if not is_news(row, fact) or (row is not None and row["status"] in ENDED_JOB):
            return False
        changes = _changes(row, fact)
        if changes is None:
            return False
        self._put(row, fact, changes)
        return True

    def _put(self, row: Row | None, fact: Fact, changes: Mapping[str, Any]) -> None:
        job = fact.body["job"]
        new = noted(row or _blank(job), fact, **changes, past=_past(row, fact))
        self._rows[job] = new
        self._count(row, new)
        if new["status"] in ENDED_JOB or row is None or any(name in changes for name in ("tasks", "life")):
            self._hold_all(new)
        if new["status"] in ENDED_JOB:
            self._live.pop(job, None)
            insort(self._ended, (new["ended_ms"], job))
            self._forget_old()
        else:
            self._live[job] = None

    def _attempt(self, fact: Fact) -> bool:
        body = fact.body
        job = self._rows.get(body["job"])
        key = subtask_key(body["job"], body["task"], body["subtask"])
        row = self._rows.get(key)
        if not is_news(row, fact):
            return False
        progress = self._progress.pop(key, None) if body["state"] in ENDED_EXECUTION else None
        row = None if row is None else {name: value for name, value in row.items() if name != "kept_from"}
        attempts = _attempts(row, fact, progress)
        self._rows[key] = noted(
            row, fact, life=fact.life, attempts=attempts, attempt=attempts[-1]["attempt"], state=attempts[-1]["state"],
            **{name: body[name] for name in ("job", "task", "subtask")},
        )  # fmt: skip
        before = job or _blank(body["job"])
        planned = before["planned"] or body["task"] == PLAN_TASK
        running_ms = before.get("running_ms") or body["at_ms"]
        changes = {"waiting": None, "position": None, "expected_ms": None, "planned": planned, "running_ms": running_ms}
        if any(before.get(name) != value for name, value in changes.items()):
            before = self._rows[body["job"]] = {**before, **changes, "as_of": place_of(fact)}
            self._count(job, before)
            if before["status"] not in ENDED_JOB:
                self._live[body["job"]] = None
        self._hold(before, body["task"], body["subtask"])
        return True

    def _kept(self, fact: Fact) -> bool:
        """Those subtasks have FINISHED without an attempt."""
        body = fact.body
        news = False
        for number in body["subtasks"]:
            key = subtask_key(body["job"], body["task"], number)
            row = self._rows.get(key)
            if not is_news(row, fact):
                continue
            news = True
            if row is not None and body["kept_from"] == body["job"]:  # it was rescaled, and its own attempt counts as before
                self._rows[key] = noted(row, fact, state=ExecutionState.FINISHED.value)
                continue
            self._rows[key] = noted(
                row, fact, job=body["job"], task=body["task"], subtask=number, life=fact.life, attempts=[], attempt=0,
                state=ExecutionState.FINISHED.value, kept_from=body["kept_from"],
            )  # fmt: skip
        job = self._rows.get(body["job"])
        if news and job is not None and body["task"] == PLAN_TASK and not job["planned"]:
            self._rows[body["job"]] = {**job, "planned": True, "as_of": place_of(fact)}
        return news

    def _rescaled(self, fact: Fact) -> bool:
        """The job has other tasks from here on, and none of their subtasks counts."""
        row = self._rows.get(fact.body["job"])
        if row is None or not is_news(row, fact) or row["status"] in ENDED_JOB:
            return False
        before = list(_subtasks(row))
        rescaled = {**row.get("rescaled", {}), **fact.body["parallelism"]}
        self._put(row, fact, {"tasks": _tasks(fact.body["tasks"]), "skewed": [], "rescaled": rescaled})
        new = self._rows[fact.body["job"]]
        for task, number in before:
            key = subtask_key(new["job"], task, number)
            had = self._rows.get(key)
            if had is not None and _has(new, task, number):
                self._rows[key] = {**had, "state": ExecutionState.CREATED.value, "as_of": place_of(fact)}
            else:
                self._rows.pop(key, None)
                self._progress.pop(key, None)
        self._hold_all(new)
        return True

    def _count(self, before: Row | None, after: Row | None) -> None:
        for row, step in ((before, -1), (after, 1)):
            if row is not None:
                self._counts[row["status"]] = self._counts.get(row["status"], 0) + step

    def _hold_all(self, job: Row) -> None:
        self._held.pop(job["job"], None)
        if job["status"] not in ENDED_JOB:
            for task, number in _subtasks(job):
                self._hold(job, task, number)

    def _hold(self, job: Row, task: str, number: int) -> None:
        """Notes which of the last two attempts of a subtask hold a slot: more than two live at no time."""
        key = subtask_key(job["job"], task, number)
        row, held = self._rows.get(key), self._held.get(job["job"], {})
        known = row is not None and row["life"] >= job.get("life", 0) and job["status"] not in ENDED_JOB and _has(job, task, number)
        last = row["attempts"][:-3:-1] if row is not None and known else []
        for place in (0, 1):
            if place < len(last) and last[place]["state"] in IN_SLOT:
                held[f"{key}/{place}"] = {"job": job["job"], "task": task, "subtask": number, **last[place]}
            else:
                held.pop(f"{key}/{place}", None)
        if held:
            self._held[job["job"]] = held
        else:
            self._held.pop(job["job"], None)

    def _progressing(self, fact: Fact) -> bool:
        """A row has what an attempt reported last once that has ended. Written each second, its changelog would have little else."""
        news = False
        for each in fact.body["attempts"]:
            key = subtask_key(fact.body["job"], each["task"], each["subtask"])
            row, known = self._rows.get(key), self._progress.get(key, {})
            mine = row is not None and (row["life"], row["attempt"]) == (fact.life, each["attempt"]) and row["state"] in IN_SLOT
            if mine and fact.body["at_ms"] > known.get("at_ms", 0):
                progress = counts_of(each["progress"])
                self._progress[key] = {"at_ms": fact.body["at_ms"], "attempt": each["attempt"], "progress": progress}
                news = True
        return news

    def is_newer(self, job: str, seen: Mapping[int, int], whole: bool = False) -> bool:
        """Whether something about the job is said behind these offsets, which are by partition. `whole`: its subtasks count, too."""
        row = self._rows.get(job)
        if row is None:
            return False  # forgotten meanwhile
        rows = [row, *(self._rows.get(subtask_key(job, *each)) for each in _subtasks(row))] if whole else [row]
        places = [each["as_of"] for each in rows if each is not None and each["as_of"] is not None]
        return any(offset > seen.get(partition, -1) for partition, offset, _ in places)

    def _forget_old(self) -> None:
        """Those that ended first go first, whenever they were told: a job that was forgotten and whose facts are read again after a
        restart goes again, and no younger one in its place."""
        while len(self._ended) > self._retained:
            self._drop(self._ended.pop(0)[1])

    def forget(self, job: str) -> None:
        """An ended job is not shown any more, as if nothing had been told of it."""
        row = self._rows.get(job)
        if row is not None and row["status"] in ENDED_JOB:
            del self._ended[bisect_left(self._ended, (row["ended_ms"], job))]
            self._drop(job)

    def take(self, rows: Rows) -> None:
        """What was folded elsewhere: the rows of ended jobs that are not known here."""
        self._rows.update(rows)
        for row in [row for key, row in rows.items() if "/" not in key]:
            self._count(None, row)
            insort(self._ended, (row["ended_ms"], row["job"]))
        self._forget_old()

    def _drop(self, job: str) -> None:
        self._count(self._rows[job], None)
        for key in [job, *(subtask_key(job, task, n) for task, n in _subtasks(self._rows[job]))]:
            self._rows.pop(key, None)
            self._progress.pop(key, None)

    # answers

    def rows(self) -> list[Row]:
        """The jobs as they are kept, in no order. They are not to be changed."""
        return [self._rows[job] for job in self._jobs()]

    def row(self, job: str) -> Row | None:
        """One of them; None: it is not known."""
        return self._rows.get(job) if "/" not in job else None

    def has(self, job: str) -> bool:
        """Whether it is known."""
        return "/" not in job and job in self._rows

    def live(self) -> list[Row]:
        """Those of them that have not ended."""
        return [self._rows[job] for job in self._live]

    def ended_since(self, ms: int) -> list[Row]:
        """Those of them that ended at this moment or later, the oldest first."""
        return [self._rows[job] for _, job in self._ended[bisect_left(self._ended, (ms, "")) :]]

    def listed(self, status: str | None = None) -> list[Row]:
        """The jobs, newest first; those of one status."""
        found = [row for row in self.rows() if status in (None, row["status"])]
        return [summary(row) for row in sorted(found, key=lambda row: (row["accepted_ms"] or 0, row["job"]), reverse=True)]

    def described(self, job: str) -> Row | None:
        """A job with its tasks, their subtasks and attempts; None: it is not known."""
        row = self.row(job)
        if row is None:
            return None
        tasks: dict[str, list[Row]] = {}
        for task, number in _subtasks(row):
            tasks.setdefault(task, []).append(self._subtask(row, task, number))
        told = {name: row.get(name) for name in ("cause", "archive", "spent", "origin")}
        told |= {"skewed": row["skewed"]} if row.get("skewed") else {}
        return {**summary(row), **told, "tasks": [{"task": task, "subtasks": subtasks} for task, subtasks in tasks.items()]}

    def on(self, task_manager: str) -> set[str]:
        """The jobs of which an attempt is, or was, on this TaskManager, as far as attempts are kept."""
        if isinstance(self._rows, Ended):
            return self._rows.on(task_manager)
        found: set[str] = set()
        rows = self._rows.naming(task_manager) if isinstance(self._rows, Naming) else self._rows.values()
        for row in rows:  # once over all of them: to look up those of each job takes several times as long
            for each in row.get("attempts", ()):
                if each["task_manager"] == task_manager:
                    job = self._rows.get(row["job"])
                    if job is not None and row["life"] >= job.get("life", 0) and _has(job, row["task"], row["subtask"]):
                        found.add(row["job"])
                    break
        return found

    def statuses(self) -> dict[str, int]:
        """How many jobs there are of each status."""
        return {status: count for status, count in self._counts.items() if count}

    def in_slots(self) -> Iterator[Row]:
        """The attempts that hold a slot: job, task, subtask and the attempt. They are not to be changed."""
        for held in self._held.values():
            yield from held.values()

    def _jobs(self) -> list[str]:
        return [*self._live, *(job for _, job in self._ended)]

    def _subtask(self, job: Row, task: str, number: int) -> Row:
        row = self._rows.get(subtask_key(job["job"], task, number))
        if row is None or row["life"] < job.get("life", 0):  # not yet run since its JobMaster began anew
            return {"subtask": number, "attempt": 0, "state": "CREATED", "attempts": []}
        found = {name: value for name, value in shown(row).items() if name not in ("job", "task")}
        reported = self._progress.get(subtask_key(job["job"], task, number))
        if reported is not None and reported["attempt"] == row["attempt"]:
            *before, last = row["attempts"]
            found["attempts"] = [*before, {**last, "progress": reported["progress"]}]
        return found


def counts_of(progress: Mapping[str, Any]) -> dict[str, int]:
    """What an attempt reported; earlier builds leave out what they do not count."""
    return {name: value for name, value in progress.items() if isinstance(value, int)}


def subtask_key(job: str, task: str, subtask: int) -> str:
    """No job's id has a slash."""
    return f"{job}/{task}/{subtask}"


def _blank(job: str) -> Row:
    return {
        "job": job, "name": "", "status": "INITIALIZING", "accepted_ms": None, "since_ms": None, "ended_ms": None,
        "running_ms": None, "waiting": None, "position": None, "expected_ms": None,
        "cause": None, "archive": None, "tasks": [], "planned": False, "life": 0,
        "seen": {}, "as_of": None,
    }  # fmt: skip


def _changes(row: Row | None, fact: Fact) -> Row | None:
    """What a fact about a job changes; None: it is of no kind that is known here."""
    body, at_ms = fact.body, fact.body["at_ms"]
    if fact.kind == "JobAccepted":
        tasks = _tasks(body["tasks"])
        since_ms = row["since_ms"] if row is not None and row["since_ms"] else at_ms
        told = {"name": body["name"], "accepted_ms": at_ms, "since_ms": since_ms, "tasks": tasks}
        return told | ({"origin": body["origin"]} if body.get("origin") else {})
    if fact.kind == "JobWaiting":
        return {"waiting": body["reason"], "position": body["position"], "expected_ms": body.get("expected_ms")}
    if fact.kind == "EdgeSkewed":
        edge = body["edge"]
        others = [each for each in (row or {}).get("skewed", ()) if any(each[name] != edge[name] for name in ("task", "vertex", "keys"))]
        return {"skewed": [*others, edge][-SKEWED_KEPT:]}
    if fact.kind == "JobCancelling":
        return {"status": JobStatus.CANCELLING.value, "since_ms": at_ms, "cancelling": True}
    if fact.kind == "JobStateChanged":
        if row is not None and row.get("cancelling"):  # its JobMaster sent that before the cancel came, or repeats it
            return {"life": fact.life}
        told = {"status": body["status"], "since_ms": at_ms, "cause": body.get("cause"), "life": fact.life}
        return told | ({"waiting": None} if row is not None and is_for_storage(row["waiting"]) else {})  # it tries again
    if fact.kind in ENDED_BY:
        ended = {
            "status": ENDED_BY[fact.kind], "since_ms": at_ms, "ended_ms": at_ms, "waiting": None, "position": None, "expected_ms": None,
        }  # fmt: skip
        return {
            **ended, "archive": body.get("archive"), "cause": body.get("cause"), "spent": _spent(body.get("spent")),
            "rows": _rows_of(body.get("result")),
        }  # fmt: skip
    return None


def _tasks(told: Any) -> list[Row]:
    return [{"task": each["task"], "parallelism": each["parallelism"], "inputs": _inputs(each.get("inputs"))} for each in told]


def _inputs(inputs: Any) -> list[Row]:
    """The tasks that a task reads; earlier builds do not tell."""
    return [{"task": str(each["task"]), "edge": str(each["edge"])} for each in inputs or ()]


def _past(row: Row | None, fact: Fact) -> list[Row]:
    """What was said about the job itself, this fact included, in the order of saying."""
    body = fact.body
    told = {name: body[name] for name in ("status", "reason", "position", "archive") if body.get(name) is not None}
    past = [*(row.get("past", ()) if row is not None else ()), {"at_ms": body["at_ms"], "kind": fact.kind, **told}]
    return past if len(past) <= PAST_KEPT else [*past[:2], *past[3:]]


def _spent(told: Mapping[str, Any] | None) -> Row | None:
    return None if told is None else {**dict.fromkeys(TimeSpent.model_fields, 0), **told}


def _rows_of(result: Any) -> int | None:
    """How many rows a result has; None: that is not known, or it has more than are kept of it."""
    rows = result.get("rows") if isinstance(result, dict) and not result.get("truncated") else None
    return len(rows) if isinstance(rows, list) else None


def _attempts(row: Row | None, fact: Fact, reported: Row | None) -> list[Row]:
    """The attempts of a subtask after this fact, the current one last. Numbers count anew in each life of the JobMaster's state [R20].
    `reported`: what one that ends has reported last. An attempt that lived beside the current one has that one's number as `beside`."""
    body = fact.body
    before = list(row["attempts"]) if row is not None and row["life"] == fact.life else []
    mine = next((each for each in before if each["attempt"] == body["attempt"]), None)
    before = [each for each in before if each is not mine]
    last = mine or {"attempt": body["attempt"], "task_manager": None, "slot": None, "error": None, "since_ms": {}}
    earlier = {state: body[name] for state, name in BEFORE_DEPLOYING.items() if body.get(name) is not None}
    since_ms = {**earlier, **last["since_ms"], body["state"]: body["at_ms"]}
    given = {name: body[name] for name in ("task_manager", "slot", "error") if body.get(name) is not None}
    if reported is not None and reported["attempt"] == body["attempt"]:
        given["progress"] = reported["progress"]
    if isinstance(whole := body.get("progress"), dict):  # of one that has ended, as it reported in the end
        given["progress"] = counts_of(whole)
    now = {**last, **given, "state": body["state"], "since_ms": since_ms}
    now.pop("beside", None)
    if body.get("beside") is not None and before:
        *before, current = _current_last(before, body["beside"])
        return [*before, {**now, "beside": current["attempt"]}, current][-ATTEMPTS_KEPT:]
    before = [{**each, "beside": now["attempt"]} if each["state"] in IN_SLOT else each for each in before]
    return [*before, now][-ATTEMPTS_KEPT:]


def _current_last(attempts: list[Row], number: int) -> list[Row]:
    """The attempt of this number goes last, where it is known: it is the current one from now on, if it was not before."""
    current = next((each for each in attempts if each["attempt"] == number), attempts[-1])
    others = [{**each, "beside": current["attempt"]} if each["state"] in IN_SLOT else each for each in attempts if each is not current]
    return [*others, {name: value for name, value in current.items() if name != "beside"}]


def summary(row: Row) -> Row:
    """A job in one line."""
    names = ("job", "name", "status", "accepted_ms", "since_ms", "running_ms", "ended_ms", "waiting", "position", "expected_ms")
    return {**{name: row.get(name) for name in names}, "state": state_of(row["status"], row["waiting"], row.get("running_ms"))}


def _has(row: Row, task: str, number: int) -> bool:
    """Whether it is one of the job's subtasks."""
    if task == PLAN_TASK:
        return bool(row["planned"]) and number == 0
    return any(each["task"] == task and 0 <= number < each["parallelism"] for each in row["tasks"])


def _subtasks(row: Row) -> Iterator[tuple[str, int]]:
    if row["planned"]:
        yield PLAN_TASK, 0
    for task in row["tasks"]:
        for number in range(task["parallelism"]):
            yield task["task"], number
