"""`millrace replay` on a running cluster: what it tells is what happened, and it changes nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from millrace.cli.replay import app, opened
from millrace.core.topics import DISPATCHER
from services.replay.core.recorded import Recorded
from tests.end_to_end.running import RunningStack, until


def replay(running: RunningStack, *words: object) -> Result:
    return CliRunner().invoke(app, [*(str(word) for word in words), "--stack", running.stack.name])


def shown(running: RunningStack, *words: object) -> Any:
    done = replay(running, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_live_cluster_folds_to_the_same_words_and_tells_a_jobs_story(running: RunningStack, tmp_path: Path) -> None:
    job = running.sql("SELECT 4 AS four")
    assert job.rows == [[4]]
    story = shown(running, "story", job.id)
    assert (story["status"], story["attempts"]) == ("FINISHED", 1)
    assert [step["type"] for step in story["steps"]][:2] == ["SubmitJob", "SubmitJob"]
    stored = next(step for step in story["steps"] if step["type"] == "JobGraphStored")
    offset = int(stored["place"].partition("@")[2])

    found = shown(running, "state", DISPATCHER, "--at", offset, "--path", f"state.live.{job.id}.status")
    assert (found["offset"], found["state"]) == (offset, "INITIALIZING")
    assert shown(running, "state", DISPATCHER, "--path", f"state.ended.{job.id}.status")["state"] == "FINISHED"
    changed = shown(running, "diff", DISPATCHER, offset - 1, offset)
    assert f"state.live.{job.id}" in [each["path"] for each in changed["changes"]]

    report = shown(running, "verify")
    assert report["first_difference"] is None
    assert all(each["compared"] for each in report["scopes"])
    path = tmp_path / "cluster.zip"
    assert replay(running, "export", path).exit_code == 0
    done = CliRunner().invoke(app, ["verify", "--file", str(path)])
    assert done.exit_code == 0 and "0 differences" in done.stdout


def test_what_is_written_now_is_followed(running: RunningStack) -> None:
    """By the source, for the command goes on until Ctrl-C."""
    seen: list[Recorded] = []
    reading = threading.Event()

    def follow() -> None:
        with opened(None, running.stack.name) as source:
            source.logs()
            reading.set()
            for each in source.follow():  # type: ignore[attr-defined]
                seen.append(each)
                if each.topic == "job.events" and b'"JobFinished"' in each.value:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert reading.wait(30)
    job = running.sql("SELECT 5 AS five")
    assert job.rows == [[5]]
    thread.join(60)
    assert not thread.is_alive()
    assert {"client.commands", "dispatcher.commands", "job-master.commands", "job.events"} <= {each.topic for each in seen}
    assert seen[-1].key == job.id


def test_a_cluster_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, running: RunningStack) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("MILLRACE_ETCD_ENDPOINT", running.facts["etcd_endpoint"])
    done = replay(running, "verify")
    assert done.exit_code == 3 and "127.0.0.1:1" in done.stderr
    until("the stack is as it was", running.idle)
