"""What must hold of a simulated cluster that has come to rest: nothing lost, nothing doubled, nothing left over."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import fsspec

from millrace.core.faults import FAULTS, MOVE
from millrace.core.fold import Fold, Parked, ScopeState
from millrace.core.jobgraph.model import DEFAULT_LIMITS, JobGraph
from millrace.core.jobgraph.parse import Refused
from millrace.core.machine import Envelope, Machine, Output
from millrace.core.messages.client import DescribeJob, GetClusterOverview, ListTaskManagers, ReportNow
from millrace.core.messages.events import AttemptStateChanged, JobCanceled, JobFailed, JobFinished
from millrace.core.messages.jobs import TaskManagerLost
from millrace.core.messages.processes import AboutTaskManager
from millrace.core.messages.records import Key, Message, Record, decode
from millrace.core.messages.slots import AllocateSlot, AllocateSlots
from millrace.core.states import SlotState
from millrace.core.topics import DISPATCHER, INBOXES, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER
from millrace.edge import requests as intake
from millrace.runtime.parked import ENDED_MOST
from millrace.runtime.snapshots import Pointer, freeze
from services.dispatcher.core.machine import Dispatcher
from services.job_master.core.machine import JobMaster
from services.resource_manager.core.machine import ResourceManager
from services.resource_manager.core.state import DECLARE_MS
from services.task_manager.core.machine import TaskManager
from tests.simulation import placing
from tests.simulation.blocking import REQUESTS, Blocking, assert_blocklist
from tests.simulation.book import Checked
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess
from tests.simulation.repairs import assert_exchange, assert_read
from tests.simulation.rescaled import assert_rescaled
from tests.simulation.sharing import Sharing
from tests.simulation.task_manager import TaskManagerProcess
from tests.simulation.world import PREFIX

NONE: Mapping[int, str] = {}
QUESTIONS = (GetClusterOverview, ListTaskManagers, DescribeJob, ReportNow, *get_args(AboutTaskManager), *REQUESTS)  # others are asked
MOVED = {kind for (kind, _), row in FAULTS.items() if row.then is MOVE}
ENDINGS = (JobFinished, JobFailed, JobCanceled)


@dataclass
class Replayed:
    """One life of a scope, folded again from its records alone."""

    scope: str
    folded: ScopeState
    said: list[Message] = field(default_factory=list)  # to other scopes, in order
    taken: list[Message] = field(default_factory=list)  # from other scopes, in order


def audit(cluster: Cluster, deleted: bool = True) -> None:
    """Everything below. The cluster has come to rest: all jobs have ended, and every process lives. `deleted`: storage has never failed to
    delete; else the housekeeping does it later."""
    assert_endings(cluster)
    assert_room(cluster)
    assert_answers(cluster)
    assert_epochs(cluster)
    assert_generations(cluster)
    assert_outputs(cluster)
    assert_restarts(cluster)
    if not _reborn(cluster, DISPATCHER, JOB_MASTER):
        assert_rescaled(cluster)
    assert_nothing_left(cluster)
    if deleted:
        assert_exchange(cluster)
    replayed = replay_all(cluster)
    assert_replay(cluster, replayed)
    assert_said_is_taken(cluster, replayed)


def assert_endings(cluster: Cluster) -> None:
    """I3, I4: an accepted job's key goes to one ending and stays there; the public events say the same, once."""
    states: dict[str, list[dict[str, Any]]] = {}
    for revision, key, value in cluster.world.etcd.history:
        if key.startswith(f"{PREFIX}jobs/") and (revision, key) not in cluster.world.etcd.foreign:
            assert value is not None, f"I3: {key} is deleted"
            states.setdefault(key.rpartition("/")[2], []).append(json.loads(value))
    for job, values in states.items():
        if cluster.world.strangers:  # what the log knows may have been put back
            values = [each for n, each in enumerate(values) if not n or (each["state"], each["acceptance"]) != _went(values[n - 1])]
        went = [each["state"] for each in values]  # a tombstone is written again when its data are given to a repair, or go
        assert went == ["accepted", "dirty", *["clean"] * max(1, len(went) - 2)], f"I4: {job} went through {values}"
        assert len({each["acceptance"] for each in values}) == 1, f"I3: {job} was accepted twice"
        assert values[1]["status"] == values[2]["status"], f"I4: {job} ended twice: {values}"
        cause = values[1].get("cause") or {}
        poisoned = job in cluster.world.poison
        assert poisoned or cause.get("kind") != "lost", f"I4: {job} fails for what was not its own doing: {cause}"
        kinds = [type(each).__name__ for each in cluster.client.events(job) if isinstance(each, ENDINGS)]
        if _reborn(cluster, DISPATCHER):
            kinds = list(dict.fromkeys(kinds))  # a reborn scope may say a fact again [R16]
        told = [type(each).__name__ for each in cluster.client.events(job)]
        in_order = told[:1] == ["JobAccepted"] and told[-1] in [each.__name__ for each in ENDINGS]
        assert in_order or _reborn(cluster, DISPATCHER, JOB_MASTER), f"I2: of {job} it is told: {told}"
        assert kinds == [f"Job{values[1]['status'].capitalize()}"], (
            f"I4: {job} ended {values[1]['status']}, said {kinds}"
        )


def _went(value: dict[str, Any]) -> tuple[str, str]:
    return value["state"], value["acceptance"]


def assert_room(cluster: Cluster) -> None:
    """[R30]: live jobs have no more subtasks than they may have. A reborn Dispatcher takes in what is new before it knows what is old."""
    most = cluster.deciding.get(DISPATCHER, {}).get("max_live_subtasks")
    if most is None or _reborn(cluster, DISPATCHER):
        return
    live: dict[str, int] = {}
    for _, key, value in cluster.world.etcd.history:
        if key.startswith(f"{PREFIX}jobs/") and value is not None:
            told = json.loads(value)
            live.pop(key, None)
            if told["state"] == "accepted":
                live[key] = sum(vertex.get("parallelism", 1) for vertex in told["graph"]["vertices"].values())
            assert sum(live.values()) <= most, f"[R30]: {sum(live.values())} subtasks are live, and {most} may be: {live}"


def assert_restarts(cluster: Cluster) -> None:
    """I15: a job is restarted as often as its strategy allows, and fails for want of a restart when it has none left. A reborn JobMaster
    counts anew. Failures that exponential-delay merges are not counted."""
    if _reborn(cluster, JOB_MASTER):
        return
    for job, status in cluster.statuses().items():
        stored = cluster.stored(job)
        archive = json.loads(cluster.world.storage.get(stored.archive)) if stored is not None and stored.archive is not None else {}
        if not archive.get("detail"):
            continue
        restart = JobGraph.model_validate(archive["graph"]).restart
        most = {
            "none": 0, "fixed-delay": restart.attempts, "failure-rate": restart.max_failures_per_interval,
            "exponential-delay": restart.attempts_before_reset_backoff,
        }[restart.strategy]  # fmt: skip
        restarts, cause = archive["detail"]["restarts"], archive["cause"] or {}
        assert most is None or restarts <= most, f"I15: {job} is restarted {restarts} times, and {restart.strategy} allows {most}"
        spent = cause.get("retryable") and cause.get("kind") not in MOVED and "attempt" in cause
        assert not spent or restarts == most, f"I15: {job} fails after {restarts} of {most} restarts: {cause}"
        events = [each for each in cluster.client.events(job) if isinstance(each, AttemptStateChanged) and each.error is not None]
        events = [each for each in events if each.beside is None]  # [R38]: of two attempts, while the other one goes on
        failed = {(each.task, each.subtask, each.attempt) for each in events if each.error.retryable and each.error.kind not in MOVED}
        right = len(failed) == restarts + bool(spent) or (restart.strategy == "exponential-delay" and len(failed) >= restarts)
        assert right, f"I15: {job}, {status}, has {len(failed)} failures and {restarts} restarts"


def _reborn(cluster: Cluster, *services: str) -> bool:
    """Whether a scope of these services has begun a new generation: its log was cut, or had a hole."""
    scopes = [scope for scope in cluster.world.topology.scopes() if scope.startswith(services)]
    entries = [cluster.world.etcd.entry(f"{PREFIX}generations/{scope}") for scope in scopes]
    return any(entry is not None and json.loads(entry.value)["generation"] > 1 for entry in entries)


def assert_answers(cluster: Cluster) -> None:
    """Every request has one answer; a reborn Dispatcher reads requests again, and may answer again. What another service has not answered
    in time is answered without it [R31], and perhaps by it later."""
    replies = cluster.client.replies()
    again = _reborn(cluster, DISPATCHER) or cluster.world.book.asked_again
    for number, request in enumerate(cluster.client.requests, 1):
        answers = replies.get(f"{cluster.client.name}-{number}", [])
        late = request in QUESTIONS and any(getattr(each, "silent", None) for each in answers)
        right = len(answers) == 1 or ((again or late) and len(answers) > 1)
        assert right, f"request {number}, {request.__name__}, has the answers {answers}"


def _is_junk(value: bytes) -> bool:
    """No request (all who send one here want an answer)."""
    try:
        intake.decode(value, DEFAULT_LIMITS)
    except Refused:
        return True
    return False


def assert_outputs(cluster: Cluster) -> None:
    """I7: of a finished job each sink holds the output of one attempt a subtask, and its archive stands."""
    for job, status in cluster.statuses().items():
        stored = cluster.stored(job)
        assert stored is not None and stored.archive is not None
        assert cluster.world.storage.exists(stored.archive), f"I8: the archive of {job} is missing"
        archive = json.loads(cluster.world.storage.get(stored.archive))
        told = archive["status"], archive["ended_ms"]
        assert told == (stored.status, stored.ended_ms), f"I4: {job} ended {stored.status}, its archive tells of another end: {told}"
        _assert_time_spent(job, archive)
        if status == "FINISHED":
            assert_read(cluster, job, archive)
        graph = archive["graph"]
        for name, vertex in graph["vertices"].items():
            if "sink" not in vertex:
                continue
            fs, path = fsspec.core.url_to_fs(vertex["sink"]["path"])
            files = [fs.cat_file(each).decode() for each in fs.find(path)]
            if status == "FINISHED":
                subtasks = {each.rpartition("/")[0] for each in files}
                assert len(files) == len(subtasks) == vertex.get("parallelism", 1), f"I7: {name} of {job} holds the output of {files}"
                assert all(each.startswith(f"{job}/") and each in cluster.world.book.finished for each in files), f"I7: {job}: {files}"
            else:
                own = [each for each in files if each.startswith(f"{job}/")]  # others may have written to its path
                assert not own, f"I7: {job} ended {status}, and {name} holds the output of {own}"
            parent, _, last = path.rpartition("/")
            staged = fs.find(f"{parent}/.{last}.staging")
            assert not staged, f"I11: of {job} there is left {staged}"


def _assert_time_spent(job: str, archive: dict[str, Any]) -> None:
    """I14: the parts of a job's time are the whole of it. One whose start ended processes has none."""
    if not archive["detail"]:
        return
    spent, detail = archive["detail"]["spent"], archive["detail"]
    whole_ms = max(0, detail["ended_ms"] - detail["accepted_ms"])
    assert min(spent.values()) >= 0 and sum(spent.values()) == whole_ms, f"I14: {job} took {whole_ms} ms, and they are parted as {spent}"


def assert_parked(cluster: Cluster) -> None:
    """What was no request stands in the dead letters [R26]."""
    requests = [record.value for record in cluster.world.broker.journal if record.topic == "client.commands"]
    asked = sum(map(_is_junk, requests))
    letters = {record.value for record in cluster.world.broker.log("dead-letters", 0).records if b'"etcd jobs/' not in record.value}
    repeats = cluster.world.book.asked_again or _reborn(cluster, DISPATCHER)
    assert len(letters) == asked or (repeats and len(letters) > asked), f"{asked} are no requests, {len(letters)} parked"


def assert_epochs(cluster: Cluster) -> None:
    """I1: in etcd's history a scope's epochs rise, and in its log no lower epoch is folded after a higher one."""
    leaders: dict[str, int] = {}
    for revision, key, value in cluster.world.etcd.history:
        if key.startswith(f"{PREFIX}leaders/") and value is not None:
            assert revision > leaders.get(key, 0), f"I1: {key}"
            leaders[key] = revision
    for writer, key, leader in cluster.world.etcd.writes:
        assert writer.encode() == leader, f"I1: {writer} writes {key} while {leader!r} leads"
    for writer, key, leader in cluster.world.etcd.given_back:
        assert writer.encode() == leader, f"[R6]: {writer} gives {key} back, which is the key of {leader!r}"
    pointers: dict[str, tuple[int, int, bool]] = {}
    for _, key, value in cluster.world.etcd.history:
        if key.startswith(f"{PREFIX}snapshots/") and value is not None:
            where = Pointer.parse(value).order
            assert where > pointers.get(key, (0, 0, False)), f"I13: {key} goes back from {pointers[key]} to {where} [R25]"
            pointers[key] = where


def assert_generations(cluster: Cluster) -> None:
    """A log that was cut is given up [R23], and one that is whole is not [R8]."""
    book = cluster.world.book
    for scope in cluster.world.topology.scopes():
        entry = cluster.world.etcd.entry(f"{PREFIX}generations/{scope}")
        assert entry is not None
        value = json.loads(entry.value)
        assert value["generation"] > book.damaged.get(scope, 0), f"[R23]: {scope} goes on with a log that was cut"
        harmed = book.cuts.get(scope) or scope in book.spoiled or cluster.world.topology.inbox(scope) in book.holes
        assert value["generation"] == 1 or harmed, f"[R8]: {scope} is reborn, and its log is whole"


def assert_nothing_left(cluster: Cluster) -> None:
    """I11: every slot is free or on its way to be; no job, allocation, effect or unpublished output is left."""
    for scope in cluster.world.topology.scopes():
        folded = cluster.leader(scope)
        assert folded is not None, f"nobody leads {scope}"
        assert not folded.effects, f"I11: {scope} has pending effects {folded.effects}"
        left = [each.type for each in folded.outbox.values() if each.type not in ("Hello", "JobQueued")]
        assert not left, f"I11: {scope} has not published {left}"
        assert len(folded.outbox) < 20, f"I12: the outbox of {scope} holds {len(folded.outbox)}"
        if scope == DISPATCHER:
            state = folded.state
            assert not (state.live or state.lookups or state.waiting), f"I11: {scope} has {state.live or state.lookups}"
        elif scope == RESOURCE_MANAGER:
            assert not folded.state.jobs, f"I11: {scope} has jobs {folded.state.jobs}"
            assert not folded.state.asked, f"[R31]: {scope} waits for answers {folded.state.asked}"
            assert_blocklist(cluster, folded.state.blocklist)
            registered = {name: each.slots for name, each in folded.state.task_managers.items()}
            present = {each.id: each.slot_count for each in cluster.task_managers()}
            assert {name: len(slots) for name, slots in registered.items()} == present, "I11: TaskManagers"
            held = [slot for slots in registered.values() for slot in slots.values() if slot.allocation is not None]
            assert not held, f"I11: slots are held by nobody: {held}"
        elif scope.startswith(JOB_MASTER):
            assert not folded.state.jobs, f"I11: {scope} has jobs {list(folded.state.jobs)}"
            assert not folded.state.allocations and not folded.state.due, f"I11: {scope} has leftovers"
    names = [process.id for process in cluster.task_managers()]
    assert len(names) == len(set(names)), f"[R28]: TaskManagers live beside others of their names: {names}"
    for process in cluster.task_managers():
        assert process.state is not None
        kept = [slot for slot in process.state.slots.values() if slot.allocation is not None]
        assert not kept, f"I11: {process.name} keeps {kept}"
        busy = [slot for slot in process.state.slots.values() if slot.state is SlotState.RELEASING]
        assert not busy, f"I11: {process.name} does not come back from {busy}"
    assert not cluster.world.book.living, f"I11: attempts live on: {cluster.world.book.living}"


# replay


def replay_all(cluster: Cluster) -> list[Replayed]:
    """Every life of every scope, folded again with fresh machines."""
    found = []
    for scope in cluster.world.topology.scopes():
        entry = cluster.world.etcd.entry(f"{PREFIX}generations/{scope}")
        assert entry is not None
        value = json.loads(entry.value)
        records = list(_inbox(cluster, scope, value["first_offset"]))
        parked = _parked(cluster, scope, value["generation"])
        found.append(_replay(cluster, _machine(cluster, scope), value["generation"], records, parked))
    for process in cluster.every_task_manager():
        folded, machine = process.journal.folded, TaskManager(process.id, cluster.world.topology.shards)
        if folded is not None:
            journal = enumerate(process.journal.records)
            lines = [(offset, stamp_ms, decode(text.encode())) for offset, (stamp_ms, text) in journal]
            found.append(_replay(cluster, machine, folded.generation, lines))
    return found


def _machine(cluster: Cluster, scope: str) -> Machine:
    if scope == DISPATCHER:
        return Dispatcher(cluster.world.topology)
    if scope == RESOURCE_MANAGER:
        return ResourceManager(cluster.world.topology.shards)
    return JobMaster(int(scope.partition("/")[2]))


def _inbox(cluster: Cluster, scope: str, first: int) -> Iterator[tuple[int, int, Record]]:
    log = cluster.world.broker.log(*cluster.world.topology.inbox(scope))
    assert log.first <= first, f"records of {scope} were deleted: it cannot be replayed from its start"
    for record in log.records[first - log.first :]:
        yield record.offset, record.stamp_ms, decode(record.value)


def _parked(cluster: Cluster, scope: str, generation: int) -> dict[int, str]:
    """Offsets of the records that are passed over -> what they did [R26]."""
    entries = cluster.world.etcd.entries(f"{PREFIX}parked/{scope}/{generation}/")
    values = {int(entry.key.rpartition("/")[2]): json.loads(entry.value) for entry in entries}
    return {offset: value["error"] for offset, value in values.items() if value["ended"] >= ENDED_MOST}


def _replay(
    cluster: Cluster, machine: Machine, life: int, records: list[tuple[int, int, Record]], parked: Mapping[int, str] = NONE
) -> Replayed:
    heard, handed = Heard(), _handed_over(cluster, machine.scope, life)
    fold = Fold(Listening(machine, heard), cluster.world.topology)
    first = records[0][0] if records else 0
    replayed = Replayed(machine.scope, fold.blank(life, first))
    folded = replayed.folded
    damages: list[tuple[Message, str]] = []
    born_ms = 0
    elected = -1  # offset of the last Elected that counts
    for offset, stamp_ms, record in records:
        before, busy, epoch, build = _mark(folded, record), _busy(folded, record), folded.epoch, folded.build
        if offset in parked:
            told = fold.pass_over(folded, offset, stamp_ms, record, Parked(parked[offset]))
        else:
            told = fold.fold(folded, offset, stamp_ms, record)
        born_ms = born_ms or folded.now_ms
        if folded.epoch > epoch:
            over = any(by == build and elected < final <= offset for final, by in handed)
            assert build in ("", folded.build) or over, f"[R27]: build {build} of {machine.scope} has not handed over"
            elected = offset
        if told.damage is not None:
            assert isinstance(record, Message)
            damages.append((record, f"I2: {machine.scope} at {offset}: {told.damage}"))
        for spoken in told.said:
            if spoken.topic in INBOXES:
                message = decode(spoken.value.encode())
                assert isinstance(message, Message)
                replayed.said.append(message)
                if isinstance(message.body, (AllocateSlot, AllocateSlots)):
                    state = folded.state
                    waited = folded.now_ms - born_ms >= DECLARE_MS
                    assert waited or len(state.declared) == state.shards, f"[R11]: only {state.declared} have declared"
                    assert message.body.shard in state.declared, f"[R11]: {message.body} is for a shard that has not declared"
        if isinstance(record, Message) and _mark(folded, record) != before:
            replayed.taken.append(record)
            assert not busy, f"I6: {machine.scope} gives a held slot: {record.body}"
    taken = {(each.sender, each.life, each.key) for each in replayed.taken}
    for record, damage in damages:
        if (record.sender, record.life, record.key) in taken:
            continue  # nobody led by it: its sender, or who came after, had said all behind the hole again before anybody did
        # A hole that nobody led by: the next message of that life shows it again, unless there is none.
        last = machine.scope.startswith(TASK_MANAGER) and record is records[-1][2]  # a TaskManager ends with it
        over = last or folded.peers[record.sender].life > record.life
        assert over, damage
    return replayed


def _handed_over(cluster: Cluster, scope: str, generation: int) -> list[tuple[int, str]]:
    """(offset, build) of the snapshots that ended a leader's term in order [R27]."""
    values = [value for _, key, value in cluster.world.etcd.history if key == f"{PREFIX}snapshots/{scope}" and value]
    pointers = [Pointer.parse(value) for value in values]
    return [(each.offset, each.build) for each in pointers if each.final and each.generation == generation]


@dataclass
class Heard:
    """What a scope has taken of others [R28]: nothing of a life behind a later one, or of one that is lost."""

    lives: dict[str, int] = field(default_factory=dict)  # sender -> the life last heard
    lost: dict[str, int] = field(default_factory=dict)  # TaskManager -> the incarnation that is lost

    def take(self, scope: str, told: Envelope) -> None:
        sender, life = told.sender, told.life
        assert life >= self.lives.get(sender, 0), f"[R28]: {scope} hears life {life} of {sender} after {self.lives[sender]}"
        assert life > self.lost.get(sender, 0), f"[R28]: {scope} goes on hearing {sender} ({life}), which is lost"
        self.lives[sender] = life
        if isinstance(told.body, TaskManagerLost):
            name = f"{TASK_MANAGER}/{told.body.task_manager}"
            self.lost[name] = max(told.body.incarnation, self.lost.get(name, 0))


class Listening(Checked):
    """A machine of which it is noted what it is told."""

    def __init__(self, machine: Machine, heard: Heard) -> None:
        super().__init__(machine, lambda state: None)
        self._heard, self._sharing, self._blocking = heard, Sharing(), Blocking()

    def handle(self, state: Any, envelope: Envelope) -> Iterator[Output]:
        if envelope.sender:
            self._heard.take(self.scope, envelope)
        said = self._blocking.watched(self.scope, state, envelope, self._machine.handle(state, envelope))
        return self._sharing.watched(state, placing.watched(state, envelope, said)) if self.scope == RESOURCE_MANAGER else said


def _busy(folded: ScopeState, record: Record) -> bool:
    """Whether a record gives a slot to a job that its TaskManager holds for one."""
    body = record.body if isinstance(record, Message) else None
    if not isinstance(body, (AllocateSlot, AllocateSlots)):
        return False
    slots = [folded.state.slots.get(each.slot) for each in (body.slots if isinstance(body, AllocateSlots) else [body])]
    return any(slot is not None and slot.allocation is not None for slot in slots)


def _mark(folded: ScopeState, record: Record) -> tuple[int, Key | None] | None:
    if not isinstance(record, Message):
        return None
    peer = folded.peers.get(record.sender)
    return None if peer is None else (peer.life, peer.mark)


def assert_replay(cluster: Cluster, replayed: list[Replayed]) -> None:
    """I9, I13: folded again, every log leads to the state that those have who folded it as it came."""
    again = {(each.scope, each.folded.generation): each.folded for each in replayed}
    for process in cluster.processes.values():
        if isinstance(process, TaskManagerProcess):
            if process.journal.folded is not None:
                _assert_equal(process.journal.machine, process.journal.folded, again)
            continue
        assert isinstance(process, ControlProcess)
        for loop in process.loops:
            if loop.replica is not None and process.alive and not loop.strays:
                _assert_equal(loop.hosted.machine, loop.replica.folded, again)


def _assert_equal(machine: Machine, folded: ScopeState, again: dict[tuple[str, int], ScopeState]) -> None:
    other = again[machine.scope, folded.generation]
    if folded.next_offset == other.next_offset:  # one that lags says nothing
        same = hashlib.sha256(freeze(machine, folded)).digest() == hashlib.sha256(freeze(machine, other)).digest()
        assert same, f"I13: {machine.scope} folds to another state when it is folded again"


def assert_said_is_taken(cluster: Cluster, replayed: list[Replayed]) -> None:
    """I2, I8: what one life of a scope said to another is taken there once and in order, up to the end of either. To a peer that was not
    heard nothing but Hello is said [R10]."""
    over = {(each.scope, each.folded.generation) for each in replayed if not _lives(cluster, each)}
    said: dict[tuple[str, int, str], list[Message]] = {}
    taken: dict[tuple[str, int, str, int], list[Message]] = {}
    lives: dict[str, list[int]] = {}
    for each in replayed:
        lives.setdefault(each.scope, []).append(each.folded.generation)
        for message in each.said:
            assert message.to_life or message.body.type == "Hello", f"[R10]: {each.scope} says {message.body.type} to a life not heard"
            said.setdefault((each.scope, each.folded.generation, message.to), []).append(message)
        for message in each.taken:
            taken.setdefault((message.sender, message.life, each.scope, each.folded.generation), []).append(message)
    for (sender, life, to), messages in said.items():
        for to_life in lives[to]:
            # Hellos to a peer not yet heard are chain starts of their own; it may not have been there to take them.
            heard = [message for message in messages if message.to_life == to_life]
            got = [m for m in taken.get((sender, life, to, to_life), ()) if m.to_life == to_life]
            where = f"from {sender} ({life}) to {to} ({to_life})"
            assert got == heard[: len(got)], f"I2: {where}: {_brief(got)} taken of {_brief(heard)}"
            if (sender, life) not in over and (to, to_life) not in over:
                lost = [
                    m for m in heard[len(got) :] if m.body.type not in ("Hello", "TaskManagerHeartbeat", "JobQueued")
                ]
                assert not lost, f"I8: {where}: {_brief(lost)} was never taken"


def _lives(cluster: Cluster, each: Replayed) -> bool:
    process = cluster.processes.get(each.scope)
    if not isinstance(process, TaskManagerProcess):
        return True
    return process.alive and process.shell.incarnation == each.folded.generation


def _brief(messages: list[Message]) -> list[str]:
    return [f"{message.body.type}{message.key}" for message in messages[-5:]]
