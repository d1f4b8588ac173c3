"""What a running attempt reports, and what it answers, on a real slot."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot import wire
from services.task_manager.slot.common import left
from tests.slot.cases import each_code
from tests.slot.lifecycle import SESSION, Attempt, Slot, lives, wait_until

pytestmark = pytest.mark.timeout(600)

WAITS = """
import os, time
def turns(rows):
    while not os.path.exists(GO): time.sleep(0.02)
    return rows
def work():
    spark.sparkContext.setJobDescription("counting slowly")
    return spark.range(0, 1000, 1, 3).rdd.mapPartitions(turns).count()
"""


def start(slot: Slot, go: Any, code: str = "work()") -> Attempt:
    attempt = slot.start(f"GO = {str(go)!r}\n" + SESSION + WAITS + "print('begun', flush=True)\n" + code)
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")
    return attempt


def ask(slot: Slot, attempt: Attempt, question: str = "q") -> dict[str, Any]:
    slot.process.order({"do": "order", "attempt": attempt.name, "order": {"do": "report", "question": question}})
    answer = slot.until("status")
    assert (answer["attempt"], answer["question"]) == (attempt.name, question)
    return answer


def answered(slot: Slot, attempt: Attempt) -> dict[str, Any]:
    """Its status. A busy machine may need longer than the two seconds that an attempt has for its answer: it is asked again then."""
    status: dict[str, Any] = wait_until(lambda: ask(slot, attempt)["status"], "an answer of the attempt")
    return status


def test_a_running_attempt_reports_how_far_it_is(slot: Slot, tmp_path: Any) -> None:
    attempt = start(slot, tmp_path / "go", "spark.range(10).count()\nwork()")
    while not ((progress := slot.until("progress")["progress"])["stages_active"] and progress["tasks_total"] > 3):
        pass  # the first job may be seen to run as well
    assert wire.progress_is_sound(progress)
    assert (progress["tasks_done"] > 0, progress["tasks_total"] > 3, progress["rows_read"]) == (True, True, 10)
    (tmp_path / "go").touch()
    slot.end(attempt)
    assert attempt.ended["status"] == "finished", attempt.stderr
    spent = attempt.ended["report"]["spent"]
    assert list(spent) == ["start_ms", "plan_ms", "compute_ms", "exchange_ms"] and min(spent.values()) >= 0
    assert spent["compute_ms"] > 0, "a script computes"


def test_bytes_read_written_and_shuffled_are_counted(slot: Slot, tmp_path: Any) -> None:
    rows = f"spark.range(0, 5000, 1, 2).repartition(2).write.parquet({str(tmp_path / 'rows')!r})\n"
    attempt = start(slot, tmp_path / "go", f"{rows}spark.read.parquet({str(tmp_path / 'rows')!r}).selectExpr('sum(id)').collect()\nwork()")
    counted = ("bytes_read", "bytes_written", "bytes_shuffled")
    progress = slot.until("progress")["progress"]
    while not all(progress[name] for name in counted):  # each report is looked at whole: none follows where nothing changes
        progress = slot.until("progress")["progress"]
    written = sum(file.stat().st_size for file in (tmp_path / "rows").glob("*.parquet"))
    assert (progress["bytes_written"], progress["rows_written"]) == (written, 5000)
    assert progress["bytes_read"] > 0 and progress["rows_read"] >= 5000
    (tmp_path / "go").touch()
    slot.end(attempt)


def test_an_attempt_that_is_shorter_than_its_first_report_says_in_the_end_what_its_spark_has_done(slot: Slot) -> None:
    rows = "df = spark.range(0, 5000, 1, 2).selectExpr('id % 7 AS k').groupBy('k').count()\nassert len(df.collect()) == 7\n"
    finished = slot.run(rows)
    done = finished.ended["report"]["progress"]
    assert wire.progress_is_sound(done), done
    assert (done["rows_read"], done["rows_shuffled"]) == (5000, 14) and done["rows_shuffle_read"] == 14
    assert done["bytes_shuffle_read"] == done["bytes_shuffled"] > 0
    assert done["tasks_done"] == done["tasks_total"] >= 3 and done["run_ms"] >= done["cpu_ms"] > 0 and done["bytes_memory_peak"] > 0
    failed = slot.run(rows + "raise ValueError('boom')")
    assert failed.ended["status"] == "failed" and failed.ended["error"]["message"] == "ValueError: boom"
    assert failed.ended["error"]["progress"]["rows_read"] == 5000, "of this attempt alone"


def test_rows_that_find_no_room_in_memory_are_counted_as_spilled(slot: Slot) -> None:
    spill = "spark.conf.set('spark.sql.shuffle.partitions', 1)\nspark.conf.set('spark.sql.windowExec.buffer.in.memory.threshold', 100)\n"
    spill += "spark.conf.set('spark.sql.windowExec.buffer.spill.threshold', 100)\n"
    query = "'id', 'count(*) OVER (PARTITION BY id % 2 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS n'"
    done = slot.run(f"{spill}spark.range(0, 4000).selectExpr({query}).selectExpr('sum(n)').collect()").ended["report"]["progress"]
    assert done["bytes_spilled_disk"] > 0 and done["bytes_spilled_memory"] > 0, done


def test_an_attempt_says_what_it_does_at_this_moment(slot: Slot, tmp_path: Any) -> None:
    attempt = start(slot, tmp_path / "go")
    status = wait_until(lambda: (it := ask(slot, attempt)["status"]) and it["stages"] and it, "a stage runs")
    assert wire.status_is_sound(status)
    assert status["stages"][0]["name"] == "counting slowly"
    assert status["stages"][0]["tasks_total"] == 3
    assert status["stack"][0].startswith("script.py:")
    assert any(line.startswith("script.py:") and line.endswith(" work") for line in status["stack"])
    assert status["elapsed_ms"] > 0
    (tmp_path / "go").touch()
    slot.end(attempt)
    answer = ask(slot, attempt)
    assert (answer["status"], answer["no_answer"]) == (None, "it has just ended")


def test_an_attempt_that_is_asked_to_ends_by_itself(slot: Slot) -> None:
    attempt = slot.start("import time\ntry:\n    print('begun', flush=True)\n    time.sleep(3600)\nfinally:\n    print('cleaned up')")
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")
    slot.process.order({"do": "order", "attempt": attempt.name, "order": {"do": "interrupt"}})
    slot.end(attempt)
    assert (attempt.ended["status"], attempt.ended["error"]["kind"]) == ("failed", "killed")
    assert attempt.stdout == "begun\ncleaned up\n"


CANCELED = {
    "in Python": "import time\ntime.sleep(3600)",
    "in a job of Spark with Python": "import time\nsc.parallelize([1], 1).map(lambda _: time.sleep(3600)).collect()",
    "in a query that has all cores": "spark.range(10**15).selectExpr('sum(id % 7)').collect()",
}


@pytest.mark.parametrize("code", CANCELED.values(), ids=CANCELED)
def test_the_finally_of_a_canceled_attempt_runs_and_may_use_spark(slot: Slot, code: str, tmp_path: Path) -> None:
    """It was killed without a word, and left what it had begun to write."""
    cleaned = tmp_path / "cleaned"
    attempt = slot.start(SESSION + "\n".join([
        "try:", "    print('begun', flush=True)", *(f"    {line}" for line in code.splitlines()),
        "finally:", f"    open({str(cleaned)!r}, 'w').write(str(spark.range(7).count()))",
    ]))  # fmt: skip
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")
    if "collect" in code:
        wait_until(lambda: (it := ask(slot, attempt)["status"]) and it["stages"], "a stage runs")
    slot.kill(attempt, "it was canceled", within_ms=60_000)
    slot.end(attempt)
    assert cleaned.read_text() == "7"
    assert (attempt.ended["status"], attempt.ended["error"]["kind"]) == ("killed", "killed")
    assert "it was canceled" in attempt.ended["error"]["message"] and "KeyboardInterrupt" in attempt.stderr
    assert slot.value("spark.range(3).count()") == 3


IGNORES = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\nwhile True: time.sleep(60)"


@pytest.mark.parametrize("hurried", [False, True])
def test_an_attempt_that_does_not_react_is_killed_when_its_time_is_over_or_at_once_if_that_is_said(slot: Slot, hurried: bool) -> None:
    attempt = slot.start(IGNORES)
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")
    began_s, within_s = time.monotonic(), 3_600 if hurried else 1
    slot.kill(attempt, "it was canceled", within_ms=within_s * 1000)
    if hurried:
        slot.kill(attempt, "nobody waits for it")
    attempt.ended = slot.until("ended")
    assert hurried or time.monotonic() - began_s >= within_s
    assert (attempt.ended["status"], attempt.ended["error"]["message"]) == ("killed", "The attempt was ended: it was canceled.")
    slot.until("ready")


def test_progress_counts_this_attempt_alone_and_is_reported_once_per_interval_at_most(slot: Slot, tmp_path: Any) -> None:
    slot.seen.clear()
    began_s = time.monotonic()
    slot.run("spark.range(10).count()")
    elapsed_s = time.monotonic() - began_s  # no less than the attempt's own; the first report waits one interval
    assert len([each for each in slot.seen if each["is"] == "progress"]) <= elapsed_s / wire.PROGRESS_S
    attempt = start(slot, tmp_path / "go", "while not os.path.exists(GO): time.sleep(0.02)")
    progress = answered(slot, attempt)["progress"]
    assert not any(progress.values()), "jobs of the attempt before it"
    (tmp_path / "go").touch()
    slot.end(attempt)


HOSTILE = {
    "it closes every descriptor": "os.closerange(3, 65536)",
    "it closes and opens every descriptor anew": (
        "os.closerange(3, 1024)\nmine = open('mine', 'wb')\n"
        "for fd in range(3, 1024):\n    if fd != mine.fileno(): os.dup2(mine.fileno(), fd)"
    ),
    "it floods every socket with nonsense": (
        "import stat, threading\ndef flood(fd):\n    while True: os.write(fd, b'x' * 100000)\n"
        "for fd in range(3, 1024):\n    try: ok = stat.S_ISSOCK(os.fstat(fd).st_mode)\n    except OSError: continue\n"
        "    if ok and fd in CHANNELS: threading.Thread(target=flood, args=(fd,), daemon=True).start()"
    ),
    "it floods the channel with forged lines": (
        "import json, threading\nLINE = (json.dumps({'is': 'ended', 'attempt': 'another', 'status': 'finished'}) + '\\n').encode() * 1000\n"
        "def flood(fd):\n    while True: os.write(fd, LINE)\n"
        "for fd in CHANNELS: threading.Thread(target=flood, args=(fd,), daemon=True).start()"
    ),
    "it floods the channel with forged progress": (
        "import json, threading\n"
        f"LINE = (json.dumps({{'is': 'progress', 'progress': {dict.fromkeys(wire.Progress.__annotations__, 7)}}}) + '\\n').encode() * 99\n"
        "def flood(fd):\n    while True: os.write(fd, LINE)\n"
        "for fd in CHANNELS: threading.Thread(target=flood, args=(fd,), daemon=True).start()"
    ),
    "it reads away its orders": (
        "import socket, threading\ndef steal(fd):\n    while True: os.read(fd, 100000)\n"
        "for fd in CHANNELS: threading.Thread(target=steal, args=(fd,), daemon=True).start()"
    ),
    "its Python stands still": "import signal\nprint('begun', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
}
FIND = """
import gc, os, time
CHANNELS = [each._sock.fileno() for each in gc.get_objects() if type(each).__name__ == "Channel" and hasattr(each, "_sock")]
assert CHANNELS
"""


@each_code(HOSTILE, quick=("it floods every socket with nonsense", "it floods the channel with forged progress", "its Python stands still"))
def test_an_attempt_that_misuses_its_channel_harms_nobody(slot: Slot, code: str) -> None:
    slot.seen.clear()
    began_s = time.monotonic()
    attempt = slot.start(FIND + code + "\nprint('begun', flush=True)\ntime.sleep(3600)")
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")
    for number in range(3):  # at once: each may have to wait for as long as an answer is waited for
        slot.process.order({"do": "order", "attempt": attempt.name, "order": {"do": "report", "question": str(number)}})
    answers = [slot.until("status") for _ in range(3)]
    assert sorted((answer["attempt"], answer["question"]) for answer in answers) == [(attempt.name, str(number)) for number in range(3)]
    slot.kill(attempt, "enough")
    slot.end(attempt)
    elapsed_s = time.monotonic() - began_s
    assert all(answer["no_answer"] or wire.status_is_sound(answer["status"]) for answer in answers)
    assert len([each for each in slot.seen if each["is"] == "progress"]) <= 1 + 2 * elapsed_s / wire.PROGRESS_S
    assert {each["is"] for each in slot.seen} <= {"running", "progress", "status", "ended", "ready"}
    assert lives(slot.process.pid)
    assert attempt.ended["status"] == "killed"
    if (attempt.work / "mine").exists():
        assert (attempt.work / "mine").read_bytes() == b"", "nothing of ours in the user's file"
    assert slot.value("spark.range(3).count()") == 3
    with pytest.raises(queue.Empty):
        slot.events.get_nowait()



GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def noted(attempt: Attempt) -> tuple[list[wire.SparkSpan], list[wire.SparkSpan]]:
    """The Spark jobs that it has noted so far, and their stages."""
    spans = wire.spark_spans(left.spark(str(attempt.log)))
    return [each for each in spans if each["stage"] is None], [each for each in spans if each["stage"] is not None]


def test_an_attempt_that_is_traced_notes_its_spark_jobs_with_their_stages(slot: Slot) -> None:
    code = SESSION + (
        "import os, time\nbegan = int(time.time() * 1000)\nsc.setJobDescription('two stages')\n"
        "spark.range(0, 1000, 1, 2).repartition(2).rdd.count()\nsc.setJobDescription(None)\n"
        "sc._jsc.sc().listenerBus().waitUntilEmpty()\n"  # an attempt that ends waits for it, but for no longer than some seconds
        "print(os.environ['TRACEPARENT'], began)\n1 // 0"
    )
    attempt = slot.start(code, spec={"traceparent": GIVEN, "traced": True})
    slot.end(attempt)
    assert "ZeroDivisionError" in attempt.stderr
    traceparent, began_ms = attempt.stdout.split()
    assert traceparent == GIVEN, "for the spans of its own code"
    jobs, stages = noted(attempt)
    by_number = {job["job"]: job for job in jobs}
    assert {(job["name"], job["failed"]) for job in jobs} == {("two stages", False)} and len(by_number) == len(jobs)
    assert len(stages) == 2 and sum(stage["bytes_shuffled"] for stage in stages) > 0 and all(stage["tasks"] == 2 for stage in stages)
    for each in [*jobs, *stages]:
        job = by_number[each["job"]]
        assert int(began_ms) <= job["begin_ms"] <= each["begin_ms"] <= each["end_ms"] <= job["end_ms"]


def test_what_a_killed_attempt_had_done_is_noted_and_a_failed_job_says_so(slot: Slot, tmp_path: Any) -> None:
    failing = "def boom(rows): raise ValueError('no')\ntry: sc.parallelize([1], 1).mapPartitions(boom).count()\nexcept Exception: pass\n"
    code = f"GO = {str(tmp_path / 'go')!r}\n{SESSION}{WAITS}{failing}print('begun', flush=True)\nwork()"
    attempt = slot.start(code, spec={"traced": True})
    wait_until(lambda: [job["failed"] for job in noted(attempt)[0]] == [True], "a job that failed was noted")
    slot.kill(attempt, "a test")
    slot.end(attempt)
    assert attempt.ended["status"] == "killed"
    assert [job["failed"] for job in noted(attempt)[0]] == [True], "the job that ran had not ended"


def test_an_attempt_that_is_not_traced_notes_nothing(slot: Slot) -> None:
    attempt = slot.start(SESSION + "spark.range(3).collect()\nimport json, os\nprint(json.dumps(os.environ.get('TRACEPARENT')))")
    slot.end(attempt)
    assert attempt.value is None and not (attempt.log / left.SPARK).exists()
