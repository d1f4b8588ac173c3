"""Graphs that an operator puts into etcd or deletes there, on a real stack, whoever leads meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.client import MillraceError
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Delete, Put, Txn
from tests.end_to_end.running import Held, RunningStack, until
from tests.end_to_end.test_again import millrace


def status(running: RunningStack, job: str) -> str:
    try:
        return running.client.status(job).status
    except MillraceError:  # it is not accepted yet, or nobody leads
        return ""


def test_what_an_operator_puts_into_etcd_runs_once_and_what_is_deleted_there_is_canceled(running: RunningStack, tmp_path: Path) -> None:
    store = EtcdStore(running.facts["etcd_endpoint"], "/millrace/default/")
    held = Held(running, tmp_path / "held")
    held.started()
    job = held.watched.id
    kept = store.get(f"jobs/{job}")
    assert kept is not None and json.loads(kept.value)["state"] == "accepted"

    running.kill("dispatcher")  # the next leader notices what is done meanwhile
    copy, broken = json.loads(kept.value), json.loads(kept.value)
    copy["graph"] = {"name": "copy", "vertices": {"query": {"sql": "SELECT 42 AS answer"}}}
    broken["graph"] = {"name": "broken", "vertices": {}}
    puts = [Put("jobs/copied-by-hand", json.dumps(copy).encode()), Put("jobs/broken-by-hand", json.dumps(broken).encode())]
    store.txn(Txn([], [*puts, Put("jobs/garbage-by-hand", b"garbage")]))
    until("the copy has run", lambda: status(running, "copied-by-hand") == "FINISHED")
    assert running.client.result("copied-by-hand").rows == [[42]]
    accepted = json.loads(kept.value)["acceptance"]
    ended = store.get("jobs/copied-by-hand")
    assert ended is not None and json.loads(ended.value)["acceptance"] != accepted, "its names in storage are its own"

    listed = ["dlq", "list", "--json"]
    refused = until("the letters", lambda: each if (each := millrace(running, *listed).stdout).count("by-hand") > 1 else "")
    assert "etcd jobs/broken-by-hand" in refused and "etcd jobs/garbage-by-hand" in refused
    told = "broken-by-hand: a graph that somebody has put into etcd is refused"
    until("doctor tells of it", lambda: told in millrace(running, "doctor", "--json").stdout)  # noted once its letter is in Kafka

    over = store.txn(Txn([], [Put(f"jobs/{job}", json.dumps(copy).encode())])).revision
    back = until("what the log has is put back", lambda: each if (each := store.get(f"jobs/{job}")).mod_revision > over else None)
    assert json.loads(back.value)["acceptance"] == accepted and status(running, job) == "RUNNING"

    gone = ["broken-by-hand", "garbage-by-hand"]
    store.txn(Txn([], [Delete(f"jobs/{each}") for each in [job, *gone]]))
    assert held.watched.end["type"] == "JobCanceled"
    assert held.watched.event("JobCancelling")["reason"] == "its graph was removed from etcd"
    until("its ending stands where its graph was", lambda: json.loads(store.get(f"jobs/{job}").value)["status"] == "CANCELED")
    until("doctor is content", lambda: "by-hand" not in millrace(running, "doctor", "--json").stdout)
    store.close()
