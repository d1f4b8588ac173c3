"""`millrace replay` on a running cluster: what it tells is what happened, and it changes nothing."""

from __future__ import annotations

import base64
import json
import re
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Producer
from typer.testing import CliRunner

from deploy.cli.replay import app, opened
from millrace.client import MillraceError
from millrace.core.topics import DISPATCHER
from services.replay.core.recorded import Recorded
from tests.end_to_end.running import LIMIT_S, RunningStack, until


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


def plant(running: RunningStack, folder: Path) -> set[str]:
    """Runs jobs that have a word of their own wherever their owner can write one; the words."""
    data = folder / "planted-folder"
    data.mkdir()
    (data / "planted-file.csv").write_text("planted_column,n\nplanted-row,17\nplanted-second,18\n")
    good = """
        def planted_function(both):
            return both.selectExpr("planted_column", "n", "'planted-value' AS planted_new")
    """
    bad = """
        def planted_failing(one):
            raise ValueError("planted-message")
    """
    source = {"format": "csv", "path": f"file://{data}", "options": {"header": "true", "nullValue": "planted-option"}}
    hashed = {"rows": "hash(planted_column)", "again": "hash(planted_column)"}
    graph = {
        "name": "planted-name", "parameters": {"planted_parameter": "planted-default"},
        "conf": {"spark.sql.planted.key": "planted-setting"}, "result": "made",
        "vertices": {
            "rows": {"source": source, "parallelism": 2},
            "again": {"sql": "SELECT 'planted-row' AS planted_column, '${planted_parameter}' AS x"},
            "both": {"sql": "SELECT planted_column, n FROM rows JOIN again USING (planted_column)", "inputs": hashed},
            "made": {"python": "planted_module:planted_function", "inputs": {"both": "forward"}},
            "out": {"sink": {"format": "csv", "path": f"file://{folder}/planted-sink"}, "inputs": {"made": "forward"}},
        },
    }  # fmt: skip
    for name, text in (("planted_module", good), ("planted_broken", bad)):
        sha256, path = running.module(text, f"{name}.py")
        more = {"modules": [{"name": path.name, "sha256": sha256}]}
        if name == "planted_module":
            done = running.submit({**graph, **more}, {sha256: path}, parameters={"planted_parameter": "planted-given"}, job="done-1")
            assert done.rows == [["planted-row", "17", "planted-value"]]
        else:
            two = {"one": {"sql": "SELECT 1"}, "two": {"python": f"{name}:planted_failing", "inputs": {"one": "forward"}}}
            assert "planted-message" in running.submit(
                {"name": "failing", "vertices": two, "restart": {"strategy": "none"}, **more}, {sha256: path}
            ).cause["message"]
    with pytest.raises(MillraceError):
        running.sql("SELEC planted-mistake")
    producer = Producer({"bootstrap.servers": running.facts["kafka_bootstrap"]})
    stranger = {"type": "planted-type", "version": 1, "planted-field": {"planted-inner": "planted-text"}}
    producer.produce("client.commands", json.dumps(stranger), "planted-key", headers={"ce_id": "/planted-source/1"})
    producer.produce("client.commands", b"planted-bytes \xff")
    assert producer.flush(LIMIT_S) == 0
    running.client.check_dispatcher()
    return {
        "folder", "file", "column", "row", "function", "value", "new", "failing", "message", "option", "name",
        "parameter", "given", "key", "setting", "module", "sink", "broken", "mistake", "type", "field", "inner", "text", "source", "bytes",
    }  # fmt: skip


@pytest.mark.long
def test_a_redacted_export_folds_and_has_no_word_of_the_jobs_owners(running: RunningStack, tmp_path: Path) -> None:
    words = plant(running, tmp_path)
    found: list[set[str]] = []
    for path, more in ((tmp_path / "whole.zip", ()), (tmp_path / "redacted.zip", ("--redact",))):
        assert replay(running, "export", path, *more).exit_code == 0
        done = CliRunner().invoke(app, ["verify", "--file", str(path)])
        assert done.exit_code == 0 and "0 differences" in done.stdout, done.output
        with zipfile.ZipFile(path) as read:
            text = "\n".join(read.read(name).decode(errors="replace") for name in read.namelist())
        for word in re.findall(r'"head_base64":"([^"]*)"', text):
            text += base64.b64decode(word, validate=False).decode(errors="replace") if word[:8] != "redacted" else ""
        found.append({word.lower() for word in re.findall(r"planted[-_.]([a-zA-Z]+)", text)})
        assert "Traceback" in text or path.name == "redacted.zip"
    assert words - found[0] == set(), "each stands in the logs as they are"
    assert found[1] == set() and "Traceback" not in text and "SELECT" not in text and str(tmp_path) not in text


def test_what_is_written_now_is_followed(running: RunningStack) -> None:
    """By the source, for the command goes on until Ctrl-C. Each log is fetched by itself: what was written first may come last."""
    seen: list[Recorded] = []
    reading = threading.Event()
    logs = {"client.commands", "dispatcher.commands", "job-master.commands", "job.events"}

    def ended() -> list[Recorded]:
        return [each for each in seen if each.topic == "job.events" and b'"JobFinished"' in each.value]

    def follow() -> None:
        with opened(None, running.stack.name) as source:
            source.logs()
            reading.set()
            for each in source.follow():
                seen.append(each)
                if ended() and logs <= {each.topic for each in seen}:
                    return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert reading.wait(LIMIT_S)
    job = running.sql("SELECT 5 AS five")
    assert job.rows == [[5]]
    thread.join(LIMIT_S)
    assert not thread.is_alive(), {each.topic for each in seen}
    assert [each.key for each in ended()] == [job.id]


@pytest.mark.long
def test_a_cluster_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, running: RunningStack) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("MILLRACE_ETCD_ENDPOINT", running.facts["etcd_endpoint"])
    done = replay(running, "verify")
    assert done.exit_code == 3 and "127.0.0.1:1" in done.stderr
    until("the stack is as it was", running.idle)
