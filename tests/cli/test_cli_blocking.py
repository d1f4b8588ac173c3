"""`millrace block`, `unblock` and `blocked`."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app as program
from millrace.client import Malformed, Millrace
from millrace.core.messages.blocklist import BlockedHost, BlockedHostInfo
from millrace.core.messages.client import SlotInfo, TaskManagerInfo

UNTIL_MS = 1_800_000_000_000
ONE = BlockedHostInfo(
    host="worker-7", since_ms=1, until_ms=UNTIL_MS, by="ada", reason="its disk is changed", task_managers=1, slots=2, busy=1
)  # fmt: skip


class Cluster:
    def __init__(self, *found: BlockedHostInfo) -> None:
        self.found, self.asked = list(found), list[Any]()

    def block(self, host: str, for_ms: int | None, reason: str, *, evacuate: bool) -> BlockedHostInfo:
        self.asked.append((host, for_ms, reason, evacuate))
        return self.found[0]

    def unblock(self, host: str) -> bool:
        return host == "worker-7"

    def blocked_hosts(self) -> list[BlockedHostInfo]:
        return self.found

    def task_managers(self) -> list[TaskManagerInfo]:
        slots = [SlotInfo(slot=0, state="FREE", memory_mb=1024)]
        blocked = BlockedHost(host="worker-7", since_ms=1)
        some = {"incarnation": 1, "slots": slots, "since_ms": 1, "last_beat_ms": 2}
        return [
            TaskManagerInfo(task_manager="a", host="worker-7", blocked=blocked, **some), TaskManagerInfo(task_manager="b", host="w", **some)
        ]  # fmt: skip


def run(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *words: str) -> Any:
    for module in ("blocking", "cluster"):
        monkeypatch.setattr(f"millrace.cli.{module}.connected", lambda stack: contextlib.nullcontext(cluster))
    monkeypatch.setenv("TZ", "UTC")
    return CliRunner().invoke(program.app, list(words))


def test_a_host_is_blocked_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(ONE)
    done = run(monkeypatch, cluster, "block", "worker-7", "--for", "2h", "--reason", "its disk is changed", "--evacuate")
    assert (done.exit_code, cluster.asked) == (0, [("worker-7", 7_200_000, "its disk is changed", True)])
    assert done.stdout.startswith("worker-7 is blocked until 2027-01-1") and done.stdout.endswith(": 2 slots of 1 TaskManager, 1 in use\n")
    assert done.stderr == "what runs there is moved\n"
    assert run(monkeypatch, cluster, "block", "worker-7").stderr == "what runs there goes on to its end\n"
    nobody = ONE.model_copy(update={"until_ms": None, "task_managers": 0, "slots": 0, "busy": 0})
    done = run(monkeypatch, Cluster(nobody), "block", "worker-7")
    assert done.stdout == "worker-7 is blocked: no TaskManager is registered from there\n"
    assert run(monkeypatch, cluster, "block", "worker-7", "--json").stdout.startswith('{\n "host": "worker-7",')


@pytest.mark.parametrize("length", ["2", "-1h", "h", "0s", "9999d", "1e9d", "2 hours"])
def test_what_is_no_length_of_time_is_said(length: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, Cluster(ONE), "block", "worker-7", f"--for={length}")
    assert done.exit_code == 2 and "is no length of time: say 90s, 30m, 2h or 3d" in " ".join(done.stderr.replace("│", " ").split())


def test_a_host_is_unblocked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, Cluster(), "unblock", "worker-7").stdout == "worker-7 is not blocked any more\n"
    assert run(monkeypatch, Cluster(), "unblock", "x").stdout == "x was not blocked (`millrace blocked` lists those that are)\n"


def test_they_are_listed_and_shown_with_the_task_managers(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, Cluster(ONE, ONE.model_copy(update={"host": "x", "until_ms": None, "evacuate": True})), "blocked")
    heads, first, second = done.stdout.splitlines()
    assert heads.split() == ["host", "until", "by", "why", "TaskManagers", "slots", "in", "use", "evacuated"]
    assert first.split()[0] == "worker-7" and first.split()[3:] == ["ada", "its", "disk", "is", "changed", "1", "2", "1"]
    assert second.split() == ["x", "unblocked", "ada", "its", "disk", "is", "changed", "1", "2", "1", "yes"]
    assert run(monkeypatch, Cluster(), "blocked").stderr == "no host is blocked\n"
    rows = run(monkeypatch, Cluster(), "taskmanagers").stdout.splitlines()
    assert rows[1].split()[-1] == "blocked" and rows[2].split()[-1] != "blocked"


def test_what_is_no_host_is_not_sent() -> None:
    client = Millrace.__new__(Millrace)
    for host in ("", "a b", "a/b", "x" * 256):
        with pytest.raises(Malformed, match="is no host: give it as `millrace taskmanagers` lists it"):
            client.block(host)
        with pytest.raises(Malformed, match="is no host"):
            client.unblock(host)
    with pytest.raises(Malformed, match="for_ms: Input should be"):
        client.block("a", 0)
