"""Makes an etcd that was restored from a backup what the logs of the cluster know it was [R24]. Run again, it changes nothing.

A backup is older than the logs. It lacks jobs that were accepted since, shows jobs as running that have ended since, and names
generations that are over. Its revisions, which are epochs and incarnations, would be given a second time. The command is
`millrace recover`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from millrace.core.cluster import short
from millrace.core.fold import Diverged, Fold, Parked, ScopeState
from millrace.core.machine import Machine, UnknownMessage
from millrace.core.messages.records import Elected, Tick, UnknownRecord, decode
from millrace.core.states import Recovery
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Bus, Compare, Delete, Put, Received, Store, Txn, Unavailable
from millrace.io.kafka.bus import KafkaBus
from millrace.io.storage.store import Storage
from millrace.runtime.build import build_of
from millrace.runtime.identity import OtherCluster
from millrace.runtime.identity import put_back as put_back_identity
from millrace.runtime.parked import ENDED_MOST, ParkedRecords
from millrace.runtime.service import read_topology
from millrace.runtime.snapshots import Pointer, folder, named, thaw
from services.dispatcher.core.machine import Dispatcher
from services.dispatcher.restored import LedMeanwhile, missing, put_back
from services.job_master.core.machine import JobMaster
from services.resource_manager.core.machine import ResourceManager

LEADER_S = 10.0  # what the backup holds of leases ends within 5 s
MARGIN = 1_000  # revisions that were given and that no log tells of
RAISED_MOST = 200_000  # revisions that are used up here, 2,000 a second; more is done when the backup is restored
PARKED_MOST = 20  # records that are parked anew
POLL_MS, SILENCE_MS = 100, 20_000


class Refused(Exception):
    """It cannot be done now; the message says what to do first."""


@dataclass
class Known:
    """What the log of a scope tells, and of one in which nobody was elected in what is left of it, its snapshots. `generation` 0: neither
    tells."""

    first: int
    end: int
    nameless: bool = True  # nothing in it says whose it is, as before clusters had a uuid [R29]
    generation: int = 0
    elected_at: int = 0  # the first election of that generation
    revision: int = 0
    build: str = ""


def recover(bus: Bus, store: Store, storage: Storage, topology: Topology, report: Callable[[str], None]) -> None:  # [R24]
    """Says a line for each thing that was put right. Raises Refused, Unavailable, StorageError."""
    scopes = topology.scopes()
    _await_no_leader(store, scopes)
    cluster = _put_identity(bus, store, report)
    known = {scope: _read(bus, topology, scope) for scope in scopes}
    _raise_revision(store, max(each.revision for each in known.values()), report)
    for scope in scopes:
        whole = _whole(storage, _machine(topology, scope), known[scope], cluster)
        _put_generation(bus, store, topology, scope, known[scope], report)
        _put_pointer(store, scope, whole, report)
    _put_jobs(bus, store, storage, topology, known[DISPATCHER], cluster, report)


def _machine(topology: Topology, scope: str) -> Machine:
    if scope == DISPATCHER:
        return Dispatcher(topology)
    return ResourceManager(topology.shards) if scope == RESOURCE_MANAGER else JobMaster(int(scope.partition("/")[2]))


def _put_identity(bus: Bus, store: Store, report: Callable[[str], None]) -> str:
    """The uuid comes back from Kafka, which has it with the logs; a new one would give the names of the old one's jobs to nobody [R29]."""
    try:
        cluster, wrote = put_back_identity(bus, store)
    except OtherCluster as failure:
        raise Refused(str(failure)) from None
    if wrote:
        report(f"the cluster's identity {cluster} is put back")
    return cluster


def _await_no_leader(store: Store, scopes: tuple[str, ...]) -> None:
    deadline = time.monotonic() + LEADER_S
    while True:
        led = [(scope, entry) for scope in scopes if (entry := store.get(f"leaders/{scope}")) is not None]
        if not led:
            return
        if time.monotonic() > deadline:
            scope, entry = led[0]
            raise Refused(f"{entry.value.decode()} leads {scope}: end all control services first, then run this again")
        time.sleep(0.2)


def _records(bus: Bus, topology: Topology, scope: str, first: int) -> Iterator[Received]:
    """From `first` to where the log ends now. Raises Unavailable."""
    topic, partition = topology.inbox(scope)
    end = bus.offsets(topic, partition)[1]
    reader = bus.reader(topic, partition, first)
    silent = 0
    try:
        while first < end:
            if silent * POLL_MS > SILENCE_MS:
                raise Unavailable(f"Kafka gives no record of {topic}[{partition}] from offset {first} on")
            silent += 1
            for received in reader.poll(POLL_MS):
                first, silent = received.offset + 1, 0
                if received.offset < end:
                    yield received
    finally:
        reader.close()


def _read(bus: Bus, topology: Topology, scope: str) -> Known:
    first, end = bus.offsets(*topology.inbox(scope))
    known = Known(first, end)
    for received in _records(bus, topology, scope, first):
        if b'"Elected"' not in received.value and b'"Tick"' not in received.value:
            continue
        try:
            record = decode(received.value)
        except ValidationError:
            continue  # no record of ours, and passed over by all
        except UnknownRecord as failure:
            raise Refused(
                f"{scope}@{received.offset} is of a kind or version that this build does not know ({str(failure).splitlines()[0]}): "
                "run this command of the build that wrote it"
            ) from None
        if isinstance(record, Elected):
            if record.generation > known.generation:
                known.generation, known.elected_at = record.generation, received.offset
            known.nameless = known.nameless and "cluster" not in record.settings
            known.revision, known.build = max(known.revision, record.epoch), record.build
        elif isinstance(record, Tick):
            known.revision = max(known.revision, record.revision)
    return known


def _raise_revision(store: Store, known: int, report: Callable[[str], None]) -> None:
    """No revision may be given twice: they are epochs and incarnations. The margin is asked for whatever etcd is at: that it is above what
    the logs know may be the work of who was started beside the restored one, and no other sign is sure. (etcd's cluster id is made of its
    members' addresses and a token: a restore with the same ones has the same id.)"""
    store.get("recovered")
    lacking = known + MARGIN - store.revision
    if lacking <= 0:
        return
    if lacking > RAISED_MOST:
        raise Refused(
            f"etcd is at revision {store.revision} and the logs know of {known}: restore the backup again, by "
            f"etcdutl snapshot restore --bump-revision {lacking + 1_000_000} --mark-compacted"
        )
    report(f"revision: {store.revision} is raised to {known + MARGIN}")
    while store.revision < known + MARGIN:
        store.txn(Txn([], [Put("recovered", b"")]))
    store.txn(Txn([], [Delete("recovered")]))


def _put_generation(
    bus: Bus, store: Store, topology: Topology, scope: str, known: Known, report: Callable[[str], None]
) -> None:
    entry = store.get(f"generations/{scope}")
    standing = json.loads(entry.value)["generation"] if entry is not None else 0
    if standing >= known.generation:
        return
    _put_log(bus, store, topology, scope, known.generation, known.elected_at, "put back after a restore")
    report(f"{scope}: generation {standing} is put back to {known.generation}")


def _put_log(
    bus: Bus, store: Store, topology: Topology, scope: str, generation: int, first: int, reason: str
) -> None:
    key, log_id = f"generations/{scope}", bus.log_id(topology.inbox(scope)[0])
    entry = store.get(key)
    value = {"generation": generation, "log_id": log_id, "first_offset": first, "reason": reason}
    _txn(store, scope, key, entry.mod_revision if entry else 0, json.dumps(value).encode())


def _whole(storage: Storage, machine: Machine, known: Known, cluster: str) -> list[Pointer]:
    """The newest two snapshots of this log that are whole, the newest first. Where a leader has led for long, its election lies deleted
    below them: the newest one tells then which generation the log is in."""
    scope, whole = machine.scope, list[Pointer]()
    mine = [each for each in named(storage, scope) if each.cluster == short(cluster) or not each.cluster and known.nameless]
    for each in sorted(mine, key=lambda each: (each.generation, each.offset), reverse=True):
        generation, offset = each.generation, each.offset
        if len(whole) == 2 or not known.first <= offset <= known.end or generation != (known.generation or generation):
            continue
        data = storage.get(each.path)
        sha256 = hashlib.sha256(data).hexdigest()
        if not sha256.startswith(each.sha256):
            continue
        try:
            build = thaw(machine, data).build
        except ValueError as failure:
            raise Refused(
                f"this build cannot read the snapshot {each.path} ({failure}): run this command of the build that wrote it"
            ) from None
        whole.append(Pointer(generation, offset, sha256, build, cluster=cluster if each.cluster else ""))
        if not known.generation:
            known.generation, known.build = generation, build  # and it began at 0, so that nobody takes what is left for all of it
    return whole


def _put_pointer(store: Store, scope: str, whole: list[Pointer], report: Callable[[str], None]) -> None:
    entry = store.get(f"snapshots/{scope}")
    standing = Pointer.parse(entry.value, entry.key) if entry is not None else None
    if not whole or (standing is not None and standing.order >= whole[0].order):
        return
    newest = replace(whole[0], before=whole[1] if len(whole) > 1 else None)
    _txn(store, scope, f"snapshots/{scope}", entry.mod_revision if entry else 0, newest.value())
    before = f"offset {standing.offset}" if standing is not None else "none"
    report(f"{scope}: the snapshot ({before}) is put back to offset {newest.offset}")


def _txn(store: Store, scope: str, key: str, revision: int, value: bytes) -> None:
    nobody = Compare(f"leaders/{scope}", 0)
    if not store.txn(Txn([nobody, Compare(key, revision)], [Put(key, value)])).succeeded:
        raise Refused(f"{scope} is led again: end all control services first, then run this again")


def _put_jobs(
    bus: Bus, store: Store, storage: Storage, topology: Topology, known: Known, cluster: str, report: Callable[[str], None]
) -> None:
    machine = Dispatcher(topology)
    build = build_of([machine])
    if known.build not in ("", build):
        raise Refused(
            f"build {known.build} folded the Dispatcher's log, and this is build {build}: run this command of that build"
        )
    folded = _fold_parking(bus, store, storage, topology, machine, build, report)
    if folded is None or folded.state.recovery is not Recovery.DONE:
        report("jobs: the Dispatcher's log knows of none; those in etcd are taken as they are")
        return
    try:
        found, ahead = missing(folded, store, storage, topology, cluster)
        put_back(found, store)
    except LedMeanwhile:
        raise Refused("a Dispatcher leads: end all control services first, then run this again") from None
    accepted = sum(each.stored.state == "accepted" for each in found)
    report(f"jobs: {accepted} are put back as accepted, {len(found) - accepted} as ended")
    if ahead:
        _end_generation(bus, store, topology, folded, ahead, report)


def _end_generation(
    bus: Bus, store: Store, topology: Topology, folded: ScopeState, ahead: list[str], report: Callable[[str], None]
) -> None:
    """The log has lost its end, with jobs that etcd has. Its next generation takes them from there [R22]; nobody else may notice: the
    shards' logs may have lost theirs as well."""
    number = folded.generation + 1
    reason = f"the log ends at {folded.next_offset}, and etcd has jobs that were accepted behind that: {', '.join(ahead)}"[:500]
    _put_log(bus, store, topology, DISPATCHER, number, folded.next_offset, reason)
    lost = f"its log has lost the records of {len(ahead)} jobs that etcd has"
    report(f"{DISPATCHER}: {lost}: generation {number} begins, which takes them over")


def _fold_parking(
    bus: Bus, store: Store, storage: Storage, topology: Topology, machine: Machine, build: str, report: Callable[[str], None]
) -> ScopeState | None:
    """As `_fold`. A record that ends processes and was parked after the backup is parked again, as the services did [R26]: its machine is
    told, and where hearing of it fails, too, nothing is."""
    for _ in range(PARKED_MOST):
        try:
            return _fold(bus, store, storage, topology, machine, build)
        except _Ends as bad:
            value = json.loads(_value_of(store, f"generations/{DISPATCHER}"))
            key = f"parked/{DISPATCHER}/{value['generation']}/{bad.offset}"
            entry = store.get(key)
            ended = json.loads(entry.value)["ended"] if entry is not None else 0
            if ended > ENDED_MOST:
                raise Refused(f"{bad}, even if it is passed over: report it with `millrace bundle`") from None
            parked = {"ended": max(ended, ENDED_MOST - 1) + 1, "build": build, "error": bad.error}
            _txn(store, DISPATCHER, key, entry.mod_revision if entry else 0, json.dumps(parked, separators=(",", ":")).encode())
            report(f"{bad.args[0]}: it is passed over, as it was after the backup")
    raise Refused(f"more than {PARKED_MOST} records of {DISPATCHER} end this command: run it of the build that wrote them")


def _value_of(store: Store, key: str) -> bytes:
    entry = store.get(key)
    assert entry is not None, f"{key} is put back before"
    return entry.value


def _fold(
    bus: Bus, store: Store, storage: Storage, topology: Topology, machine: Machine, build: str
) -> ScopeState | None:
    """What the Dispatcher knows at the end of its log; None: it never was elected."""
    entry, generation = store.get(f"snapshots/{DISPATCHER}"), store.get(f"generations/{DISPATCHER}")
    first = bus.offsets(*topology.inbox(DISPATCHER))[0]
    lacking = Refused(
        f"the log of {DISPATCHER} begins at {first}, and no whole snapshot reaches so far: restore a later backup, or put "
        f"{folder(DISPATCHER)} back into storage, then run this again"
    )
    if generation is None:
        if first:
            raise lacking
        return None
    core, value = Fold(machine, topology), json.loads(generation.value)
    folded = core.blank(value["generation"], value["first_offset"])
    pointer = Pointer.parse(entry.value, entry.key) if entry is not None else None
    if pointer is not None and pointer.generation == folded.generation:
        folded = thaw(machine, storage.get(pointer.path(DISPATCHER)))
    if first > folded.next_offset:
        raise lacking
    parked = ParkedRecords(store, DISPATCHER, build)
    parked.load(folded.generation)
    passed = parked.offsets()
    for received in _records(bus, topology, DISPATCHER, folded.next_offset):
        _fold_one(core, folded, received, passed)
    return folded if folded.epoch else None


class _Ends(Exception):
    """Folding a record ends the process: the services must have passed it over."""

    def __init__(self, offset: int, error: str) -> None:
        super().__init__(f"{DISPATCHER}@{offset}: {error}")
        self.offset, self.error = offset, error


def _fold_one(core: Fold, folded: ScopeState, received: Received, passed: Mapping[int, Parked]) -> None:
    """Raises _Ends; Refused for a log that cannot be folded here."""
    offset, stamp_ms, parked = received.offset, received.stamp_ms, passed.get(received.offset)
    try:
        try:
            record = decode(received.value)
        except ValidationError:
            if parked is None:
                raise
            record = None
        if parked is not None:
            led_to = core.pass_over(folded, offset, stamp_ms, record, parked)
        else:
            assert record is not None
            led_to = core.fold(folded, offset, stamp_ms, record)
    except (UnknownRecord, UnknownMessage) as failure:
        raise Refused(
            f"{DISPATCHER}@{offset} is of a kind or version that this build does not know ({str(failure).splitlines()[0]}): "
            "run this command of the build that wrote it"
        ) from None
    except Diverged as failure:
        raise Refused(
            f"the log of {DISPATCHER} leads to other words than its tick at offset {offset} names ({failure}): a record was passed over "
            "after the backup, and folds well here; put back its key parked/dispatcher/... of the etcd that was replaced, or restore a "
            "later backup, then run this again"
        ) from None
    except Exception as failure:  # whatever a handler raises
        raise _Ends(offset, f"{type(failure).__name__}: {failure}"[:500]) from None
    if led_to.unreadable:
        raise Refused(
            f"the log of {DISPATCHER} has a hole before offset {offset} ({led_to.damage}), and how jobs ended may lie in it: "
            "restore a later backup, then run this again"
        )


def recover_cluster(kafka: str, etcd: str, storage_url: str, cluster: str, report: Callable[[str], None]) -> None:
    """As `recover`, of the cluster at these addresses."""
    store = EtcdStore(etcd, f"/millrace/{cluster}/")
    bus = KafkaBus(kafka, client_id="recover", on_fatal=report)
    try:
        recover(bus, store, Storage(storage_url), read_topology(store), report)
    finally:
        bus.close()
        store.close()
