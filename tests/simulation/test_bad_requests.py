"""Requests that cannot be carried out: of each class, in each kind of trouble. Each is answered once and in time, and no process ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.core.messages import base, client, requirements, schedules
from millrace.core.messages.requests import REQUESTS
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER
from tests.simulation import workload
from tests.simulation.behaviour import Behaviour, Timing
from tests.simulation.cluster import Cluster
from tests.simulation.trial import quiet_logs
from tests.simulation.world import PREFIX

REQUESTS = [kind for kind in REQUESTS if kind is not client.ShutDownCluster]  # that one ends the cluster
FIELDS: dict[str, Any] = {
    "graph": workload.single("new"), "task_manager": "1", "log": "log", "host": "host-9", "schedule": "new", "cron": "0 3 * * *",
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 2**63, -(2**63) - 1, 1.5, 1e308, "", "x", "\ud800", "\x00", "é" * 300, "x" * 70_000, "../../etc/passwd",
    [], [[]], ["x"], {}, {"x": 1}, {"v": 10**9},
)  # fmt: skip
JOBS = ("live", "ended", "unknown")
RM, JM, TM = f"{RESOURCE_MANAGER}#1", f"{JOB_MASTER}#1", f"{TASK_MANAGER}/1"
DOWN = {RM: RESOURCE_MANAGER, JM: f"{JOB_MASTER}/0", TM: TM, "etcd": "etcd"}
"""What is taken down, and how it is named in answers."""
ANSWERED_MS = 5_200
UNANSWERED = {
    **{(client.AwaitJobResult, "live", down): "the job has not ended" for down in (*DOWN, "")},
}
"""Request, job that it is about, what is down -> why it has no answer."""


def cluster() -> Cluster:
    """One job runs and does not end, one has ended."""
    quiet_logs()
    timing = Timing(unanswered=0.0)
    made = Cluster(seed=1, script=lambda spec: Behaviour("hang" if spec["job"] == "live" else "finish"), timing=timing)
    made.run(made.ready, most_ms=20_000)
    for job in ("ended", "live"):
        made.client.submit(job, workload.single(job))
    made.run(lambda: made.ended("ended"), most_ms=20_000)
    made.run(most_ms=1_000)
    return made


def asked(kind: type[base.Request], job: str) -> dict[str, Any]:
    """The fields that it must have. A submission is of a new job."""
    given = {**FIELDS, "job": f"new-{job}-{kind.__name__}" if kind in (client.SubmitJob, schedules.RunSchedule) else job}
    needed = {name: value for name, value in given.items() if name in kind.model_fields and kind.model_fields[name].is_required()}
    return {**needed, "parallelism": 2} if kind is requirements.UpdateRequirements else needed


def timed(made: Cluster, kind: type[base.Request], job: str) -> dict[str, Any]:
    """A submission has a time of its own."""
    return {**asked(kind, job), **({"accept_before_ms": made.world.clock.now_ms() + 4_000} if kind is client.SubmitJob else {})}


def answers(made: Cluster) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    """Correlation -> (when, what)."""
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for record in made.world.broker.log("client.replies", made.world.topology.partition("client.replies", made.client.name)).records:
        reply = json.loads(record.value)
        found.setdefault(reply["correlation"], []).append((record.stamp_ms, reply))
    return found


def test_whatever_a_field_holds_the_request_is_answered_or_parked_and_no_process_ends() -> None:
    made, sent = cluster(), dict[int, str]()
    log = made.world.broker.log("client.commands", 0)
    for kind in REQUESTS:
        for name in ("unheard_of", *(each for each in kind.model_fields if each not in ("reply_to", "correlation"))):
            made.client.ask(client.ListJobs)  # what is no request shares its letter, where too many come in a row
            for value in VALUES:
                own = {"type": kind.__name__, "version": 1, "reply_to": made.client.name, "correlation": f"bad-{len(sent)}"}
                sent[log.end] = f"bad-{len(sent)}"
                made.client.send(json.dumps({**own, **asked(kind, "unknown"), name: value}).encode())
            made.run(most_ms=300)
    made.run(most_ms=5_000)
    assert len(sent) > 2_000
    replies = answers(made)
    letters = [json.loads(record.value)["offset"] for record in made.world.broker.log("dead-letters", 0).records]
    assert len(letters) == len({*letters}) and {*letters} <= {*sent}
    wrong = [offset for offset, each in sent.items() if len(replies.get(each, ())) + (offset in {*letters}) != 1]
    assert wrong == [], [log.records[offset].value[:200] for offset in wrong[:5]]
    assert not [each for several in replies.values() for _, each in several if each.get("kind") == "internal"]
    assert all(each.alive for each in made.processes.values()) and made.leader(DISPATCHER) is not None
    assert not made.world.etcd.entries(f"{PREFIX}parked/"), "and none had to be passed over"


@pytest.mark.parametrize("down", [*DOWN, ""])
def test_each_request_is_answered_once_and_in_time_whatever_is_down(down: str) -> None:
    """About a job that runs, one that has ended, and one that there is not; each is sent twice."""
    for job in JOBS:
        made = cluster()
        if down == "etcd":
            made.world.etcd.pause()
        elif down:
            made.kill(down)
        made.run(most_ms=300)
        kinds = [kind for kind in REQUESTS if (kind, job) != (client.CancelJob, "live")]  # those behind it would be about an ended one
        began_ms = made.world.clock.now_ms()
        kinds += [kind for kind in kinds if kind is not client.AwaitJobResult]  # of two of those the newer one is answered
        sent = [(kind, made.client.ask(kind, **timed(made, kind, job))) for kind in kinds]
        made.run(most_ms=2 * ANSWERED_MS)
        found = answers(made)
        for kind, correlation in sent:
            got = found.get(correlation, [])
            if (kind, job, down) in UNANSWERED:
                assert not [each for _, each in got if each["type"] != "RequestRefused"], (kind, got)
                continue
            assert len(got) == 1, (kind, job, got)
            [(at_ms, reply)] = got
            assert at_ms - began_ms <= ANSWERED_MS, (kind, job, at_ms - began_ms)
            assert reply.get("kind") != "internal" and reply.get("silent") in (None, DOWN.get(down)), (kind, job, reply)
