"""Kafka or etcd goes away while a job runs and comes back: services wait and go on by themselves, and the job does not notice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from deploy.local.processes import is_running
from tests.end_to_end.running import Held, RunningStack, until


@pytest.mark.parametrize(
    "word, number", [("kafka.Kafka", signal.SIGKILL), ("etcd", signal.SIGTERM)], ids=["Kafka", "etcd"]
)
def test_a_server_that_ends_is_started_again_and_nothing_is_lost(
    running: RunningStack, tmp_path: Path, word: str, number: signal.Signals
) -> None:
    held = Held(running, tmp_path / "held", settings={"restart": {"strategy": "none"}})
    pids = held.started()
    held.watched.running()
    server = running.server(word)
    server.send_signal(number)
    until("the end of the server", lambda: not is_running(server))
    assert running.sql("SELECT 'as soon as it is back' AS a").rows == [["as soon as it is back"]]
    assert running.server(word).pid != server.pid
    assert held.pids == pids
    assert held.let_go().end["type"] == "JobFinished"
    assert held.watched.attempts() == [("main", 0, 1)]
