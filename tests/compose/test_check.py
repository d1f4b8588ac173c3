"""What stands before the compose file's other containers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.docker.check import make_token, problem
from millrace.runtime.health import HealthServer

HEALTHY = Path(__file__).parents[2] / "deploy" / "docker" / "healthy.py"

SIZES = {
    **{"KAFKA_MB": "1024", "ETCD_MB": "256", "CONTROL_MB": "256", "TASK_MANAGER_MB": "2048", "SLOT_HEAP_MB": "1024"},
    **{"SLOTS": "1", "TASK_MANAGERS": "2", "CONTROLS": "6", "PROFILES": "single", "SPARK_WORKER_MB": "512"},
    **{"PROMETHEUS_MB": "300", "GRAFANA_MB": "200", "JAEGER_MB": "100"},
}


def test_enough_is_no_problem():
    assert problem(SIZES, 6912) is None


def test_too_little_memory_is_told_with_what_to_do():
    assert problem(SIZES, 6911) == (
        "the containers may take 6912 MB of memory together and Docker has 6911 MB: give Docker more, "
        "or lower TASK_MANAGERS or the sizes that end in _MB, in .env."
    )


def test_three_brokers_need_more():
    assert problem({**SIZES, "PROFILES": "ha"}, 6912 + 2 * 1280 - 1) is not None
    assert problem({**SIZES, "PROFILES": "ha"}, 6912 + 2 * 1280) is None


def test_a_spark_master_and_its_workers_need_more():
    assert problem({**SIZES, "PROFILES": "single,spark"}, 6912 + 3 * 512 - 1) is not None
    assert problem({**SIZES, "PROFILES": "single,spark"}, 6912 + 3 * 512) is None


def test_prometheus_and_grafana_need_more():
    assert problem({**SIZES, "PROFILES": "single,monitoring"}, 6912 + 500 - 1) is not None
    assert problem({**SIZES, "PROFILES": "single,monitoring"}, 6912 + 500) is None


def test_jaeger_needs_more():
    assert problem({**SIZES, "PROFILES": "single,traces"}, 6912 + 100 - 1) is not None
    assert problem({**SIZES, "PROFILES": "single,monitoring,traces"}, 6912 + 600) is None


def test_a_task_manager_too_small_for_its_slots():
    assert problem({**SIZES, "SLOTS": "2"}, 64_000) == (
        "TASK_MANAGER_MB=2048 is too little for 2 slot(s) with heaps of 1024 MB: give it 3328, "
        "or lower SLOTS or SLOT_HEAP_MB, in .env."
    )


@pytest.mark.parametrize("wrong", [{"SLOTS": "many"}, {"SLOTS": ""}])
def test_a_size_that_is_no_number(wrong):
    assert "a size of .env is missing or no number" in (problem({**SIZES, **wrong}, 64_000) or "")


def test_the_sizes_of_the_env_file_fit_each_other():
    told = dict(re.findall(r"^([A-Z0-9_]+)=(.+)$", (Path(__file__).parents[2] / ".env").read_text(), re.MULTILINE))
    assert problem({**told, "CONTROLS": "7"}, 8 * 1024) is None


def test_the_token_is_made_once(tmp_path):
    make_token(tmp_path)
    token = (tmp_path / "blob-token").read_text()
    make_token(tmp_path)
    assert (tmp_path / "blob-token").read_text() == token
    assert (tmp_path / "dispatcher.yaml").read_text() == f'dispatcher: {{blob_token: "{token}"}}\n'
    assert (tmp_path / "blob-token").stat().st_mode & 0o077 == 0


def test_a_token_that_is_empty_is_made_again(tmp_path):
    """The machine stopped between the file's making and its writing: the cluster could never start again."""
    (tmp_path / "blob-token").touch()
    make_token(tmp_path)
    token = (tmp_path / "blob-token").read_text()
    assert len(token) == 32 and token in (tmp_path / "dispatcher.yaml").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blob-token", "dispatcher.yaml", "web.yaml"]


def test_the_web_service_has_the_token_too_also_in_a_cluster_that_has_one_already(tmp_path):
    make_token(tmp_path)
    told = f'web: {{blob_token: "{(tmp_path / "blob-token").read_text()}"}}\n'
    assert (tmp_path / "web.yaml").read_text() == told
    (tmp_path / "web.yaml").unlink()
    make_token(tmp_path)
    assert (tmp_path / "web.yaml").read_text() == told
    (tmp_path / "blob-token").write_text("")
    make_token(tmp_path)
    assert (tmp_path / "blob-token").read_text() in (tmp_path / "web.yaml").read_text() != told


@pytest.mark.parametrize(("asked", "given", "status", "code"), [
    ("", "", "ok", 0), ("", "", "failing", 1), ("a token of metrics", "a token of metrics", "ok", 0), ("a token of metrics", "", "ok", 0),
    ("a token of metrics", "a token of metrics", "failing", 1), ("a token of metrics", "another one", "ok", 1),
])  # fmt: skip
def test_a_container_is_healthy_as_its_service_says(asked: str, given: str, status: str, code: int) -> None:
    """It was not let in, and every container was unhealthy: it named no place, nor a token. One in a file of settings it cannot know."""
    server = HealthServer(lambda: {"status": status}, token=asked)
    env = {"MILLRACE_HEALTH_PORT": str(server.start()), "MILLRACE_METRICS_TOKEN": given}
    try:
        assert subprocess.run([sys.executable, "-IS", str(HEALTHY)], env=env, timeout=60, check=False).returncode == code
    finally:
        server.stop()
