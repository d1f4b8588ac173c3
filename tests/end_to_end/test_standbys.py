"""Standbys on real Kafka and etcd: the leader of any scope is killed or asked to end while a job runs, and nobody notices."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import etcd3
import psutil
import pytest

from deploy.local.processes import is_running
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Entry, Unavailable
from millrace.runtime.beat import LEASE_TTL_S
from tests.conftest import stop_another
from tests.end_to_end.running import Held, RunningStack, until

SCOPES = ("dispatcher", "resource-manager", "job-master/0", "job-master/1")


@contextlib.contextmanager
def nothing_started_again(running: RunningStack) -> Iterator[None]:
    """The supervisor is stopped meanwhile, so that who takes over was there before."""
    supervisor = running.stack.supervisor()
    assert supervisor is not None
    try:
        stop_another(supervisor)
        yield
    finally:
        supervisor.resume()


def taken_over(running: RunningStack, scope: str, before: Entry, *, lasts: bool = False) -> Entry:
    """The key of the next leader. `lasts`: the lease of the one before does not end meanwhile, however slow this machine is."""
    store = EtcdStore(running.facts["etcd_endpoint"], "/millrace/default/")

    def found() -> Entry | None:
        with contextlib.suppress(Unavailable):
            entry = store.get(f"leaders/{scope}")
            if entry is not None and entry.mod_revision != before.mod_revision:
                return entry
            if lasts:
                store.keep_alive(before.lease)
        return None

    try:
        entry = until(f"another leader of {scope}", found)
    finally:
        store.close()
    assert entry is not None
    return entry


def ran_undisturbed(running: RunningStack, held: Held, pids: list[int]) -> None:
    assert running.sql("SELECT 1 AS one").rows == [[1]]
    assert held.pids == pids
    assert held.let_go().end["type"] == "JobFinished"
    assert held.pids == pids
    assert held.watched.attempts() == [("main", 0, 1)]


ENDS = [
    pytest.param(scope, number, id=f"{scope}-{number.name}", marks=pytest.mark.long if scope != SCOPES[0] else [])
    for number in (signal.SIGKILL, signal.SIGTERM)
    for scope in SCOPES
]


@pytest.mark.parametrize(("scope", "number"), ENDS)
def test_a_standby_takes_over_and_running_attempts_go_on(
    replicated: RunningStack, tmp_path: Path, scope: str, number: signal.Signals
) -> None:
    held = Held(replicated, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    until("the shards to be shared out", lambda: replicated.leader(SCOPES[2]) != replicated.leader(SCOPES[3]))
    before = replicated.leader_key(scope)
    assert before is not None
    old = before.value.decode()
    pid = replicated.pid(old)
    with nothing_started_again(replicated):
        leader = psutil.Process(pid)
        leader.send_signal(number)
        accepted = replicated.client.begin_submit({"name": "next", "vertices": {"one": {"sql": "SELECT 2 AS two"}}})
        after = taken_over(replicated, scope, before, lasts=number is signal.SIGKILL)
        assert replicated.watch(accepted.result()).rows == [[2]]
        assert after.value != old.encode()
        until("the end of the old leader", lambda: not is_running(leader))
    # Taken from the dead one, whose lease has not ended, or given back by one that was asked to end.
    assert (after.create_revision == before.create_revision) == (number is signal.SIGKILL)
    replicated.started_again(old, pid)
    until("the old leader as a replica", lambda: roles(replicated, old)[scope] in ("standby", "leader"))
    ran_undisturbed(replicated, held, pids)


def roles(running: RunningStack, name: str) -> dict[str, str]:
    """Scope -> role of one process, from its health; without those that it does not tell yet."""
    health = running.stack.status()["services"][name]["health"] or {}
    return dict.fromkeys(SCOPES, "") | {each["scope"]: each["role"] for each in health.get("scopes", ())}


def test_every_leader_at_once(replicated: RunningStack, tmp_path: Path) -> None:
    held = Held(replicated, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    replicated.kill(*dict.fromkeys(replicated.leader(scope) for scope in SCOPES))
    ran_undisturbed(replicated, held, pids)


@pytest.mark.long
def test_leaders_that_were_stopped_for_three_leases_wake_as_standbys(replicated: RunningStack, tmp_path: Path) -> None:
    """F1. A leader of each kind is stopped in the midst of submissions, and woken when others lead: what they then write is refused."""
    held = Held(replicated, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    stopped = SCOPES[:3]  # the other shard is led by the other process
    names = [replicated.leader(scope) for scope in stopped]
    before = {scope: replicated.leader_key(scope) for scope in stopped}
    graphs = [{"name": "n", "vertices": {"n": {"sql": f"SELECT {n} AS n"}}} for n in range(8)]
    begun = [replicated.client.begin_submit(graph) for graph in graphs[:4]]
    zombies = [psutil.Process(replicated.pid(name)) for name in names]
    stopped_s = time.monotonic()
    for zombie in zombies:
        zombie.suspend()
    try:
        begun += [replicated.client.begin_submit(graph) for graph in graphs[4:]]
        jobs = [replicated.watch(each.result()) for each in begun]
        for scope, entry in before.items():
            assert entry is not None
            assert taken_over(replicated, scope, entry).value.decode() not in names
        time.sleep(max(0.0, 3 * LEASE_TTL_S - (time.monotonic() - stopped_s)))  # what is tested, not a wait
    finally:
        for zombie in zombies:
            zombie.resume()
    for scope in SCOPES[:2]:  # shards may move back, for they are shared out among the processes that host them
        entry = before[scope]
        assert entry is not None
        name = entry.value.decode()
        until(f"{name} as a standby", lambda name=name, scope=scope: roles(replicated, name)[scope] == "standby")
    assert [job.rows for job in jobs] == [[[n]] for n in range(8)]
    assert all(is_running(zombie) for zombie in zombies), "they stay"
    ran_undisturbed(replicated, held, pids)
    replicated.quiesce()
    for job in jobs:
        until(f"the tombstone of {job.id}", lambda job=job: writes(replicated, job.id)[0] == "clean")
        assert writes(replicated, job.id) == ("clean", 3), "accepted, ended, clean: each was written once"
        assert [event["type"] for event in job.events].count("JobFinished") == 1


def writes(running: RunningStack, job: str) -> tuple[str, int]:
    """The state of a job's key in etcd, and how often it was written."""
    host, _, port = running.facts["etcd_endpoint"].partition(":")
    client = etcd3.client(host, int(port))
    try:
        value, meta = client.get(f"/millrace/default/jobs/{job}")
        return json.loads(value)["state"], meta.version
    finally:
        client.close()


@pytest.mark.long
def test_shards_are_led_by_all_processes_that_host_them(replicated: RunningStack, tmp_path: Path) -> None:
    held = Held(replicated, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    replicated.kill(*dict.fromkeys(replicated.leader(scope) for scope in SCOPES[2:]))  # one of them then leads both
    until("two leaders", lambda: replicated.leader("job-master/0") != replicated.leader("job-master/1"))
    ran_undisturbed(replicated, held, pids)


@pytest.mark.long
def test_a_leader_that_is_asked_to_end_while_the_broker_is_paused_ends_in_order(replicated: RunningStack, tmp_path: Path) -> None:
    """What it has to say is on its way, and nobody answers: that is no failure of the process."""
    held = Held(replicated, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    name, broker = replicated.leader("dispatcher"), replicated.server("kafka.Kafka")
    ended = re.compile(rf"^{name}: ended with (.+);", re.MULTILINE)
    before = len(ended.findall(replicated.stack.supervisor_log.read_text()))
    broker.suspend()
    try:
        psutil.Process(replicated.pid(name)).terminate()
        codes = until("its end", lambda: ended.findall(replicated.stack.supervisor_log.read_text())[before:])
    finally:
        broker.resume()
    assert codes == ["0"]
    ran_undisturbed(replicated, held, pids)


def test_status_shows_every_replica(replicated: RunningStack) -> None:
    for scope in SCOPES:
        kind = scope.partition("/")[0]
        until(
            f"one leader and one standby of {scope}",
            lambda kind=kind, scope=scope: sorted(roles(replicated, name)[scope] for name in (kind, f"{kind}-2"))
            == ["leader", "standby"],
        )
    services = replicated.stack.status()["services"]
    assert {"dispatcher-2", "resource-manager-2", "job-master-2"} < set(services)
    for what in ("pid", "health_port", "ready_file", "log"):
        assert len({service[what] for service in services.values()}) == len(services), what


def test_a_standby_answers_for_itself(replicated: RunningStack) -> None:
    """No request to a scope reaches a standby: it is asked as a process."""

    def all_four() -> dict[str, list[str]] | None:
        found: dict[str, list[str]] = {}
        for each in replicated.client.services():
            if each.status.service in ("dispatcher", "resource-manager"):
                found.setdefault(each.status.service, []).extend(each.scopes.values())
        return found if all(len(roles) == 2 for roles in found.values()) and len(found) == 2 else None

    found = until("two of each", all_four)
    assert {service: sorted(roles) for service, roles in found.items()} == dict.fromkeys(found, ["leader", "standby"])
    leader = replicated.leader("dispatcher")
    (standby,) = [each.process for each in replicated.client.services() if each.scopes.keys() == {"dispatcher"} and each.process != leader]
    asked = replicated.client.service(standby)
    file = (replicated.stack.folder / "logs" / f"{standby}.log").read_bytes()
    assert b"".join(asked.read("log"))[: len(file)] == file != b""
    assert '" id=' in asked.threads()[0].text
