"""A cluster at one moment, for the page: a running, a failed, a waiting and a finished job, a broken slot, a lost TaskManager, and as
many further jobs as are wanted. Its facts go through the view as those of Kafka do; a client in memory has what they do not tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI

from millrace.client import Job, NotFound, Refused, Result, Shown
from millrace.client.dead_letters import Gone, Letter, Original, Page
from millrace.core.messages.attempts import Fault
from millrace.core.messages.blocklist import BlockedHost, BlockedHostInfo
from millrace.core.messages.client import JobReported, JobSummary, ShutDown
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.events import DeadLetter
from millrace.core.messages.execution import Archive, JobDetail
from millrace.core.messages.progress import AttemptProgress
from millrace.io.interfaces import Entry
from millrace.io.storage.store import Storage
from services.web.app import application
from services.web.commands import Commands
from services.web.core.facts import Fact
from services.web.follow import Follows
from services.web.page import page
from services.web.processes import Processes
from services.web.view import View
from tests.client.asked import Asked
from tests.web.rescaled import Rescaling
from tests.web.scheduled import Scheduled

RUNNING, FAILED, FINISHED = "flight-delays-9f3c21ab", "flight-delays-2b7e90c4", "flight-delays-61d09e3f"
WAITING, STUCK, AGAIN, SCRIPT = (
    "churn-features-0b6f2d3c",
    "genome-join-91ee7a4b",
    "inventory-sync-9b41e07d",
    "wordcount-5e1a77d0",
)
SECRET = "hunter2-is-no-secret"
BUSY = "0 of 2 slots: of 10 slots of 3 TaskManagers 8 are busy, 1 is starting, 1 is broken"
TOO_LARGE = "0 of 2 slots: needs 16384 MB a slot, the largest has 2048 MB"
MINUTE, HOUR = 60_000, 3_600_000

GRAPH: dict[str, Any] = {
    "name": "flight-delays",
    "vertices": {
        "flights": {"source": {"format": "csv", "path": "/data/flights.csv"}, "parallelism": 2},
        "weather": {"source": {"format": "csv", "path": "/data/weather.csv"}},
        "airlines": {"source": {"format": "csv", "path": "/data/airlines.csv"}},
        "joined": {
            "sql": "SELECT *\nFROM flights\nJOIN airlines USING (carrier)\nLEFT JOIN weather USING (origin)", "parallelism": 2,
            "inputs": {"flights": "hash(origin, time_hour)", "weather": "hash(origin, time_hour)", "airlines": "broadcast"},
        },
        "delays": {"sql": "SELECT airline,\n  avg(dep_delay) AS mean_delay,\n  late_ratio\nFROM joined\nGROUP BY airline",
                   "inputs": {"joined": "hash(airline)"}},
        "ranked": {"python": "ranking:rank", "inputs": {"delays": "forward"}},
        "report": {"sink": {"format": "parquet", "path": "/data/out"}, "inputs": {"ranked": "forward"}},
    },
    "modules": [{"name": "ranking.py", "sha256": "0" * 64, "kind": "py"}],
    "conf": {"spark.hadoop.fs.s3a.secret.key": SECRET},
}  # fmt: skip
LAST = "delays+ranked+report"
TASKS = [("flights", 2), ("weather", 1), ("airlines", 1), ("joined", 2), (LAST, 1)]
EDGES = {
    "joined": [("flights", "hash"), ("weather", "hash"), ("airlines", "broadcast")], LAST: [("joined", "hash")],
    "features": [("events", "hash"), ("accounts", "broadcast")], "store": [("stock", "forward")],
}  # fmt: skip
CAUSE = {
    "kind": "analysis", "retryable": False, "condition": "UNRESOLVED_COLUMN.WITH_SUGGESTION", "vertex": "delays", "line": 3, "column": 3,
    "message": "a column with name `late_ratio` cannot be resolved. Did you mean `late_share`?\nThere are: airline, late_share <b>&amp;",
}  # fmt: skip
ROWS = {"flights": 336_776, "weather": 26_115, "airlines": 16, "joined": 328_521, "report": 43}


class Cluster(Asked, Scheduled, Rescaling):
    """What Kafka and the blob server are asked. `sent`: the commands that came."""

    members: Mapping[str, int] = {"task-manager-1": 4, "task-manager-3": 2}
    mute: tuple[str, ...] = ("task-manager-2",)
    running: Mapping[str, tuple[str, dict[str, str]]] = {
        "dispatcher-1": ("dispatcher", {"dispatcher": "leader"}), "dispatcher-2": ("dispatcher", {"dispatcher": "standby"}),
        "job-master-1": ("job-master", {f"job-master/{n}": "leader" for n in range(4)}),
        "resource-manager-1": ("resource-manager", {"resource-manager": "leader"}), "web-1": ("web", {}),
    }  # fmt: skip

    def __init__(self, wall_ms: int, more: int = 0) -> None:
        self.storage = Storage("memory://page-seed")
        super().__init__(self.storage)
        self.changed: list[tuple[Any, ...]] = []  # of schedules
        self.rescaled: list[tuple[Any, ...]] = []
        self.wall_ms = wall_ms
        self.view = View({}, {}, 20_000)
        self.view.load({})
        self.sent: list[tuple[str, Any]] = []
        self.redriven_by: list[str] = []
        self._offsets: dict[str, int] = {}
        self._counts: dict[tuple[Any, ...], int] = {}
        self._slots()
        self._past(more)
        self._jobs()

    # facts

    def say(self, topic: str, kind: str, at_ms: int, subject: tuple[Any, ...], **body: Any) -> None:
        offset = self._offsets[topic] = self._offsets.get(topic, -1) + 1
        count = self._counts[(kind, *subject)] = self._counts.get((kind, *subject), 0) + 1
        self.view.fold(
            Fact(topic, 0, offset, at_ms, 1, {"type": kind, "version": 1, "at_ms": at_ms, "count": count, **body})
        )

    def job(self, kind: str, job: str, at_ms: int, **body: Any) -> None:
        self.say("job.events", kind, at_ms, (job,), job=job, **body)

    def accept(self, job: str, name: str, at_ms: int, tasks: list[tuple[str, int]]) -> None:
        outlines = [
            {"task": task, "vertices": task.split("+"), "parallelism": n,
             "inputs": [{"task": read, "edge": edge} for read, edge in EDGES.get(task, ()) if read in dict(tasks)]}
            for task, n in tasks
        ]  # fmt: skip
        self.job("JobAccepted", job, at_ms, name=name, tasks=outlines)
        self.job("JobStateChanged", job, at_ms + 4, status="RUNNING", cause=None)

    def attempt(
        self, job: str, task: str, subtask: int, place: tuple[str, int], start: int, end: int | None = None, state: str = "FINISHED",
        number: int = 1, error: Any = None,
    ) -> None:  # fmt: skip
        where = {"task": task, "subtask": subtask, "attempt": number, "task_manager": place[0], "slot": place[1]}
        for each, at_ms in (("DEPLOYING", start), ("RUNNING", start + 12), *(((state, end),) if end else ())):
            fault = error if each == "FAILED" else None
            self.say(
                "job.events",
                "AttemptStateChanged",
                at_ms,
                (job, task, subtask),
                job=job,
                state=each,
                error=fault,
                **where,
            )

    def progressing(self, job: str, counts: dict[str, int]) -> None:
        """The first attempt that runs reports how far it is."""
        described = self.view.jobs.described(job)
        assert described is not None
        task, subtask = next(
            (task["task"], each) for task in described["tasks"] for each in task["subtasks"] if each["state"] == "RUNNING"
        )  # fmt: skip
        told = {"task": task, "subtask": subtask["subtask"], "attempt": subtask["attempt"], "progress": counts}
        self.say("job.events", "AttemptsProgressing", self.wall_ms, (job, task, "progress"), job=job, attempts=[told])

    def _slots(self) -> None:
        now, topic = self.wall_ms, "cluster.events"
        for n, (name, host, states) in enumerate((
            ("task-manager-1", "ws-04", ["FREE"] * 4), ("task-manager-2", "ws-05", ["FREE"] * 4),
            ("task-manager-3", "ws-06", ["STARTING"] * 2),
            ("task-manager-4", "ws-07", ["FREE"] * 2),
        )):  # fmt: skip
            self.say(topic, "TaskManagerJoined", now - 5 * HOUR + n, (name,), task_manager=name, incarnation=n + 1, host=host,
                     slots=len(states), states=states)  # fmt: skip
        reason = "the JVM ended with exit code 1: Could not reserve enough space for 2097152KB object heap"
        self.say(topic, "SlotChanged", now - 34 * MINUTE, ("3", 1), task_manager="task-manager-3", incarnation=3, slot=1, state="BROKEN",
                 reason=reason)  # fmt: skip
        self.say(
            topic,
            "TaskManagerGone",
            now - 7000,
            ("4",),
            task_manager="task-manager-4",
            incarnation=4,
            reason="no heartbeat for 612 ms",
        )
        for epoch, (scope, leader, ago) in enumerate((
            ("dispatcher", "dispatcher-2", 11 * HOUR), ("dispatcher", "dispatcher", 5 * HOUR),
            ("resource-manager", "resource-manager", 19 * HOUR),
            ("job-master/0", "job-master", 20 * HOUR), ("job-master/0", "job-master-2", 9000),
        )):  # fmt: skip
            self.say(
                topic, "LeaderElected", now - ago, (scope,), scope=scope, leader=leader, epoch=epoch + 1, generation=1
            )

    def _past(self, more: int) -> None:
        for n in range(more):
            at_ms = self.wall_ms - HOUR - (more - n) * 20_000
            job, end = f"nightly-orders-{n:08x}", ("JobFailed", "JobCanceled")[n % 2] if n % 97 == 5 else "JobFinished"
            self.accept(job, "nightly-orders", at_ms, [("orders", 1)])
            self.attempt(job, "orders", 0, ("task-manager-1", n % 4), at_ms + 20, at_ms + 5000 + n % 9000)
            cause = (
                {"kind": "missing_path", "message": f"no such path: s3a://lake/orders/{n}"}
                if end == "JobFailed"
                else None
            )
            result = {"rows": [[1]] * (n % 50), "truncated": False} if end == "JobFinished" else None
            self.job(end, job, at_ms + 5010 + n % 9000, archive=None, cause=cause, result=result)

    def _jobs(self) -> None:
        now = self.wall_ms
        self._finished(now - 20 * MINUTE)
        self._failed(now - 6 * MINUTE)
        for n in range(40):  # what kept the slots busy in the last hour
            start = now - HOUR + n * 85_000 + (n * n) % 7 * 9000
            job = f"ad-spend-rollup-{n:08x}"
            self.accept(job, "ad-spend-rollup", start, [("spend", 2)])
            for subtask in range(2):
                self.attempt(
                    job,
                    "spend",
                    subtask,
                    ("task-manager-1", (n + subtask) % 4),
                    start + 30,
                    min(now - 20_000, start + 90_000 + n * 900),
                )
            self.job("JobFinished", job, min(now - 19_000, start + 90_100 + n * 900), archive=None, result=None)
        self.accept(STUCK, "genome-join", now - 72 * MINUTE, [("reads", 2)])
        self.job(
            "JobWaiting",
            STUCK,
            now - 72 * MINUTE + 9,
            reason=TOO_LARGE,
            position=None,
        )
        self.accept(SCRIPT, "wordcount", now - 27_000, [("main", 1)])
        self.attempt(SCRIPT, "main", 0, ("task-manager-1", 2), now - 26_700)
        self.accept(AGAIN, "inventory-sync", now - 51_000, [("stock", 1), ("store", 1)])
        fault = {"kind": "jvm", "retryable": True, "message": "the JVM ran out of memory", "vertex": "stock"}
        self.attempt(AGAIN, "stock", 0, ("task-manager-2", 3), now - 50_000, now - 700, "FAILED", error=fault)
        self.job("JobStateChanged", AGAIN, now - 690, status="RESTARTING", cause=None)
        self._running(now - 12_400)
        self.accept(WAITING, "churn-features", now - 21_300, [("events", 1), ("accounts", 1), ("features", 2)])
        for place, ago in ((3, 21_000), (2, 12_000), (1, 4000)):
            self.job("JobWaiting", WAITING, now - ago, reason=BUSY,
                     position=place)  # fmt: skip
        for n, slot in enumerate((0, 1, 3)):
            job = f"sessions-to-parquet-b81c04f{n}"
            self.accept(job, "sessions-to-parquet", now - 8 * MINUTE - n, [("sessions", 1)])
            self.attempt(job, "sessions", 0, ("task-manager-1", slot), now - 7 * MINUTE)

    def _running(self, t: int) -> None:
        self.accept(RUNNING, "flight-delays", t, TASKS)
        self._sources(RUNNING, t)
        self.attempt(RUNNING, "joined", 0, ("task-manager-1", 0), t + 4300, t + 7900)
        lost = {"kind": "lost", "retryable": True, "message": "task-manager-4 was lost (no heartbeat for 612 ms)"}
        self.attempt(RUNNING, "joined", 1, ("task-manager-4", 0), t + 4300, t + 5900, "FAILED", error=lost)
        self.attempt(RUNNING, "joined", 1, ("task-manager-2", 0), t + 5931, number=2)
        self.job("AttemptsProgressing", RUNNING, t + 12_000, attempts=[
            {"task": "joined", "subtask": 1, "attempt": 2, "progress": {
                "tasks_done": 5, "tasks_total": 8, "rows_written": 81_030, "rows_per_s": 20_110,
            }},
        ])  # fmt: skip

    def _sources(self, job: str, t: int) -> None:
        self.attempt(job, "@plan", 0, ("task-manager-1", 0), t + 16, t + 700)
        self.attempt(job, "flights", 0, ("task-manager-1", 0), t + 710, t + 3900)
        self.attempt(job, "flights", 1, ("task-manager-1", 1), t + 710, t + 4300)
        self.attempt(job, "weather", 0, ("task-manager-2", 0), t + 16, t + 1320)
        self.attempt(job, "airlines", 0, ("task-manager-2", 1), t + 16, t + 490)

    def _finished(self, t: int) -> None:
        self.accept(FINISHED, "flight-delays", t, TASKS)
        self._sources(FINISHED, t)
        for n, end in ((0, 7900), (1, 8200)):
            self.attempt(FINISHED, "joined", n, ("task-manager-1", n), t + 4300, t + end)
        self.attempt(FINISHED, LAST, 0, ("task-manager-2", 1), t + 8210, t + 9110)
        spent = {
            "queue_ms": 8,
            "start_ms": 310,
            "plan_ms": 920,
            "compute_ms": 6900,
            "exchange_ms": 740,
            "publish_ms": 232,
        }
        result = {"columns": ["a"], "types": ["int"], "rows": [[0]] * 43, "truncated": False}
        self.job("JobFinished", FINISHED, t + 9110, archive=f"archives/{FINISHED}", result=result, spent=spent)

    def _failed(self, t: int) -> None:
        self.accept(FAILED, "flight-delays", t, TASKS)
        self._sources(FAILED, t)
        for n, end in ((0, 7900), (1, 8700)):
            self.attempt(FAILED, "joined", n, ("task-manager-1", n), t + 4300, t + end)
        self.attempt(FAILED, LAST, 0, ("task-manager-2", 1), t + 8710, t + 9540, "FAILED", error=CAUSE)
        self.job("JobFailed", FAILED, t + 9600, archive=f"archives/{FAILED}", cause=CAUSE, spent=None)

    # what a client is answered

    def show(self, job: str) -> Shown:
        row = self.view.jobs.row(job)
        if row is None:
            raise NotFound(f"there is no job {job}")
        summary = JobSummary(job=job, name=row["name"], status=row["status"], accepted_ms=row["accepted_ms"])
        return Shown(summary, self.detail(job), None)

    def report_now(self, job: str, task: str = "", subtask: int | None = None) -> JobReported:
        progress = {name: 0 for name in AttemptProgress.model_fields} | {
            "stages_done": 1, "stages_active": 1, "stages_total": 3, "tasks_done": 5, "tasks_total": 8, "rows_read": 120_400,
            "rows_written": 81_030, "rows_per_s": 20_110,
        }  # fmt: skip
        status = {"elapsed_ms": 6469, "progress": progress, "stages": [
            {"stage": 14, "name": "join of flights and <b>&amp; weather", "tasks_done": 5, "tasks_total": 8},
        ], "stack": ["ranking.py:16 rank", "pyspark/sql/dataframe.py:1240 collect"]}  # fmt: skip
        attempts = [{"task": "joined", "subtask": 1, "attempt": 2, "task_manager": "task-manager-2", "running_ms": 1, "status": status}]
        return JobReported.model_validate({"job": job, "correlation": "", "running": 1, "attempts": attempts if job == RUNNING else [],
                                           "reason": None if job == RUNNING else "it waits for slots"})  # fmt: skip

    def detail(self, job: str) -> JobDetail:
        described = self.view.jobs.described(job)
        assert described is not None
        tasks = [{
            "task": task["task"], "parallelism": len(task["subtasks"]), "states": {}, "subtasks": [
                self._subtask(job, task["task"], each, len(task["subtasks"])) for each in task["subtasks"]
            ]} for task in described["tasks"]]  # fmt: skip
        kept = {"job": job, "name": described["name"], "acceptance": "a", "status": described["status"], "tasks": tasks}
        result = None
        if job == FINISHED:
            columns = ["weather", "rank", "airline", "flights", "mean_delay", "late_share"]
            airlines = (
                "Frontier Airlines Inc.",
                "ExpressJet Airlines Inc.",
                "Mesa Airlines Inc.",
                "Southwest Airlines Co.",
                "<script>alert(1)</script>",
            )
            rows = [
                ["dry and clear", n + 1, airlines[n % 5], 622 + n * 997, 19.5 - n / 3, None if n == 7 else 0.182]
                for n in range(43)
            ]
            result = {
                "columns": columns,
                "types": ["string", "int", "string", "bigint", "double", "double"],
                "rows": rows,
                "truncated": False,
            }
        return JobDetail.model_validate(
            {**kept, "accepted_ms": described["accepted_ms"], "since_ms": described["since_ms"], "result": result}
        )

    def _subtask(self, job: str, task: str, subtask: dict[str, Any], of: int) -> dict[str, Any]:
        n, attempts = subtask["subtask"], subtask["attempts"]
        done = subtask["state"] == "FINISHED"
        outputs = {
            v: {"rows": ROWS[v] // of, "bytes": ROWS[v] // of * 83} for v in task.split("+") if v in ROWS and done
        }
        progress = dict.fromkeys(
            ("stages_done", "stages_active", "stages_total", "tasks_failed", "rows_read", "rows_written", "rows_per_s"),
            0,
        )
        return {
            "subtask": n, "state": subtask["state"], "attempt": subtask["attempt"], "task_manager": "", "outputs": outputs,
            "logs": [{"attempt": each["attempt"], "path": f"{job}/{task}/{n}/{each['attempt']}"} for each in attempts],
            "progress": {**progress, "tasks_done": 5, "tasks_total": 8} if subtask["state"] == "RUNNING" else None,
        }  # fmt: skip

    def archive(self, path: str) -> Archive:
        job = path.removeprefix("archives/")
        detail = self.detail(job)
        cause = Fault.model_validate(
            {**CAUSE, "task": LAST, "subtask": 0, "attempt": 1, "detail": "\n".join(f"line {n}" for n in range(214))}
        )
        return Archive(
            job=job, name="flight-delays", status=detail.status, accepted_ms=detail.accepted_ms, ended_ms=0, graph=GRAPH, detail=detail,
            cause=cause if job == FAILED else None,
        )  # fmt: skip

    def rows(self, found: Any) -> Result:
        return Result(found.columns, found.types, found.rows, False)

    def log_end(self, folder: str, stream: str, most: int) -> tuple[bytes, int]:
        lines = [
            f"26/11/24 14:32:{n:02d} INFO TaskSetManager: Finished task {n}.0 in stage 14.0 of {folder}"
            for n in range(40)
        ]
        lines[30] = (
            "26/11/24 14:32:30 ERROR ranking.py:16: [UNRESOLVED_COLUMN.WITH_SUGGESTION] late_ratio cannot be resolved"
        )
        data = "\n".join(lines).encode()
        return (data, len(data)) if stream == "stderr" else (b"", 0)

    def dead_letters(self) -> Any:
        reasons = (
            "busy: SubmitJob of job orders-backfill-0a1177ce: 500 jobs live, and max_live_jobs is 500",
            "conflict: SubmitJob of job nightly-7: its id is another job's",
            "not JSON: expecting value at line 1, column 1",
        )
        letters = [
            Letter(400 + n, DeadLetter(
                topic="client.commands", partition=0, offset=18_000 + n, reason=reason,
                size_bytes=812, sha256="b6" * 32, head_base64="e30=", at_ms=self.wall_ms - (10 - n) * MINUTE,
            )) for n, reason in enumerate(reasons * 3)
        ]  # fmt: skip


        def redrive(letter: Letter, _: Original, by: str) -> None:
            self.sent.append(("redrive", letter.number))
            self.redriven_by.append(by)

        def original(letter: Letter) -> Original:
            """Of the busy ones a submission that is taken now."""
            if letter.reason.startswith("not JSON"):
                raise Gone(f"letter {letter.number} keeps the first 2 of 812 bytes; the rest was deleted")
            graph = {"name": "orders", "vertices": {"a": {"sql": "SELECT 1"}}}
            value = {"type": "SubmitJob", "version": 1, "job": f"orders-{letter.number}", "graph": graph}
            return Original(json.dumps(value).encode(), None, (), "there")

        return SimpleNamespace(
            page=lambda below, most: Page(letters[::-1][:most], len(letters), len(letters) > most),
            original=original,
            one=lambda number: next((each for each in letters if each.number == number), None),
            redrive=redrive,
        )

    def submit(self, graph: Any, job: str, parameters: Any, uploads: Any, watch: bool, env: Any, *trace: Any) -> Job:
        if job == "taken":
            raise Refused("another job has this id")
        self.sent.append(("submit", (job, graph, uploads, env)))
        if self.view.jobs.row(job) is None:
            self.accept(job, str(graph.get("name")), self.wall_ms, [(task, 1) for task in graph["vertices"]])
        return Job(SimpleNamespace(), job, "INITIALIZING", [], None)  # type: ignore[arg-type]  # it is asked nothing

    def cancel(self, job: str) -> str:
        self.sent.append(("cancel", job))
        self.job("JobStateChanged", job, self.wall_ms, status="CANCELLING", cause=None)
        return "CANCELLING"

    def block(self, host: str, for_ms: int | None, reason: str, *, evacuate: bool, by: str) -> BlockedHostInfo:
        if host == "full":
            raise Refused("100 hosts are blocked, the most there may be: unblock one first")
        self.sent.append(("block", (host, for_ms, reason, evacuate, by)))
        until_ms = None if for_ms is None else self.wall_ms + for_ms
        told = BlockedHost(host=host, since_ms=self.wall_ms, until_ms=until_ms, by=by, reason=reason, evacuate=evacuate)
        self.say("cluster.events", "BlocklistChanged", self.wall_ms, ("blocklist",), hosts=[told.model_dump()])
        return BlockedHostInfo(**told.model_dump(), task_managers=1, slots=4, busy=3)

    def unblock(self, host: str) -> bool:
        self.sent.append(("unblock", host))
        self.say("cluster.events", "BlocklistChanged", self.wall_ms, ("blocklist",), hosts=[])
        return True

    def deregister(self, undo: bool) -> int:
        self.sent.append(("register" if undo else "deregister", None))
        return 2

    def shut_down(self) -> ShutDown:
        self.sent.append(("shut down", None))
        return ShutDown(step="SUSPENDING", since_ms=self.wall_ms, live=9, suspended=2, workers=1, silent=["job-master/2"])

    def close(self) -> None: ...

    def stored(self, key: str) -> Entry | None:
        if key != f"jobs/{RUNNING}":
            return None
        value = StoredJob(state="accepted", digest="", acceptance="a", shard=0, accepted_ms=1, graph=GRAPH)
        return Entry(key, json.dumps(value.model_dump(mode="json")).encode(), 1, 1)

    def app(self, follows: Follows | None = None, login: Any = None, access: Any = None, host: str = "127.0.0.1") -> FastAPI:
        commands = Commands(lambda: self)  # type: ignore[arg-type,return-value]  # it has what is called
        processes = Processes(commands, self.storage)

        def state() -> Follows:
            return follows or Follows("", 0.4)

        screens = page(self.view, state, commands, processes, self.stored, "default", "", login)
        return application(self.view, state, commands, host, page=screens, login=login, access=access, processes=processes)
