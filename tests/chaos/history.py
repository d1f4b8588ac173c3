"""What was recorded of a run, and the checks that it must pass. Pure: tested with histories that are wrong.

A fact that a new leader says again carries the same count and the same words [R16]; who counts facts counts it once.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
ENDINGS = {"JobFinished": "FINISHED", "JobFailed": "FAILED", "JobCanceled": "CANCELED"}
LOST = ("lost",)  # kinds of an error that is the TaskManager's end, and not the attempt's own
INSTANT_S = 1.0  # in which a TaskManager that was stopped and wakes may still have its attempt [R28]


HOSTILE = "hostile-"  # so begin ids of jobs, and correlations, of whom nothing good is meant
FLOOD = "a flood"  # many at once that are no requests: one letter tells of several
FLOOD_LETTERS = 3  # at least so many have one letter, all together
KILLS = {"leader killed": -9, "leader or standby killed": -9, "TaskManager killed": -9, "agent killed": -9, "leader asked to end": -15}
AGAIN = 75  # exit code of a TaskManager that begins anew: it was declared lost, or fenced itself
CONSEQUENCES = ("cannot be delivered", "the producer ended")
"""What a service says that ends for its broker's death: of a session with a hole nothing must follow."""


@dataclass(frozen=True)
class End:
    """Of a process that nobody asked for by `millrace`. `code`: as of a child, negative for a signal; 0 of Kafka and etcd. `words`:
    its last, of one that failed."""

    name: str
    code: int
    words: str = ""


@dataclass
class Sent:
    """A hostile record, its hash, the correlation of its answer ("": a letter is its answer) and the job that it may begin. It was
    taken (at `offset`), refused by Kafka, or that is unknown."""

    kind: str
    sha256: str
    correlation: str = ""
    job: str = ""
    became: str = "unknown"
    offset: int = -1


@dataclass
class History:
    """`answers`: job -> accepted, refused or unknown, as its client was told; `graphs` of those jobs alone were submitted.
    `stored`: job -> value of its key in etcd at the end. `events`: those of job.events, ordered for each job.
    `two_at_once`: what attempts found that met another one; `woken`: process -> when it was woken (monotonic seconds)."""

    answers: Mapping[str, str]
    stored: Mapping[str, dict[str, Any]]
    events: Sequence[Event]
    failures: Mapping[str, int]
    """Job -> how often its attempts fail by themselves."""
    cancels: Mapping[str, bool] = field(default_factory=dict)
    """Jobs whose cancel was asked."""
    dead_letters: Sequence[Mapping[str, Any]] = ()
    two_at_once: Sequence[Mapping[str, Any]] = ()
    woken: Mapping[int, float] = field(default_factory=dict)
    hostile: Sequence[Sent] = ()
    replied: Mapping[str, str] = field(default_factory=dict)
    """Correlation -> type of its answer on client.replies."""
    ends: Sequence[End] = ()
    faults: Sequence[tuple[str, str]] = ()
    """(kind, what it was done to), of all that was done."""
    crowds: Sequence[str] = ()
    """Moments at which more TaskManagers ran than may, or two of one id."""


@dataclass
class Verdict:
    """What the checks found. Each violation is a sentence with its evidence."""

    submitted: int
    accepted: int
    ended: int
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    moved: int = 0
    """Attempts that were started again elsewhere, for their TaskManager was lost."""

    @property
    def violations(self) -> list[str]:
        return [*self.lost, *self.doubled, *self.wrong]


def judge(history: History) -> Verdict:
    by_job = _facts(history.events)
    stored = history.stored
    verdict = Verdict(
        submitted=len(history.answers),
        accepted=len(stored),
        ended=sum(each["state"] != "accepted" for each in stored.values()),
    )
    for job, answer in history.answers.items():
        if answer == "accepted" and job not in stored:
            verdict.lost.append(f"{job} was accepted and is not in etcd")
        elif answer == "refused" and job in stored:
            verdict.wrong.append(f"{job} was refused and is in etcd: {_brief(stored[job])}")
    for job, value in stored.items():
        _judge_end(verdict, history, job, value, by_job.get(job, []))
    for job, events in by_job.items():
        if job not in stored:
            verdict.wrong.append(f"{job} has events and is not in etcd: {events[:3]}")
        _judge_attempts(verdict, history, job, events)
    for each in history.hostile:
        if history.replied.get(each.correlation) == "JobAcceptedReply" and each.job not in stored:
            verdict.lost.append(f"{each.job} was accepted and is not in etcd")
    verdict.lost += unheard(history.hostile, history.replied, history.dead_letters)
    verdict.wrong += _letters(history.hostile, history.dead_letters)
    verdict.wrong += [*_uncaused(history.ends, history.faults), *history.crowds]
    for each in history.two_at_once:
        woken_s = history.woken.get(each["other_pid"])
        if woken_s is None or not 0 <= each["at_s"] - woken_s <= INSTANT_S:
            verdict.doubled.append(f"two attempts of a subtask lived at once: {each}")
    return verdict


def unheard(hostile: Sequence[Sent], replied: Mapping[str, str], letters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Hostile requests that Kafka took, and of which nobody has heard again."""
    parked: set[int] = set()
    for letter in letters:
        several = re.search(r"those from offset (\d+) on|offsets (\d+) to", letter["reason"])
        parked.update(range(int(several[1] or several[2]) if several else letter["offset"], letter["offset"] + 1))
    waiting = [each for each in hostile if each.became == "taken" and each.offset not in parked and each.correlation not in replied]
    return [f"a hostile request was neither answered nor parked: {each}" for each in waiting]


def _letters(hostile: Sequence[Sent], letters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each is of a hostile record, and a flood has few."""
    kinds = {each.offset: each.kind for each in hostile if each.became == "taken"}
    hashes = {each.sha256: each.kind for each in hostile if each.became == "unknown"}
    told: dict[int, str] = {}
    for letter in letters:
        kind = kinds.get(letter["offset"]) or hashes.get(letter["sha256"])
        if kind is None or letter["topic"] != "client.commands":
            yield f"a record could not be used: {letter}"
        else:
            told[letter["offset"]] = kind
    sent, parked = Counter(each.kind for each in hostile)[FLOOD], list(told.values()).count(FLOOD)
    if parked * FLOOD_LETTERS > sent:
        yield f"{parked} letters tell of floods of {sent} records in all"


def _uncaused(ends: Sequence[End], faults: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Processes that ended though nobody killed them or asked them to, and for no reason that a fault explains. That of an input is never
    one. One that is killed while it stops ends once for two faults."""
    killed: Counter[tuple[str, int]] = Counter()
    for kind, what in faults:
        if kind in KILLS:
            killed[what.partition(",")[0], KILLS[kind]] += 1
        elif kind in ("Kafka killed", "etcd killed"):
            killed[kind.partition(" ")[0], 0] += 1
    for end in ends:
        asked = end.code == 0 and end.name not in ("Kafka", "etcd")  # else it was asked before it could hear
        cause = (end.name, -15 if asked else end.code)
        killed[cause] -= 1
        explained = end.code == AGAIN or any(words in end.words for words in CONSEQUENCES)
        if killed[cause] < 0 and not explained:
            yield f"a process ended by itself: {end}"


def _facts(events: Sequence[Event]) -> dict[str, list[Event]]:
    """Each job's facts in order, those said again left out. Same count and other words stay in: a contradiction."""
    found: dict[str, list[Event]] = defaultdict(list)
    seen: set[str] = set()
    for event in events:
        words = json.dumps(event, sort_keys=True)
        if words not in seen:
            seen.add(words)
            found[event["job"]].append(event)
    return found


def _judge_end(
    verdict: Verdict, history: History, job: str, value: dict[str, Any], events: Sequence[Event]
) -> None:
    """I3, I4: one acceptance, one ending, the same in etcd and in public; and the one that its graph leads to."""
    kinds = [event["type"] for event in events]
    if value["state"] != "clean":
        verdict.lost.append(f"{job} has not ended, or was not cleaned up: {_brief(value)}, events {kinds}")
        return
    endings = [kind for kind in kinds if kind in ENDINGS]
    if len(endings) != 1 or kinds.count("JobAccepted") != 1:
        verdict.doubled.append(f"{job} has the events {kinds}, and in etcd {_brief(value)}")
    elif ENDINGS[endings[0]] != value["status"]:
        verdict.wrong.append(f"{job} ended {value['status']} in etcd and {endings[0]} in public")
    right = {"FINISHED", "CANCELED"} if job in history.cancels else {"FINISHED"}
    if job.startswith(HOSTILE):
        right = set(ENDINGS.values())  # any, but one
    if value["status"] not in right:
        verdict.wrong.append(f"{job} ended {value['status']}, which nobody asked for: {value.get('cause')}")
    repeated = [kind for kind in ENDINGS if sum(e["type"] == kind for e in events) > 1]
    if repeated:
        verdict.doubled.append(f"{job} said its end more than once, in other words: {repeated}")


def _judge_attempts(verdict: Verdict, history: History, job: str, events: Sequence[Event]) -> None:
    """I7: numbers rise, nothing is heard of an attempt behind its successor, one of them finishes."""
    subtasks: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["type"] == "AttemptStateChanged":
            subtasks[event["task"], event["subtask"]].append(event)
    finished_job = any(event["type"] == "JobFinished" for event in events)
    for (task, subtask), its in subtasks.items():
        where, told = f"{job}, subtask {subtask} of {task}", [(each["attempt"], each["state"]) for each in its]
        numbers = [number for number, _ in told]
        if numbers != sorted(numbers) or sorted(set(numbers)) != list(range(1, max(numbers) + 1)):
            verdict.wrong.append(f"{where}: attempts out of order: {told}")
        finished = [number for number, state in told if state == "FINISHED"]
        if len(finished) > 1 or (finished and finished != [max(numbers)]):
            verdict.doubled.append(f"{where}: more than one attempt counts: {told}")
        if finished_job and not finished:
            verdict.wrong.append(f"{where}: the job is FINISHED without it: {told}")
        errors = [each["error"] or {} for each in its if each["state"] == "FAILED"]
        own = [error for error in errors if error.get("kind") not in LOST]
        if len(own) > history.failures.get(job, 0) and not job.startswith(HOSTILE):
            verdict.wrong.append(f"{where}: {history.failures.get(job, 0)} attempts were to fail: {own}")
        verdict.moved += len(errors) - len(own)


def _brief(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.get(key) for key in ("state", "status", "acceptance", "accepted_ms", "ended_ms")}
