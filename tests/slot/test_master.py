"""Attempts of jobs with a master of their own: a Spark cluster runs their tasks, and a slot stays what it was."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.processes import free_port
from tests.slot.lifecycle import SESSION, Slot, wait_until
from tests.slot.standalone import Standalone, standalone

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
SMALL = {"spark.executor.memory": "512m", "spark.cores.max": "2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master and a worker with two cores."""
    with standalone(tmp_path_factory.mktemp("spark")) as running:
        yield running


def test_an_attempt_runs_on_the_cluster_that_its_job_names_and_leaves_it_whole(slot: Slot, cluster: Standalone) -> None:
    conf = {**SMALL, "spark.master": cluster.url, "spark.eventLog.enabled": "true"}
    code = "[sc.master, spark.range(10).count(), sc.range(4).map(lambda x: helper.twice(x)).sum(), sc._jsc.sc().isLocal()]"
    files = {"helper.py": b"def twice(x): return 2 * x\n"}
    attempt = slot.run(f"import helper, json\nprint(json.dumps({code}))", conf=conf, files=files)
    assert attempt.value == [cluster.url, 10, 12, False]
    assert not cluster.executors(), "they were given back before the attempt was reported as ended"
    logs = sorted(path.name for path in attempt.work.glob("spark-events/*/[!.]*"))
    assert len(logs) == 2 and not any(name.endswith(".inprogress") for name in logs), logs
    assert slot.value("[sc.master, spark.range(10).count()]") == [slot.config.master, 10]


def test_a_kill_ends_what_executors_run(slot: Slot, cluster: Standalone) -> None:
    begun = slot.folder / "begun"
    attempt = slot.start(
        SESSION + f"def stuck(x):\n    open({str(begun)!r}, 'w').close()\n    while True: pass\n"
        "sc.parallelize([1, 2], 2).map(stuck).collect()",
        conf={**SMALL, "spark.master": cluster.url},
    )
    slot.until("running")
    wait_until(begun.exists, "a task began")
    slot.kill(attempt, "enough")
    assert slot.end(attempt).ended["status"] == "killed"
    wait_until(lambda: not cluster.executors(), "the executors ended")


def test_a_master_that_does_not_answer_fails_the_attempt_alone_and_it_may_be_tried_again(slot: Slot) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    error = slot.run("print('never')", conf={"spark.master": master}).ended["error"]
    assert (error["kind"], error["retryable"], error["condition"]) == ("jvm", True, "NO_SPARK_CLUSTER")
    assert error["message"].startswith(f"Spark does not start on {master}: ")
    assert "All masters are unresponsive" in error["detail"]
    assert slot.value("1 + 1") == 2


def hides(folder: Path) -> list[str]:
    """A command in front of another one, to which this folder is an empty one of its own: as on another machine."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]


def may_hide(folder: Path) -> bool:
    command = [*hides(folder), "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_executors_that_do_not_see_the_storage_end_the_attempt_before_it_computes(slot: Slot, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    if not may_hide(storage):
        pytest.skip("this machine gives no process a view of its own of the file system")
    with standalone(tmp_path, before=hides(storage)) as elsewhere:
        attempt = slot.start("", conf={**SMALL, "spark.master": elsewhere.url}, spec={
            "vertices": [{"id": "q", "sql": "SELECT 1 AS a", "inputs": {}}],
            "outputs": [{"vertex": "q", "edge": "broadcast", "folder": str(storage / "run" / "0-q" / "0" / "1" / "0-q")}],
        })  # fmt: skip
        error = slot.end(attempt).ended["error"]
        assert (error["kind"], error["retryable"], error["condition"]) == ("user", False, "STORAGE_NOT_SHARED")
        assert [path for path in storage.rglob("*") if path.is_file()] == []


def test_the_slots_own_master_is_no_reason_for_a_jvm_of_its_own(slot: Slot) -> None:
    slot.seen.clear()
    assert slot.value("sc.master", conf={"spark.master": slot.config.master}) == slot.config.master
    assert "replacing" not in [event["is"] for event in slot.seen]
    assert slot.value("[sc.master, sc.defaultParallelism]", conf={"spark.master": "local[3]"}) == ["local[3]", 3]
