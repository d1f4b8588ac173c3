"""The story of one job: the records that are about it, in all inboxes and public topics, each with the record that led to it.

Which record led to which is in the records themselves. A message carries the offset of the record that its sender folded when it
sent it. An outcome carries the offset of the record that asked for the effect; a copied request, its offset in client.commands.
Nothing is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from millrace.core.messages import client, jobs, requirements
from millrace.core.messages.requests import REPLIES, REQUESTS
from millrace.core.states import ENDED_BY
from millrace.core.topics import TASK_MANAGER, Topology

from .checking import sender_of
from .recorded import CHANGELOGS, Log, Recorded, parse, title

STEPS = (
    client.SubmitJob, client.CancelJob, client.JobAcceptedReply, client.JobRejected, client.CancelAccepted, client.RequestRefused,
    requirements.UpdateRequirements, requirements.RequirementsUpdated,
)  # fmt: skip
"""Requests and replies that are steps of a job. By all others somebody only looks."""
LOOKS = (*(each for each in (*REQUESTS, *REPLIES) if each not in STEPS), *get_args(jobs.Question))
NOISE = {
    "TaskManagerHeartbeat", "JobMasterHeartbeat", "SlotReport", "RegisterTaskManager", "Hello", "JobFound", "OrderAttempts",
    "OrderAnswered", "AttemptAnswered", "AttemptOrderSent", "SlotsProgressed", "ProgressReported", "AttemptsProgressing",
    *(each.__name__ for each in LOOKS),
}  # fmt: skip
"""Said of many jobs at once, or again and again, or only asked about a job, by anybody at any time: no step of one job."""
NAMES = ("job", "attempt", "attempts", "allocation", "allocations")
"""Fields that name a job, or what is its own. (A graph has a name, too.)"""
ALWAYS = ("Elected", "TaskManagerLost", "TaskManagerGone", "TaskManagerJoined", "WorkerChanged", "TaskManagersBlocked")
"""Of no job, but part of the story of every job that lives then."""
OUTCOMES = {
    "JobAccepted": "JobGraphStored", "JobFinished": "JobResultStored", "JobFailed": "JobResultStored", "JobCanceled": "JobResultStored",
}  # fmt: skip
ASKING = ("client.commands", "client.replies", "dead-letters")
"""Topics that name also a job that was never accepted, as copies of requests do."""


@dataclass
class Step:
    """`because`: the number of the step that led to it, or the place of a record that is not among the steps, or None: nothing
    says. `gap_ms`: since the step that led to it, else since the step before."""

    number: int
    stamp_ms: int
    since_ms: int
    gap_ms: int
    scope: str
    place: str
    type: str
    detail: str
    because: int | str | None


@dataclass
class Story:
    """`status`: how it ended, or 'not ended', or 'not accepted': no record tells that it was. `took_ms`: from the first step to the
    job's end, else to the last step."""

    job: str
    status: str
    took_ms: int
    attempts: int
    steps: list[Step] = field(default_factory=list)


class Scan:
    """Picks the records that may be about a job, by the words in their bytes. Logs are given in the order of `logs_of`: what the
    TaskManagers are told names the allocations that the other logs are searched for."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._words = [job]
        self.words = [f'"{job}{end}'.encode() for end in '"/'] + [f'"{name}"'.encode() for name in ALWAYS]

    def take(self, recorded: Recorded) -> bool:
        """Whether a record in which one of the words was found is of the story."""
        value = parse(recorded.value)
        if value is None:
            return False
        body = _body(value)
        if value.get("record") == "Message" and body.get("type") in ("AllocateSlot", "AllocateSlots") and body.get("job") == self.job:
            for each in body.get("slots") or [body]:
                self._words.append(str(each.get("allocation")))
                self.words.append(f'"{self._words[-1]}"'.encode())
        kind = value.get("record") if value.get("record") in ALWAYS else body.get("type")
        return kind in ALWAYS or (kind not in NOISE and self._names(value))

    def _names(self, value: Any, field: str = "") -> bool:
        """Whether the job, one of its attempts or one of its allocations is named anywhere in it."""
        if isinstance(value, dict):
            return any(self._names(inner, name) for name, inner in value.items())
        if isinstance(value, list):
            return any(self._names(inner, field) for inner in value)
        named = field in NAMES and isinstance(value, str)
        return named and (value in self._words or value.startswith(f"{self.job}/"))


def logs_of(job: str, logs: Iterable[Log], topology: Topology) -> list[Log]:
    """The logs that may name a job, in the order in which a `Scan` must see them."""
    events = topology.events_partition(job)
    known = [log for log in logs if log.topic not in CHANGELOGS and (log.topic != "job.events" or log.partition == events)]
    return sorted(known, key=lambda log: (not log.topic.startswith(TASK_MANAGER), log.name))


def compose(job: str, records: Iterable[Recorded]) -> Story | None:
    """The story of the job from the records that a `Scan` took, in any order; None: nothing is known of it."""
    # Of one millisecond the election comes first: who was elected then said the rest.
    found = sorted(_of_its_time(records), key=lambda each: (each.stamp_ms, title(each).type != "Elected"))
    if not found:
        return None
    causes = Causes(found)
    found = _causal(found, causes)
    places = {each.place: number for number, each in enumerate(found, 1)}
    start = found[0].stamp_ms
    accepted = any(_accepted(each) for each in found)
    story = Story(job, "not ended" if accepted else "not accepted", found[-1].stamp_ms - start, 0)
    attempts: dict[tuple[Any, ...], None] = {}
    sent: dict[str, None] = {}
    for number, each in enumerate(found, 1):
        kind, detail, sender, _ = title(each)
        cause = causes.of(each)
        known = places.get(cause) if cause else None
        before = found[known - 1] if known else found[max(number - 2, 0)]
        again = "(said again)" if sender_of(each) and each.id in sent else ""
        sent[each.id] = None
        shown = " ".join(filter(None, (f"from {sender}" if sender and sender != "client" else "", detail, again)))
        story.steps.append(Step(
            number, each.stamp_ms, each.stamp_ms - start, each.stamp_ms - before.stamp_ms, each.log, each.place, kind, shown,
            known or cause,
        ))  # fmt: skip
        value = parse(each.value) or {}
        if kind in ENDED_BY:
            story.status, story.took_ms = ENDED_BY[kind], each.stamp_ms - start
        if kind == "AttemptStateChanged":
            attempts[value.get("task"), value.get("subtask"), value.get("attempt")] = None
    story.attempts = len(attempts)
    return story


def _accepted(recorded: Recorded) -> bool:
    asked = recorded.topic in ASKING or (parse(recorded.value) or {}).get("record") == "Client"
    return not asked and title(recorded).type not in ALWAYS


def _of_its_time(records: Iterable[Recorded]) -> Iterator[Recorded]:
    """Without what was said of no job before the first or after the last record of this one."""
    taken = list(records)
    own = [each.stamp_ms for each in taken if title(each).type not in ALWAYS]
    for each in taken:
        if own and min(own) <= each.stamp_ms <= max(own):
            yield each


def _causal(found: list[Recorded], causes: Causes) -> list[Recorded]:
    """The records by time, but none before what led to it: brokers stamp in milliseconds, and two may have two clocks."""
    places = {each.place: each for each in found}
    ordered: dict[str, Recorded] = {}

    def put(each: Recorded) -> None:
        chain = [each]
        while (cause := places.get(causes.of(chain[-1]) or "")) and cause.place not in ordered and cause not in chain:
            chain.append(cause)
        for one in reversed(chain):
            ordered.setdefault(one.place, one)

    for each in found:
        put(each)
    return list(ordered.values())


class Causes:
    """Tells which record led to which, of the records of a story."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        self._sent: dict[tuple[str, int], list[tuple[int, int]]] = {}  # (scope, life) -> (sequence number, offset of the cause)
        self._inboxes: dict[str, list[Recorded]] = {}
        for each in records:
            self._inboxes.setdefault(each.log, []).append(each)
            value, sender = parse(each.value) or {}, sender_of(each)
            if sender is not None and value.get("record") == "Message":
                self._sent.setdefault(sender[:2], []).append((sender[2], value["key"][0]))
        for sent in self._sent.values():
            sent.sort()

    def of(self, recorded: Recorded) -> str | None:
        """The place of the record that led to this one; None where nothing tells."""
        value = parse(recorded.value) or {}
        kind = value.get("record")
        if kind == "Message":
            at = "'s journal " if str(value["sender"]).startswith(f"{TASK_MANAGER}/") else "@"
            return f"{value['sender']}{at}{value['key'][0]}"
        if kind == "Outcome":
            return f"{recorded.log}@{str(value.get('effect')).split('.')[1]}"
        if kind == "Client":
            return f"client.commands[{value.get('partition', 0)}]@{value.get('offset')}"
        return self._of_public(recorded, value) if kind is None else None

    def _of_public(self, recorded: Recorded, value: dict[str, Any]) -> str | None:
        """Of a public fact: what led to the messages said before and after it bounds what led to it. A job's beginning and end follow the
        outcome that stored them [R16] [R21]; the time that other facts carry is the stamp of the record that led to them."""
        sender = sender_of(recorded)
        if sender is None:
            return None
        sent = self._sent.get(sender[:2], [])
        first = max((offset for seq, offset in sent if seq < sender[2]), default=0)
        last = min((offset for seq, offset in sent if seq > sender[2]), default=None)
        if first == last:
            return f"{sender[0]}@{first}"
        outcome = OUTCOMES.get(str(value.get("type")))
        found = [
            each for each in self._inboxes.get(sender[0], ())
            if first <= each.offset and (last is None or each.offset <= last)
            and (title(each).type == outcome if outcome else each.stamp_ms == value.get("at_ms"))
        ]  # fmt: skip
        return found[0].place if len(found) == 1 else None


def _body(value: dict[str, Any]) -> dict[str, Any]:
    for name in ("body", "result", "request"):
        if isinstance(value.get(name), dict):
            return dict(value[name])
    return value
