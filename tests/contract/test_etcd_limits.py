"""What only a real etcd does: it forgets old revisions, and it has a quota."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import etcd3
import grpc
import pytest
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc

from deploy.local.etcd import EtcdServer
from deploy.local.server import Progress
from millrace.io.etcd import store as etcd_module
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Entry, Put, Txn, Unavailable, UnknownOutcome
from tests.conftest import RealEtcd
from tests.contract.conftest import eventually

QUOTA_BYTES = 2 << 20


def test_compaction_all_the_time_hides_no_change_from_a_watch_and_no_key_from_a_list(
    real_etcd: RealEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F8."""
    monkeypatch.setattr(etcd_module, "PAGE", 3)
    store = EtcdStore(real_etcd.endpoint, real_etcd.prefix)
    compacting = etcd3.client(real_etcd.host, real_etcd.port)
    told: list[bytes] = []

    def changed(entry: Entry | None) -> None:
        assert entry is not None
        told.append(entry.value)

    store.watch("jobs/0", changed, lambda: told.append(b"lost"))
    whole, ask = 0, store._call

    def ask_and_compact(*given: Any, **named: Any) -> Any:
        """A compaction falls between two pages of the first list; the second try is let alone."""
        nonlocal whole
        answer = ask(*given, **named)
        if getattr(answer, "more", False) and whole == 0:
            whole = store_revision(store)
            compacting.compact(whole)
        return answer

    for number in range(30):
        revision = store.txn(Txn([], [Put(f"jobs/{key}", b"%d" % number) for key in range(10)])).revision
        compacting.compact(revision)
    eventually(lambda: len(told) == 30, "thirty changes")
    assert told == [b"%d" % number for number in range(30)]
    store._call = ask_and_compact
    store.txn(Txn([], [Put("other", b"so that there is a newer revision")]))
    entries, _ = store.list("jobs/")
    assert whole and [each.key for each in entries] == [f"jobs/{key}" for key in range(10)]
    compacting.close()
    store.close()


def store_revision(store: EtcdStore) -> int:
    return store.txn(Txn([], [Put("other", b"")])).revision


class SmallEtcd(EtcdServer):
    """One that is soon full."""

    def command(self, progress: Progress) -> tuple[list[str], dict[str, str]]:
        argv, environment = super().command(progress)
        quota = [each for each in argv if not each.startswith("--quota-backend-bytes")]
        return [*quota, f"--quota-backend-bytes={QUOTA_BYTES}"], environment


def test_an_etcd_that_is_full_refuses_what_is_new_keeps_leases_and_heals(tmp_path: Path) -> None:
    """F12. A refusal is known to have changed nothing, so that no job counts as perhaps stored."""
    with SmallEtcd(tmp_path) as server:
        store = EtcdStore(server.endpoint, "/test/")
        host, _, port = server.endpoint.partition(":")
        admin = etcd3.client(host, int(port))
        lease = store.grant(60)
        store.txn(Txn([], [Put("leaders/dispatcher", b"me", lease)]))

        def is_full() -> bool:
            try:
                store.txn(Txn([], [Put("jobs/large", bytes(700_000))]))
            except Unavailable as refused:
                assert not isinstance(refused, UnknownOutcome) and "space exceeded" in str(refused)
                return True
            return False

        eventually(is_full, "a full etcd")
        assert store.keep_alive(lease), "who leads goes on leading"
        before = store.get("jobs/small")
        with pytest.raises(Unavailable, match="space exceeded"):
            store.txn(Txn([], [Put("jobs/small", b"1")]))
        assert store.get("jobs/small") == before is None
        leader = store.get("leaders/dispatcher")
        assert leader is not None and leader.value == b"me"
        large = store.get("jobs/large")
        assert large is not None
        admin.compact(large.mod_revision, physical=True)
        admin.defragment()
        [alarm] = admin.list_alarms()
        admin.disarm_alarm(alarm.member_id)
        assert store.txn(Txn([], [Put("jobs/small", b"1")])).succeeded
        admin.close()
        store.close()


def test_an_etcd_that_asks_for_a_password_is_waited_for_and_says_so(tmp_path: Path) -> None:
    with EtcdServer(tmp_path) as server, grpc.insecure_channel(server.endpoint) as channel:
        auth = rpc_pb2_grpc.AuthStub(channel)
        auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="root", password="hunter2"))
        auth.RoleAdd(rpc_pb2.AuthRoleAddRequest(name="root"))
        auth.UserGrantRole(rpc_pb2.AuthUserGrantRoleRequest(user="root", role="root"))
        auth.AuthEnable(rpc_pb2.AuthEnableRequest())
        store = EtcdStore(server.endpoint, "/test/")
        for ask in (lambda: store.get("topology"), lambda: store.txn(Txn([], [Put("jobs/j", b"1")])), lambda: store.list("jobs/")):
            with pytest.raises(Unavailable, match="asks for a user and a password") as refused:
                ask()
            assert not isinstance(refused.value, UnknownOutcome)
        store.close()
