"""What jobs do, and what can be asked of them: scripts as for spark-submit, settings, retries, the queue, logs, archives."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from millrace.client import Millrace, NotFinished, Unavailable
from tests.end_to_end.running import Held, RunningStack, Watched, until


def stdout(running: RunningStack, job: Watched, **which: bool) -> str:
    pieces = [piece for piece in running.client.logs(job.id, **which) if piece.stream == "stdout"]
    return b"".join(piece.data for piece in sorted(pieces, key=lambda piece: piece.attempt)).decode()


def test_a_script_as_for_spark_submit(running: RunningStack, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def word():\n    return 'helped'\n")
    (tmp_path / "words.txt").write_text("one two\ntwo\n")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("services/__init__.py", "NAME = 'a package of the user called services'\n")
    job = running.script(
        """
        import sys
        import helper, services
        from pyspark import SparkFiles
        from pyspark.sql import SparkSession
        from pyspark.sql.functions import udf

        if __name__ == "__main__":
            spark = SparkSession.builder.appName("my app").config("spark.sql.shuffle.partitions", 3).getOrCreate()
            print(sys.argv[1:], helper.word(), services.NAME)
            print(open("words.txt").read().split(), open(SparkFiles.get("words.txt")).readline().strip())
            print(spark.range(1).select(udf(lambda _: helper.word())("id")).first()[0])
            print(spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.session.timeZone"))
            spark.stop()
        """,
        ["a b", "$x", "${y}", "--flag=1", ""],
        conf={"spark.sql.session.timeZone": "Asia/Tokyo"},
        py_files=[tmp_path / "helper.py", tmp_path / "packed.zip"],
        files=[tmp_path / "words.txt"],
    )
    assert job.end["type"] == "JobFinished", job.end
    assert stdout(running, job).splitlines() == [
        "['a b', '$x', '${y}', '--flag=1', ''] helped a package of the user called services",
        "['one', 'two', 'two'] one two",
        "helped",
        "3 Asia/Tokyo",
    ]


@pytest.mark.long
def test_static_settings_give_a_job_a_jvm_of_its_own(running: RunningStack, tmp_path: Path) -> None:
    code = """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.getOrCreate()
        jvm = spark._jvm
        print(jvm.java.lang.ProcessHandle.current().pid(), jvm.java.lang.System.getProperty("mine"))
        print(spark.conf.get("spark.sql.warehouse.dir"), spark.sparkContext.getConf().get("spark.executor.heartbeatInterval"))
        """
    warehouse = f"file:{tmp_path}/warehouse"
    conf = {
        "spark.driver.extraJavaOptions": "-Dmine=yes",
        "spark.sql.warehouse.dir": warehouse,
        "spark.executor.heartbeatInterval": "7s",
    }
    job = running.script(code, conf=conf)
    assert job.end["type"] == "JobFinished", job.end
    pid, *values = stdout(running, job).split()
    assert values == ["yes", warehouse, "7s"]
    after = [running.script(code) for _ in range(2)]
    for each in after:
        assert each.end["type"] == "JobFinished", each.end
        other, mine, *_ = stdout(running, each).split()
        assert (mine, other != pid) == ("None", True)


@pytest.mark.long
def test_a_setting_that_spark_refuses_fails_the_job_with_its_name(running: RunningStack) -> None:
    job = running.script("print(1)", conf={"spark.driver.extraJavaOptions": "-agentlib:nosuch"}, settings={
        "restart": {"strategy": "none"}
    })  # fmt: skip
    assert "spark.driver.extraJavaOptions" in job.cause["message"], job.cause
    assert running.sql("SELECT 1 AS a").rows == [[1]]


def test_a_failure_is_tried_again_and_the_second_attempt_counts(running: RunningStack, tmp_path: Path) -> None:
    job = running.script(
        """
        import pathlib, sys
        mark = pathlib.Path(sys.argv[1])
        print("attempt", 2 if mark.exists() else 1)
        if not mark.exists():
            mark.touch()
            raise RuntimeError("not yet")
        """,
        [tmp_path / "mark"],
        settings={"restart": {"attempts": 1, "delay_ms": 0}},
    )
    assert job.end["type"] == "JobFinished", job.end
    failed = job.event("AttemptStateChanged", state="FAILED", attempt=1)
    assert failed["error"]["message"] == "RuntimeError: not yet"
    assert job.attempts("RUNNING") == [("main", 0, 1), ("main", 0, 2)]
    assert stdout(running, job) == "attempt 2\n"
    assert stdout(running, job, every_attempt=True) == "attempt 1\nattempt 2\n"


def test_more_jobs_than_slots_wait_with_reason_and_place(running: RunningStack, tmp_path: Path) -> None:
    """Two run, three wait: one of those is cancelled, one gives up, one finishes."""
    held = [Held(running, tmp_path / str(n)) for n in range(2)]
    for each in held:
        each.started()
    waits = running.sql("SELECT 'waited' AS a")
    told = waits.event("JobWaiting")
    assert (told["reason"], told["position"]) == ("all 2 slots of 2 TaskManagers are busy", 1)
    cancelled = running.sql("SELECT 2 AS a")
    cancelled.event("JobWaiting")
    both = (waits.id, cancelled.id)
    until("a place for both", lambda: {running.client.status(job).position for job in both} == {1, 2})
    gives_up = running.sql("SELECT 3 AS a", timeouts={"queue_ms": 300})
    assert gives_up.cause["kind"] == "timeout", gives_up.cause
    assert running.client.status(waits.id).waiting == told["reason"]
    cancelled.job.cancel()
    assert cancelled.end["type"] == "JobCanceled"
    until("the first place", lambda: running.client.status(waits.id).position == 1)
    for job in (cancelled, gives_up):
        assert job.attempts() == []
    for each in held:
        assert each.let_go().end["type"] == "JobFinished"
    assert waits.rows == [["waited"]]


def test_a_job_that_no_slot_is_large_enough_for_says_so(running: RunningStack) -> None:
    job = running.sql("SELECT 1 AS a", resources={"memory_mb": 100_000})
    told = job.event("JobWaiting")
    assert "100000 MB" in told["reason"] and "512" in told["reason"], told
    job.job.cancel()
    assert job.end["type"] == "JobCanceled"


def test_an_ended_job_is_answered_for_after_the_dispatcher_was_killed(running: RunningStack) -> None:
    finished = running.sql("SELECT 1 AS a, 'x' AS b, CAST(NULL AS DOUBLE) AS c")
    assert finished.rows == [[1, "x", None]]
    failed = running.script("print('said before'); raise KeyError('k')", settings={"restart": {"strategy": "none"}})
    assert failed.cause["message"] == "KeyError: 'k'"
    old = running.pid("dispatcher")
    running.kill("dispatcher")
    running.started_again("dispatcher", old)

    summary, detail, cause = running.client.show(finished.id)
    assert (summary.status, summary.name, cause) == ("FINISHED", "query", None)
    assert detail is not None
    assert [(task.task, [each.attempt for each in task.subtasks]) for task in detail.tasks] == [("query", [1])]
    result = running.client.result(finished.id)
    assert (result.columns, result.types, result.rows) == (["a", "b", "c"], ["int", "string", "double"], [[1, "x", None]])
    summary, _, cause = running.client.show(failed.id)
    assert summary.status == "FAILED"
    assert cause is not None and (cause.file, cause.line) == ("main.py", 1)
    written = {piece.stream: piece.data.decode() for piece in running.client.logs(failed.id)}
    assert written["stdout"] == "said before\n"
    lines = written["stderr"].splitlines()
    assert lines[0].startswith("Traceback") and "main.py" in lines[1] and lines[-1] == "KeyError: 'k'"
    try:
        running.client.result(failed.id)
    except NotFinished as refused:
        assert "KeyError: 'k'" in str(refused)
    else:
        raise AssertionError("a FAILED job has no result")


def test_a_large_result_is_cut_and_said_to_be(running: RunningStack) -> None:
    job = running.sql("SELECT id, repeat('x', 100) AS x FROM range(1500) ORDER BY id")
    assert job.rows == [[n, "x" * 100] for n in range(1000)]
    assert job.job.result().truncated


def test_results_and_logs_are_given_for_the_token_alone(running: RunningStack) -> None:
    job = running.sql("SELECT 1 AS a")
    assert job.rows == [[1]]
    for token in ("", "wrong"):
        with Millrace(running.facts["kafka_bootstrap"], token=token) as stranger:
            assert stranger.status(job.id).status == "FINISHED"
            with pytest.raises(Unavailable, match="token"):
                stranger.result(job.id)


def test_exchange_goes_at_the_jobs_end_and_disk_use_is_told(running: RunningStack) -> None:
    rows = {"sql": "SELECT id AS k, id * 2 AS v FROM range(1000)"}
    sums = {"sql": "SELECT k % 3 AS g, sum(v) AS s FROM rows GROUP BY k % 3", "inputs": {"rows": "hash(k)"}, "parallelism": 2}
    all_ = {"sql": "SELECT g, sum(s) AS s FROM sums GROUP BY g ORDER BY g", "inputs": {"sums": "broadcast"}}
    job = running.submit({"name": "exchange", "vertices": {"rows": rows, "sums": sums, "all_": all_}})
    assert job.rows == [[g, sum(2 * k for k in range(1000) if k % 3 == g)] for g in range(3)]
    exchange = Path(running.facts["storage"]) / "exchange"
    assert exchange.is_dir(), "its data was here"
    acceptance = running.client.show(job.id).detail.acceptance
    until("the end of its exchange data", lambda: not (exchange / acceptance).exists())  # of jobs that failed they are kept
    disk = running.stack.status()["disk"]
    assert {"kafka", "etcd", "storage", "work", "logs"} <= set(disk)
    assert disk["storage"] > 0 and disk["free"] > 0
