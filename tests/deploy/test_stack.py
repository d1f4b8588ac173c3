"""What a stack tells of itself."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy.local import supervisor
from deploy.local.errors import LocalError
from deploy.local.server import LocalServer
from deploy.local.stack import Options, Stack, _health, disk_use
from deploy.local.supervisor import Supervisor


def test_what_goes_while_the_disk_use_is_counted_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt's folder is deleted between the moment that it is listed and the moment that it is looked into."""
    for name in ("attempt", "kept"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "stdout").write_bytes(b"x" * 100_000)
    scandir = os.scandir

    def gone(path: Any = ".") -> Any:
        if os.fspath(path).endswith("attempt"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert 100_000 <= disk_use(tmp_path)["work"] < 200_000


def test_a_service_that_has_just_been_started_is_said_to_start() -> None:
    assert _health({"pid": 7, "restarts": 2}) == {"status": "starts: it has not said yet where it answers"}


def test_a_stack_that_never_ran_has_the_room_of_the_disk_it_will_be_on(tmp_path: Path) -> None:
    assert disk_use(tmp_path / "stacks" / "none").keys() == {"free"}


def test_the_advice_of_a_refused_start_is_for_that_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down --purge` without the name would delete the default stack."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    advised = []
    for name in ("default", "two"):
        stack = Stack(name)
        stack.folder.mkdir(parents=True)
        stack.write_facts({"options": {"shards": 1}})
        with pytest.raises(LocalError) as refused:
            stack.up(Options(shards=4), print)
        advised.append(str(refused.value).rpartition("say ")[2])
    assert advised == [
        "--shards 1, or 'millrace down --purge' and start anew.", "--shards 1, or 'millrace down --purge --stack two' and start anew.",
    ]  # fmt: skip


def test_a_server_that_cannot_be_started_now_is_tried_again_and_what_runs_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full for a while."""
    told: list[str] = []

    class Server(LocalServer):
        NAME, left = "Kafka", 2

        def __init__(self) -> None: ...

        command = is_ready = None  # type: ignore[assignment]

        def stop(self, patience_s: float = 15.0) -> None: ...

        def start(self, progress: Any = None) -> None:
            if self.left:
                self.left -= 1
                raise LocalError("The disk is full: free some space.")

    supervised: Any = object.__new__(Supervisor)
    supervised.services, supervised.facts = [], {"warnings": ["old"], "steps": []}
    supervised.stopping, supervised.deaths = threading.Event(), queue.SimpleQueue()
    supervised._tell = lambda **facts: told.append(str(facts.get("warnings"))) or supervised.facts.update(facts)
    supervised._wait_for = lambda server: supervised._ask_to_stop()
    monkeypatch.setattr(supervisor, "RESTART_MOST_S", 0)
    supervised.deaths.put(Server())
    supervised._watch()
    assert supervised.facts["steps"] == [
        "Kafka: ended; starting it again",
        "Kafka: cannot be started now; trying again. The disk is full: free some space.",
    ]
    assert [each for each in told if each != "None"] == ["['old', 'The disk is full: free some space.']", "['old']"]
