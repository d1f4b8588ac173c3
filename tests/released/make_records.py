"""Prints records of inboxes, and effects, as 0.1.0 wrote them, by its own recordings and its own code: in a checkout of it

    python PATH_TO_THIS_FILE > PATH_TO_THE_FILE

Of each message and outcome it prints what was recorded, each shape once; then what jobs of `make_snapshots.py` lead to; then one value of
each that neither has.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, "shared")
sys.path.insert(0, ".")

from millrace.core.machine import Do, Say
from millrace.core.messages import LINKS, effects, jobs
from millrace.core.messages.records import Client, Elected, Forked, Hello, Message, Outcome, Probe, Tick, encode
from millrace.core.messages.requests import REQUESTS
from services.dispatcher.core import retirement
from tests.core import of_job_master
from tests.core.of_job_master import ONE, PLANNED, REPORT, RM, SINK, TM, TWO, Shard
from tests.core.of_messages import one_of

RECORDED = [Path("examples/incidents/leader-killed.zip"), *sorted(Path("tests/replay/recordings").glob("*.zip"))]
MESSAGES = {body: sender for (sender, _), bodies in LINKS.items() for body in bodies} | {Hello: "dispatcher", Forked: "dispatcher"}
FATAL = {"kind": "user", "retryable": False, "message": "boom", "detail": "a stack trace", "file": "job.py", "line": 3}
DEAD = {"kind": "infrastructure", "retryable": True, "message": "the JVM ended"}
OF_TASK_MANAGERS = (*effects.EFFECTS_OF["task-manager"], *effects.EFFECTS_OF["task-manager"].values())


def recorded() -> Iterator[bytes]:
    for path in RECORDED:
        with zipfile.ZipFile(path) as file:
            for name in sorted(file.namelist()):
                if name.startswith("logs/") and ".commands/" in name and not name.startswith("logs/client."):
                    yield from (line.split(b"\t", 4)[4] for line in file.read(name).splitlines())


def from_jobs() -> Iterator[bytes]:
    """What a shard sends and does for jobs that end in each way."""
    made, said = Shard(), []
    for job, graph, allocations in (
        ("one", ONE, 1), ("two", TWO, 2), ("sink", SINK, 1), ("planned", PLANNED, 2), ("failed", ONE, 1),
        ("moved", ONE, 1), ("queued", TWO, 0),
    ):  # fmt: skip
        said += made.start({**graph, "name": job}, job)
        for number in range(1, allocations + 1):
            said += made.offer(f"{job}.{number}", job=job)
    said += made(jobs.JobQueued(job="queued", reason="no free slot", position=1), RM)
    said += made(jobs.DescribeStartedJob(job="failed", reply_to="c", correlation="1"))
    said += made.told("one.1", "FINISHED", report={**REPORT, "result": {"columns": ["a"], "types": ["int"], "rows": [[1]]}})
    said += made.told("two.1", "FAILED", error={**of_job_master.USER, "detail": "a stack trace"})
    said += made.told("failed.1", "FAILED", error=FATAL)
    said += made.told("moved.1", "FAILED", error=DEAD)
    said += made.told("sink.1", "FINISHED", report={"outputs": {}})
    said += made(effects.SinkPublished(job="sink", vertex="out"), "")
    said += made(jobs.CancelStartedJob(job="queued"))
    said += made(jobs.TaskManagerLost(task_manager=TM, incarnation=1, reason="silent"), RM)
    for index, output in enumerate(said):
        if isinstance(output, Say):
            yield encode(message(output.body, "job-master/0", output.to, index))
            if isinstance(output.body, jobs.JobEnded):
                yield encode(end_job(output.body))
        elif isinstance(output, Do):
            yield encode(output.effect)


def end_job(ended: jobs.JobEnded) -> effects.EndJob:
    """What the Dispatcher does about it."""
    about: dict[str, Any] = {"name": ended.job, "accepted_ms": 500}
    path = retirement.archive_path(ended.job, ended.acceptance, "1.7")
    ending = retirement.ending(ended, digest="d", shard=0, path=path, **about)
    return effects.EndJob(job=ended.job, ending=ending, archive=retirement.archive(ended, graph=ONE, **about))


def message(body: Any, sender: str, to: str, index: int = 0) -> Message:
    return Message(to=to, to_life=1, sender=sender, life=2, key=(100, index), prev=(99, 0), body=body)


def missing(seen: set[str]) -> Iterator[bytes]:
    stored = effects.StoredJob(
        state="dirty", digest="d", acceptance="1.2", shard=0, accepted_ms=5, name="one", status="FAILED", ended_ms=9,
        archive="archives/one", cause=FATAL, staging=["staging/one"],
    )  # fmt: skip
    made = {
        effects.JobFound: effects.JobFound(job="one", stands=stored),
        effects.JobResultStored: effects.JobResultStored(job="one", stands=stored),
        effects.JobsRecovered: effects.JobsRecovered(jobs={"one": stored}, through="5/one"),
        effects.PutJobGraph: effects.PutJobGraph(
            job="one", accept_before_ms=7, stored=stored.model_copy(update={"state": "accepted", "graph": ONE, "cause": None})
        ),
        effects.CleanJob: effects.CleanJob(job="one", tombstone=stored, exchange="file:///x/one", staging=["staging/one"]),
    }  # fmt: skip
    for outcome in (effects.JobFound, effects.JobResultStored, effects.JobsRecovered):
        yield encode(Outcome(effect="1.5.0", result=made[outcome]))
    for effect in effects.EFFECTS:
        if effect not in OF_TASK_MANAGERS and effect.__name__ not in seen:
            yield encode(made.get(effect) or one_of(effect))
    for outcome in effects.OUTCOMES:
        if outcome not in OF_TASK_MANAGERS and outcome not in made and outcome.__name__ not in seen:
            yield encode(Outcome(effect="1.5.0", result=one_of(outcome)))
    for body, sender in MESSAGES.items():
        if body.__name__ not in seen:
            yield encode(message(one_of(body), sender, "dispatcher"))
    for request in REQUESTS:
        if request.__name__ not in seen:
            yield encode(Client(log="l", prev=-1, offset=0, request=one_of(request)))
    yield encode(one_of(Client).model_copy(update={"request": None, "graph": None, "digest": None, "problems": [], "warnings": []}))
    yield from (encode(one_of(record)) for record in (Elected, Tick, Probe))


def shape(value: Any) -> Any:
    """What a value is made of: names of fields, and kinds of what is in them."""
    if isinstance(value, dict):
        return tuple((name, value[name] if name == "type" else shape(inner)) for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return tuple(sorted({repr(shape(each)) for each in value}))
    return type(value).__name__


def main() -> None:
    shapes: set[Any] = set()
    seen: set[str] = set()
    for source in (recorded(), from_jobs(), missing(seen)):
        for line in source:
            value = json.loads(line)
            body = value.get("body") or value.get("result") or value.get("request") or value
            if shape(value) not in shapes and len(line) < 20_000:
                shapes.add(shape(value))
                seen.add(body.get("type", ""))
                print(line.decode())


if __name__ == "__main__":
    main()
