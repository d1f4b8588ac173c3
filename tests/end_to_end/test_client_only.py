"""The client library alone, in an environment without any other part of Millrace, against a real stack."""

from __future__ import annotations

import json

import pytest

from tests.client.alone import ROOT, shared
from tests.end_to_end.running import LIMIT_S, RunningStack

LIBRARY = """
import json, os
from millrace.client import Millrace

with Millrace(os.environ["MILLRACE_KAFKA_BOOTSTRAP"], token=os.environ["MILLRACE_TOKEN"]) as millrace:
    job = millrace.submit({"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS a"}}})
    print(json.dumps([[event["type"] for event in job.events()][-1], job.result().rows]))
"""


def test_the_client_alone_submits_jobs_and_gets_their_results_logs_and_files(
    running: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alone = shared(tmp_path_factory)
    cluster = {"MILLRACE_KAFKA_BOOTSTRAP": running.facts["kafka_bootstrap"], "MILLRACE_TOKEN": running.token}

    def ran(*command: str) -> str:
        done = alone.run(*command, **cluster)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "Hello from Spark" in ran("millrace", "submit", str(ROOT / "examples" / "hello.yaml"), "--wait")
    assert json.loads(ran("python", "-c", LIBRARY)) == ["JobFinished", [[1]]]
    script = running.python_file("open('left.txt', 'w').write('kept')\nprint('written')")
    job = ran("millrace", "submit", str(script)).strip()
    assert running.client.wait(job, LIMIT_S).status == "FINISHED"
    assert ran("millrace", "logs", job) == "written\n"
    assert ran("millrace", "files", job, "--get", "left.txt") == "kept"
    assert f"job       {job}" in ran("millrace", "show", job)
