"""One run: a stack with standbys under load and faults, then peace, then the checks of what was recorded."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from deploy.local.etcd import find_etcd
from deploy.local.stack import Options, Stack
from millrace.client import Millrace, MillraceError
from millrace.core.topics import TOPICS, Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Unavailable
from millrace.io.kafka.logs import KafkaLogs
from millrace.io.storage.store import Storage
from services.replay.core.checking import explain
from services.replay.core.folding import Broken
from services.replay.core.recorded import BadLog
from services.replay.exporting import export
from services.replay.live import Live
from services.replay.replaying import verify
from tests.task_manager.timed import TWO_AT_ONCE

from .agents import Agents
from .ends import Ends
from .faults import Faults
from .history import HOSTILE, History, Verdict, judge, unheard
from .hostile import Hostile
from .load import CALM, DENSE, Load
from .task_managers import Kept, TaskManagers

SHARDS, TASK_MANAGERS, SLOTS = 2, 2, 4
PEACE_S = 90.0
"""Within which, after the last fault, every service must be back, and then one accepted job after the other must end."""
Say = Callable[[str], None]

patient = retry(retry=retry_if_exception_type(Unavailable), stop=stop_after_delay(PEACE_S), wait=wait_fixed(0.5), reraise=True)
"""Of what asks Kafka afterwards: a broker that was killed just now, or that is out of breath, is given time."""


def run(
    minutes: float, seed: int, spark: bool, say: Say, keep: bool = False, jobs: int = 0, record: Path | None = None, grows: bool = False
) -> bool:
    """Whether nothing was violated. Prints what happened by `say`. `jobs`: it goes on until so many were accepted. `record`: the
    file that all logs are exported to. `grows`: agents start and stop TaskManagers."""
    stack = Stack("chaos")
    stack.down(purge=True)
    options = Options(task_managers=TASK_MANAGERS if spark else 0, slots=2 if spark or grows else 1, shards=SHARDS, standbys=1)
    passed = False
    ends = Ends(stack)
    count, slots = 0 if spark else TASK_MANAGERS, 4 * SLOTS if jobs else SLOTS
    kept = Agents(stack, ends.note) if grows else TaskManagers(stack, count, slots, ends.note)
    try:
        with mock.patch.dict(os.environ, kept.settings() if isinstance(kept, Agents) else {}):
            stack.up(options, say, foreground=True)
        with ends, kept:
            passed = _run(stack, kept, ends, minutes, seed, spark, say, jobs, record)
        return passed
    finally:
        if keep or not passed:
            stack.down()
            say(f"everything is left in {stack.folder}")
        else:
            stack.down(purge=True)


def _run(
    stack: Stack, kept: Kept, ends: Ends, minutes: float, seed: int, spark: bool, say: Say, jobs: int, record: Path | None
) -> bool:
    facts = stack.facts()
    store = EtcdStore(facts["etcd_endpoint"], "/millrace/default/")
    scopes = Topology(shards=SHARDS).scopes()
    _await("every replica", lambda: is_whole(stack, scopes))
    kill_etcd = find_etcd().crash_safe
    if not kill_etcd:
        say("note: this etcd may lose writes when it is killed, so it is asked to end instead: see 'make etcd'")

    def task_managers() -> dict[str, int]:
        if isinstance(kept, Agents):
            return dict(kept.running())
        if not spark:
            return kept.pids()
        services = stack.facts()["services"]
        return {name: each["pid"] for name, each in services.items() if name.startswith("task-manager")}

    agents = kept if isinstance(kept, Agents) else None
    faults = Faults(stack, store, scopes, task_managers, agents.pids if agents else None, kill_etcd, seed, say)
    load = Load(facts["kafka_bootstrap"], seed, DENSE if jobs else CALM)
    hostile = Hostile(facts["kafka_bootstrap"], seed, spark)
    with load, hostile:
        until_s = time.monotonic() + minutes * 60
        faults.run(
            over=lambda: time.monotonic() > until_s and len(load.accepted) >= jobs,
            rest=lambda: _rest(stack, scopes),
        )
        faults.heal()
        say("peace: every job must end now")
    problems = [*load.errors, *hostile.errors]
    peace_s = time.monotonic()
    kafka = facts["kafka_bootstrap"]
    problems += _come_to_rest(stack, store, scopes, hostile)
    if agents is not None:
        problems += _not_settled(agents, store, kafka)
    say(f"at rest after {time.monotonic() - peace_s:.1f} s")
    replied, letters = _answers(kafka)
    history = History(
        answers=load.answers,
        stored=_stored(store),
        events=topic_records(kafka, "job.events", SHARDS),
        failures=load.failures if not spark else {},
        cancels=load.cancels,
        dead_letters=letters,
        two_at_once=_lines(kept.lives / TWO_AT_ONCE),
        woken=faults.woken,
        hostile=hostile.sent,
        replied=replied,
        ends=ends.seen,
        faults=[(fault.kind, fault.what) for fault in faults.done],
        crowds=agents.crowds if agents is not None else (),
    )
    verdict = judge(history)
    _tell(verdict, faults, load, say)
    _tell_of_strangers(history, say)
    if agents is not None:
        _tell_of_workers(kafka, say)
    problems += _replayed(facts, record, say)  # which takes long where there was much
    for each in (*problems, *verdict.violations):
        say(f"VIOLATION: {each}")
    store.close()
    return not (problems or verdict.violations) and "accepted" in load.answers.values()


def _come_to_rest(stack: Stack, store: EtcdStore, scopes: Sequence[str], hostile: Hostile) -> list[str]:
    """What does not, in PEACE_S each."""
    kafka, problems = stack.facts()["kafka_bootstrap"], []
    for what, found in (
        ("every replica to be back", lambda: is_whole(stack, scopes)),
        ("another accepted job to end", lambda: _all_ended(store, hostile)),
        ("an answer to every hostile request", lambda: not unheard(hostile.sent, *_answers(kafka))),
    ):
        try:
            _await(what, found, PEACE_S, lambda: _left(store))
        except TimeoutError as failure:
            problems.append(str(failure))
    return problems


@patient
def _replayed(facts: dict[str, Any], record: Path | None, say: Say) -> list[str]:
    """What is wrong with the inboxes, folded again: they must lead to what was said then."""
    kafka = KafkaLogs(facts["kafka_bootstrap"], client_id="chaos")
    store = EtcdStore(facts["etcd_endpoint"], "/millrace/default/")
    source = Live(kafka, store, Storage(facts["storage"]), "default")
    try:
        report = verify(source, None, lambda *_: None)
        folded = sum(each.records for each in report.scopes)
        compared = sum(len(each.found) for each in report.scopes)
        say(f"folded again: {folded:,} records, {compared:,} words compared, {'1 or more' if report.difference else 0} differences")
        if record is not None:
            export(source, record, None, False, lambda *_: None)
        if report.difference is None:
            return []
        checked, difference = report.difference
        return [f"replay of {checked.scope}: {'; '.join(explain(difference, report.cause, report.now))}"]
    except (BadLog, Broken) as failure:
        return [f"replay: {failure}"]
    finally:
        source.close()


@patient
def _stored(store: EtcdStore) -> dict[str, dict[str, Any]]:
    """Job -> the value of its key."""
    return {each.key.removeprefix("jobs/"): json.loads(each.value) for each in store.list("jobs/")[0]}


def _rest(stack: Stack, scopes: tuple[str, ...]) -> None:
    """The cluster comes to be whole, or has had its time for it; that it does so in the end is asked at peace."""
    with contextlib.suppress(TimeoutError):
        _await("every replica", lambda: is_whole(stack, scopes), PEACE_S)


def is_whole(stack: Stack, scopes: tuple[str, ...]) -> bool:
    """Each scope has its leader and its standby, and all services are well."""
    health = [each["health"] or {} for each in stack.status()["services"].values()]
    roles = sorted((scope["scope"], scope["role"]) for each in health for scope in each.get("scopes", ()))
    wanted = sorted((scope, role) for scope in scopes for role in ("leader", "standby"))
    return roles == wanted and all(each.get("status") == "ok" for each in health)


def _not_settled(agents: Agents, store: EtcdStore, kafka: str) -> Iterator[str]:
    """What is wrong with the TaskManagers in the end."""
    last = ""

    def settled() -> bool:
        nonlocal last
        try:
            last = agents.problem(store, client)
        except (Unavailable, MillraceError, OSError) as failure:
            last = f"{type(failure).__name__}: {failure}"
        return not last

    with Millrace(kafka, timeout_s=60) as client:
        try:
            _await("the TaskManagers that are kept, and no other", settled, PEACE_S)
        except TimeoutError as failure:
            yield f"{failure}: {last}"


def _left(store: EtcdStore) -> int:
    """Jobs that have not ended; -1: etcd does not answer."""
    with contextlib.suppress(Unavailable):
        return sum(json.loads(each.value)["state"] != "clean" for each in store.list("jobs/")[0])
    return -1


def _all_ended(store: EtcdStore, hostile: Hostile) -> bool:
    """What strangers began is canceled: some of it would last for long."""
    with contextlib.suppress(Unavailable):
        left = [each.key.removeprefix("jobs/") for each in store.list("jobs/")[0] if json.loads(each.value)["state"] != "clean"]
        hostile.cancel([job for job in left if job.startswith(HOSTILE)])
        return not left
    return False


def _await(what: str, found: Callable[[], bool], limit_s: float = 60.0, left: Callable[[], int] = lambda: 0) -> None:
    """Waits as long as `left` goes down within the limit, again and again: a queue may be long."""
    deadline_s, least = time.monotonic() + limit_s, left()
    while not found():
        now = left()
        if now < least:
            deadline_s, least = time.monotonic() + limit_s, now
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {limit_s:.0f} s in vain for {what}")
        time.sleep(0.1)


@patient
def topic_records(bootstrap: str, name: str, shards: int) -> list[dict[str, Any]]:
    """All that a public topic holds, partition by partition."""
    logs = KafkaLogs(bootstrap, client_id="chaos")
    topic = next(each for each in TOPICS if each.name == name)
    found: list[dict[str, Any]] = []
    for partition in range(topic.count(Topology(shards=shards))):
        at, end = logs.offsets(name, partition)
        with contextlib.closing(logs.reader(name, partition, at)) as reader:
            while at < end:
                for received in reader.poll(1_000):
                    at = received.offset + 1
                    found.append(json.loads(received.value))
    return found


def _answers(bootstrap: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """What hostile requests were replied, and all dead letters."""
    replies = [each for each in topic_records(bootstrap, "client.replies", SHARDS) if each["correlation"].startswith(HOSTILE)]
    return {each["correlation"]: each["type"] for each in replies}, topic_records(bootstrap, "dead-letters", SHARDS)


def _tell_of_strangers(history: History, say: Say) -> None:
    became: dict[str, Counter[str]] = defaultdict(Counter)
    for each in history.hostile:
        became[each.kind][history.replied.get(each.correlation, each.became)] += 1
    for kind, ways in sorted(became.items()):
        say(f"hostile: {kind} {dict(ways)}")
    jobs = Counter(value.get("status") or value["state"] for job, value in history.stored.items() if job.startswith(HOSTILE))
    letters = len({each["offset"] for each in history.dead_letters})
    say(f"of {len(history.hostile)} hostile records: {len(history.replied)} answered, {letters} dead letters, jobs {dict(jobs)}")
    told = Counter(f"{end.name}, exit code {end.code}{f' ({end.words})' if end.words else ''}" for end in history.ends if end.code > 0)
    say(f"ends of processes {len(history.ends)}, of which by their own code: {dict(told) or 'none'}")


def _tell_of_workers(kafka: str, say: Say) -> None:
    changes = {each["count"]: each for each in topic_records(kafka, "cluster.events", SHARDS) if each["type"] == "WorkerChanged"}
    say(f"TaskManagers that come and go: {dict(Counter(each['state'] for each in changes.values()))}")
    why = Counter(each["reason"].partition(":")[0] for each in changes.values() if each["state"] == "STOPPING")
    say(f"they were stopped for: {dict(why)}")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _tell(verdict: Verdict, faults: Faults, load: Load, say: Say) -> None:
    done = faults.done
    ways = Counter(load.answers.values())
    say(f"faults {len(done)}: {dict(Counter(fault.kind for fault in done))}")
    say(f"jobs submitted {verdict.submitted} ({dict(ways)}), accepted {verdict.accepted}, ended {verdict.ended}")
    say(f"lost {len(verdict.lost)}, doubled {len(verdict.doubled)}, otherwise wrong {len(verdict.wrong)}")
    say(f"attempts moved from a lost TaskManager {verdict.moved}")
    untouched = sorted({fault.kind for fault in done} ^ set(faults.kinds))
    if untouched:
        say(f"note: not drawn this time, or not possible: {', '.join(untouched)}")
    recovered: dict[str, list[float]] = defaultdict(list)
    for fault in done:
        answered = [answered_s for sent_s, answered_s in load.accepted if sent_s >= fault.at_s]
        if answered:
            recovered[fault.kind].append(min(answered) - fault.at_s)
    for kind, times in sorted(recovered.items()):
        middle = statistics.median(times)
        say(f"{kind} -> a later submission accepted: p50 {middle:.2f} s, max {max(times):.2f} s of {len(times)}")
