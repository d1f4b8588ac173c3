"""The command line against a real control plane, as a user runs it: its output, its exit code. A command that a signal meets, or whose
reader goes away, is a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.client import Millrace, new_id
from tests.cli.inside import command
from tests.client.cluster import ControlPlane
from tests.contract.conftest import eventually

GRAPH = "name: one\nvertices:\n  one: {sql: 'SELECT 1 AS a'}\n"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.yaml"
    path.write_text(GRAPH)
    return path


def start(plane: ControlPlane, *args: str | Path) -> subprocess.Popen[str]:
    env = {**os.environ, "MILLRACE_KAFKA_BOOTSTRAP": plane.kafka.bootstrap, "MILLRACE_TOKEN": plane.token}
    words = [sys.executable, "-c", "from deploy.cli import main; main()", *map(str, args)]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(plane: ControlPlane, *args: str | Path, code: int = 0) -> tuple[str, str]:
    done = command(*args, MILLRACE_KAFKA_BOOTSTRAP=plane.kafka.bootstrap, MILLRACE_TOKEN=plane.token)
    assert done.returncode == code, f"{args}: {done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def test_submit_show_list_cancel_result_events(plane: ControlPlane, graph: Path) -> None:
    out, err = run(plane, "submit", graph)
    job = out.strip()
    assert (job.startswith("one-"), err) == (True, "")
    shown = eventually(lambda: "waits " in (told := run(plane, "show", job)[0]) and told, "why it waits")
    assert f"job       {job}\n" in shown
    assert "waits     no TaskManager is registered" in shown
    listed = json.loads(run(plane, "list", "--json")[0])
    assert listed[0]["job"] == job
    _, err = run(plane, "result", job, code=1)
    assert err.startswith(f"millrace: job {job} is ")
    assert run(plane, "cancel", job, "--wait")[0] == f"job {job} is CANCELED\n"
    assert run(plane, "cancel", job)[0] == f"job {job} is CANCELED\n"
    told = run(plane, "events", job)[0].splitlines()
    assert told[-1].endswith(f"{job}  CANCELED")
    as_json = [json.loads(line) for line in run(plane, "events", job, "-f", "--json")[0].splitlines()]
    assert len(as_json) == len(told)
    everything = run(plane, "events")[0]
    assert all(line in everything for line in told)
    assert run(plane, "logs", job) == ("", f"job {job} has written nothing\n")
    assert run(plane, "logs", job, "--task", "one") == ("", f"job {job} has written nothing to this\n")
    assert f"job {job} has no vertex 'two'; it has: one" in run(plane, "logs", job, "--task", "two", code=2)[1]


def test_wait_for_a_job_that_is_canceled(plane: ControlPlane, millrace: Millrace, graph: Path) -> None:
    job = new_id("cli")
    process = start(plane, "submit", graph, "--wait", "--job", job)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert job in first
    millrace.cancel(job)
    out, err = process.communicate(timeout=150)
    assert (process.returncode, out) == (5, "")
    assert err.splitlines()[-1].endswith("CANCELED")


def test_ctrl_c_leaves_the_job(plane: ControlPlane, millrace: Millrace, graph: Path) -> None:
    job = new_id("cli")
    process = start(plane, "submit", graph, "--wait", "--job", job)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=150)
    assert process.returncode == 130
    assert err.splitlines()[-1] == (
        f"job {job} goes on. Follow it: millrace events {job} -f    cancel it: millrace cancel {job}"
    )
    assert millrace.cancel(job) != "CANCELED"


def test_refusals_of_the_cluster(plane: ControlPlane, graph: Path) -> None:
    job = run(plane, "submit", graph)[0].strip()
    graph.write_text(GRAPH.replace("name: one", "name: two"))
    _, err = run(plane, "submit", graph, "--job", job, code=2)
    assert err == f"millrace: job {job} exists with another graph or other parameters; submit under another id\n"
    graph.write_text(f"{GRAPH}conf: {{spark.master: mesos}}\n")
    _, err = run(plane, "submit", graph, code=2)
    assert err.splitlines() == [
        f"{graph}:4:8: conf.spark.master: 'mesos' is no master: a master is local[N], spark://HOST:PORT (several by commas), yarn or "
        "k8s://https://HOST:PORT; without one, the job runs in its slot's own Spark",
        "not accepted: 1 problem",
    ]
    for word in ("show", "cancel", "result", "logs", "events", "run-again", "repair"):
        assert run(plane, word, "no-such-job", code=1)[1] == "millrace: there is no job no-such-job\n"
        _, err = run(plane, word, "no id!", code=2)
        assert err.startswith("millrace: 'no id!' is no job's id: it begins with a letter or digit,")
    run(plane, "cancel", job)


NOT_YET = "it can be run again once it has ended"


def test_a_job_is_run_again_once_it_has_ended_and_not_before(plane: ControlPlane, graph: Path) -> None:
    job = run(plane, "submit", graph)[0].strip()
    assert run(plane, "run-again", job, code=1)[1] == f"millrace: job {job} is RUNNING: {NOT_YET}\n"
    run(plane, "cancel", job, "--wait")
    again = run(plane, "run-again", job)[0].strip()
    assert again.startswith("one-") and again != job
    assert run(plane, "run-again", job, "--job", again)[0].strip() == again, "the same id and graph is the same job"
    shown = run(plane, "show", again)[0]
    assert f"job       {again}\n" in shown and f"again     from {job}\n" in shown
    run(plane, "cancel", again)


def test_a_repair_is_refused_with_what_to_do_instead(plane: ControlPlane, graph: Path) -> None:
    job = run(plane, "submit", graph)[0].strip()
    lives = f"millrace: job {job} is RUNNING: it can be repaired once it has FAILED or was CANCELED\n"
    assert run(plane, "repair", job, code=1)[1] == lives
    run(plane, "cancel", job, "--wait")
    nothing = f"nothing of job {job} had finished that could be kept: run it again (millrace run-again {job})"
    assert run(plane, "repair", job, code=2)[1] == f"millrace: {nothing}\n"
    assert run(plane, "repair", job, "--graph", graph, code=2)[1] == f"millrace: {nothing}\n"
    assert "give --graph or --file" in run(plane, "repair", job, "--graph", graph, "--file", graph, code=2)[1]
    (graph.parent / "one.py").touch()
    assert "one.py is no file of this job; there are none" in run(plane, "repair", job, "--file", graph.parent / "one.py", code=2)[1]


@pytest.mark.long
def test_without_etcd_a_submission_is_given_up_and_not_accepted_behind_its_users_back(plane: ControlPlane, graph: Path) -> None:
    job = new_id("cli")
    plane.etcd.stop()
    try:
        _, err = run(plane, "submit", graph, "--job", job, code=4)
    finally:
        plane.etcd.start()
    why = "the Dispatcher lives, and has not stored it in time; are etcd and storage there?"
    assert err == f"millrace: it is not known whether job {job} was accepted ({why}); ask: millrace show {job}\n"
    until_known = start(plane, "submit", graph, "--job", new_id("cli"))  # its answer stands behind that of the first
    assert until_known.communicate(timeout=150)[1] == ""
    assert run(plane, "show", job, code=1)[1] == f"millrace: there is no job {job}\n"


def test_the_cluster_without_workers(plane: ControlPlane) -> None:
    assert run(plane, "taskmanagers")[1] == "no TaskManager is registered: jobs wait until one is\n"
    assert json.loads(run(plane, "slots", "--json")[0]) == []
    assert json.loads(run(plane, "taskmanagers", "--json")[0]) == []


def test_who_stops_reading_hears_no_complaint(plane: ControlPlane) -> None:
    process = start(plane, "schema")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(120), err) == (1, "")
