"""Commands about jobs, over a cluster of plain values."""

from __future__ import annotations

import contextlib
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app as program
from millrace.cli.exits import Exit
from millrace.cli.tables import STOPPED, print_job, waited_and_ran, when
from millrace.client import Ending, NotFinished, NotFound, OutcomeUnknown, Refused, Result, Unavailable
from millrace.client.dead_letters import DeadLetters, Letter
from millrace.core.messages.client import JobDetails
from millrace.core.messages.events import DeadLetter
from services.task_manager.core import leaving
from tests.cli.details import detail, task
from tests.core.of_progress import progress


def connect(monkeypatch: pytest.MonkeyPatch, **calls: Any) -> None:
    monkeypatch.setattr("millrace.cli.jobs.connected", lambda stack: contextlib.nullcontext(SimpleNamespace(**calls)))


def run(*args: str) -> int:
    return program.guarded(lambda: program.app(list(args), prog_name="millrace"))


def summary(**fields: Any) -> JobDetails:
    return JobDetails(**{"job": "j", "name": "n", "status": "RUNNING", "accepted_ms": 1_000, **fields})


# list


def test_the_queue_is_shown_with_place_and_expectation(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = time.time_ns() // 1_000_000
    first = summary(job="first", waiting="all 2 slots are busy", position=1, expected_ms=now_ms + 125_900)
    never = summary(job="never", waiting="needs 9 MB a slot, the largest has 1 MB")
    asked = []

    def listed(most: int, **only: Any) -> Any:
        asked.append((most, only))
        return SimpleNamespace(jobs=[first, never], total=3)

    connect(monkeypatch, list=listed)
    shown = CliRunner().invoke(program.app, ["queue", "-n", "2"])
    heads, one, two = shown.stdout.splitlines()
    assert heads.split() == ["place", "job", "name", "accepted", "expected", "in", "why"]
    assert one.split()[:3] == ["1", "first", "n"] and "2 m 5 s" in one and one.rstrip().endswith("all 2 slots are busy")
    assert two.split()[:2] == ["never", "n"]
    assert asked == [(2, {"in_queue": True})] and "2 of 3; more with -n" in shown.stderr
    told = json.loads(CliRunner().invoke(program.app, ["queue", "--json"]).stdout)
    assert [(each["job"], each["position"], each["state"]) for each in told] == [("first", 1, "QUEUED"), ("never", None, "QUEUED")]


def test_a_job_that_waits_is_shown_with_the_time_that_it_may_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    soon_ms = now_ns // 1_000_000 + 60_900
    waits = summary(waiting="busy", position=3, expected_ms=soon_ms)
    connect(monkeypatch, list_details=lambda limit, cursor: SimpleNamespace(jobs=[waits], total=1, next=None))
    assert "busy (number 3, in about 1 m 0 s)" in CliRunner().invoke(program.app, ["list"]).stdout
    now_ns += 61_000_000_000
    assert "busy (number 3)" in CliRunner().invoke(program.app, ["list"]).stdout, "it has passed"
    connect(monkeypatch, list=lambda most, **only: SimpleNamespace(jobs=[waits], total=1))
    assert "0.0 s" not in CliRunner().invoke(program.app, ["queue"]).stdout


def test_a_job_in_the_queue_is_not_shown_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = summary(accepted_ms=time.time_ns() // 1_000_000 - 60_000, waiting="all 2 slots are busy", position=3)
    connect(monkeypatch, list_details=lambda limit, cursor: SimpleNamespace(jobs=[waits], total=1, next=None))
    heads, row = CliRunner().invoke(program.app, ["list"]).stdout.splitlines()
    assert heads.split() == ["job", "name", "state", "accepted", "waited", "ran", "waits", "for"]
    assert row.split()[:3] == ["j", "n", "QUEUED"] and "RUNNING" not in row
    assert row.rstrip().endswith("all 2 slots are busy (number 3)")
    [told] = json.loads(CliRunner().invoke(program.app, ["list", "--json"]).stdout)
    assert (told["status"], told["state"]) == ("RUNNING", "QUEUED"), "status keeps its published values"


@pytest.mark.parametrize(("fields", "waited", "ran"), [
    ({"status": "FINISHED", "running_ms": 61_000, "ended_ms": 61_600}, "1 m 0 s", "0.6 s"),
    ({"status": "FINISHED", "ended_ms": 3_500}, "", "2.5 s"),
    ({"status": "CANCELED", "ended_ms": 3_500}, "2.5 s", ""),
])  # fmt: skip
def test_what_a_job_waited_is_told_apart_from_what_it_ran(fields: dict[str, Any], waited: str, ran: str) -> None:
    assert waited_and_ran(summary(**fields)) == (waited, ran)


def test_a_list_can_be_narrowed_by_name_state_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def listed(limit: int, cursor: str, **only: Any) -> Any:
        asked.append((limit, only))
        return SimpleNamespace(jobs=[], total=0, next=None)

    connect(monkeypatch, list_details=listed)
    assert run("list", "--name", "nightly", "--state", "queued", "--state", "RUNNING", "--since", "2026-01-31T12:00+00:00", "-n", "7") == 0
    assert asked == [(7, {"name": "nightly", "states": ["QUEUED", "RUNNING"], "since_ms": 1_769_860_800_000})]


@pytest.mark.parametrize(("options", "asked", "shown", "said"), [
    (("--all",), [(1_000, ""), (1_000, "3.j2"), (1_000, "1.j0")], ["j3", "j2", "j1", "j0", "old"], ""),
    (("-n", "3"), [(3, ""), (1, "3.j2")], ["j3", "j2", "j1", "j0"],
     "4 jobs, and there are more; all with --all, the next with --cursor 1.j0"),
    (("--limit", "1", "--cursor", "3.j2"), [(1, "3.j2")], ["j1", "j0"],
     "2 jobs, and there are more; all with --all, the next with --cursor 1.j0"),
    (("--most", "2"), [(2, "")], ["j3", "j2"], "2 of 5; all with --all, the next with --cursor 3.j2"),
])  # fmt: skip
def test_a_list_goes_on_page_by_page(
    options: tuple[str, ...], asked: list[Any], shown: list[str], said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each page here has two jobs, whatever is asked for."""
    pages = {"": (("j3", "j2"), "3.j2", 5), "3.j2": (("j1", "j0"), "1.j0", None), "1.j0": (("old",), None, None)}
    calls: list[Any] = []

    def listed(limit: int, cursor: str) -> Any:
        calls.append((limit, cursor))
        jobs, following, total = pages[cursor]
        return SimpleNamespace(jobs=[summary(job=job) for job in jobs], next=following, total=total)

    connect(monkeypatch, list_details=listed)
    assert run("list", "--json", *options) == 0
    out = capsys.readouterr()
    assert (calls, [each["job"] for each in json.loads(out.out)], out.err.strip()) == (asked, shown, said)


def test_a_job_of_a_silent_job_master_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = SimpleNamespace(jobs=[summary(silent="job-master/1"), summary(job="k")], total=2, next=None)
    connect(monkeypatch, list_details=lambda limit, cursor: page)
    assert run("list") == 0
    out = capsys.readouterr()
    assert [line.split()[0] for line in out.out.splitlines()] == ["job", "j", "k"]
    assert out.err == "job-master/1: no answer; its jobs are shown as the Dispatcher knows them\n"


def test_a_state_that_is_none_and_a_time_that_is_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(monkeypatch)
    assert run("list", "--state", "WAITING") == Exit.INVALID
    assert "'WAITING' is no state of a job; there are: QUEUED," in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert run("list", "--since", "yesterday") == Exit.INVALID


# cancel, result


@pytest.mark.parametrize(("failures", "code"), [
    ({}, 0),
    ({"b": NotFound("there is no job b")}, 1),
    ({"a": Refused("job a is FINISHED"), "c": Unavailable("no answer")}, 3),
    ({"b": OutcomeUnknown("who knows", "b"), "c": Unavailable("no answer")}, 4),
])  # fmt: skip
def test_several_jobs_are_canceled_whatever_becomes_of_one(
    failures: dict[str, Exception], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def cancel(job: str) -> str:
        asked.append(job)
        if job in failures:
            raise failures[job]
        return "RUNNING"

    connect(monkeypatch, cancel=cancel)
    assert run("cancel", "a", "b", "c", "a") == code
    said = capsys.readouterr()
    assert asked == ["a", "b", "c"]
    assert said.out.splitlines() == [f"job {job} is RUNNING; it is being canceled" for job in "abc" if job not in failures]
    assert said.err.splitlines() == [f"millrace: {failure}" for failure in failures.values()]


def test_a_result_can_be_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []

    def wait(job: str) -> Ending:
        ended.append(job)
        return Ending(job, "FINISHED", 1, None)

    def result(job: str) -> Result:
        if job not in ended:
            raise NotFinished(f"job {job} is RUNNING: it has no result yet", "RUNNING")
        return Result(["a"], ["int"], [[7]], False)

    connect(monkeypatch, wait=wait, result=result)
    assert run("result", "j") == Exit.FAILED
    assert run("result", "j", "--wait", "--format", "csv") == 0
    assert capsys.readouterr().out == "a\n7\n"


# events


def test_of_a_job_whose_last_events_are_gone_its_end_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    accepted = {"type": "JobAccepted", "job": "j", "at_ms": 1, "tasks": []}
    ended = {"type": "JobFinished", "job": "j", "at_ms": 2}
    for events, said in (([], "job j is FINISHED; not all of its events are kept any more\n"), ([accepted, ended], "")):
        connect(monkeypatch, follow=lambda job, events=events: iter(events), status=lambda job: summary(status="FINISHED", ended_ms=2))
        for form in ((), ("--json",)):
            assert run("events", "j", "-f", *form) == 0
            out = capsys.readouterr()
            assert (len(out.out.splitlines()), out.err) == (len(events), said)


@pytest.mark.parametrize("stranger", [
    {"type": "x"}, {"type": "x", "job": "k"}, {"type": "x", "job": 7, "at_ms": 1}, {"type": "x", "job": "k", "at_ms": "1"},
    {"type": "x", "job": "k", "at_ms": 10**30}, {"type": "JobStateChanged", "job": "k", "at_ms": 1},
    {"type": "JobAccepted", "job": "k", "at_ms": 1, "tasks": 7}, {"type": "JobRescaled", "job": "k", "at_ms": 1, "tasks": [{}]},
    {"type": "AttemptStateChanged", "job": "k", "at_ms": 1, "task": [], "subtask": 0, "attempt": "1", "state": None},
    {"type": "EdgeSkewed", "job": "k", "at_ms": 1, "edge": {}}, {"type": "JobWaiting", "job": "k", "at_ms": 1, "reason": None},
])  # fmt: skip
def test_what_strangers_write_ends_no_list_of_events(
    stranger: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [stranger, {"type": "JobFinished", "job": "j", "at_ms": 2}]
    connect(monkeypatch, events=lambda job=None, **_: iter(events), status=lambda job: summary())
    for words in ((), ("j",), ("-f",)):
        assert run("events", *words) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith("  j  FINISHED")
    assert run("events", "--json") == 0
    assert sorted(map(str, events)) == sorted(str(json.loads(line)) for line in capsys.readouterr().out.splitlines())


# show


def refused(job: str) -> Letter:
    reason = f"busy: SubmitJob of job {job}: 20000 jobs are live"
    return Letter(12, DeadLetter(
        topic="client.commands", partition=0, offset=5, reason=reason, at_ms=1_700_000_000_000, size_bytes=2, sha256="", head_base64="e30=",
    ))  # fmt: skip


@pytest.mark.parametrize("command", ["show", "result", "logs", "events"])
def test_of_a_submission_that_was_refused_the_letter_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(job: str | None = None, *_: Any, **__: Any) -> Any:
        raise NotFound(f"there is no job {job or 'lost'}")

    letters: Any = SimpleNamespace(last_about=lambda job: refused(job) if job == "lost" else None)
    connect(monkeypatch, show=none, result=none, logs=none, status=none, events=none, dead_letters=lambda: letters)
    assert run(command, "lost") == Exit.FAILED
    said = capsys.readouterr().err
    assert said.startswith("millrace: there is no job lost: its submission was refused at 2023-11-1")
    assert said.endswith("; why, and what to do: millrace dlq show 12\n")
    if command != "events":
        assert run(command, "other") == Exit.FAILED
        assert capsys.readouterr().err == "millrace: there is no job other\n"


def test_the_newest_letter_about_a_job_is_found() -> None:
    letters: Any = object.__new__(DeadLetters)
    said = [refused(job).letter.model_dump_json().encode() for job in ("lost", "other", "lost", "another")]
    letters._records = lambda since_ms: iter(
        SimpleNamespace(offset=lambda n=n: n, value=lambda value=value: value) for n, value in enumerate([*said, b"no letter"])
    )
    assert letters.last_about("lost").number == 2
    assert letters.last_about("none") is None


def test_show_says_why_there_is_a_second_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    failures = [
        {"attempt": 1, "at_ms": 1, "task_manager": "task-manager-1", "error": {"kind": "lost", "message": STOPPED}},
        {"attempt": 2, "at_ms": 2, "task_manager": "tm-2", "error": {"kind": "user", "message": "ValueError: 7\nmore"}},
    ]
    subtask = {"subtask": 0, "state": "RUNNING", "attempt": 3, "task_manager": "tm", "outputs": {}, "failures": failures}
    print_job(summary(), detail(task("main", subtask)), None)
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [
        "failures",
        "  main[0] attempt 1 on task-manager-1: its TaskManager was stopped (as `millrace down` does)",
        "  main[0] attempt 2 on tm-2: ValueError: 7",
    ]


def test_show_says_what_spark_has_done_only_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    first = progress(3, tasks_failed=1, tasks_total=4, rows_read=1_200_000, bytes_read=34_000_000, gc_ms=400).model_dump()
    last = progress(4, tasks_total=4, bytes_shuffled=950, rows_shuffled=7, bytes_spilled_disk=2_100).model_dump()
    error = {"kind": "user", "message": "boom"}
    failed = {"attempt": 1, "at_ms": 1, "task_manager": "tm", "error": error, "progress": first}
    subtask = {
        "subtask": 0, "state": "FINISHED", "attempt": 2, "task_manager": "tm", "failures": [failed], "progress": last,
        "outputs": {"v": {"rows": 9, "bytes": 1}},
    }  # fmt: skip
    print_job(summary(), detail(task("main", subtask)), None)
    plain = capsys.readouterr().out
    assert "Spark" not in plain and "v 9" in plain
    print_job(summary(), detail(task("main", subtask)), None, verbose=True)
    said = capsys.readouterr().out
    head, one, two = (" ".join(line.split()) for line in said[said.index("\nSpark\n") :].splitlines()[2:5])
    assert head == "task subtask attempt tasks read written shuffle read shuffle written spilled memory ran cpu gc"
    assert one == "main 0 1 3/4 (1 failed) 34 MB, 1.2 M rows 0 0 0 0 B 0 B 0.0 s 0.0 s 0.4 s"
    assert two == "main 0 2 4/4 0 0 0 950 B, 7 rows 2.1 kB 0 B 0.0 s 0.0 s 0.0 s"
    old = {**subtask, "failures": [], "progress": {name: last[name] for name in list(last)[:9]}}  # of 0.1.0
    print_job(summary(), detail(task("main", old)), None, verbose=True)
    assert " ".join(capsys.readouterr().out.splitlines()[-1].split()) == "main 0 2 4/4 - - - - - - - - -"
    print_job(summary(), detail(task("main", {**old, "progress": None})), None, verbose=True)
    assert "no attempt has reported what its Spark does" in capsys.readouterr().out


def test_show_says_what_followed_each_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def failed(attempt: int, message: str, **decided: Any) -> dict[str, Any]:
        error = {"kind": "user", "message": message, "decided": decided}
        return {"attempt": attempt, "at_ms": 1_000 * decided["number"], "task_manager": "tm", "error": error}

    first = [failed(1, "boom", number=3, then="restart", delay_ms=50, why="fixed-delay: restart 1 of 1"),
             failed(2, "boom", number=5, then="fail", why="fixed-delay: 1 of 1 restarts used")]  # fmt: skip
    second = [failed(1, "gone", number=4, then="move", delay_ms=0, why="lost executor: move 1 of 20", concurrent_with=3)]
    subtasks = [{"subtask": n, "state": "FAILED", "attempt": 2 - n, "failures": its} for n, its in enumerate((first, second))]
    print_job(summary(status="FAILED"), detail(task("main", *subtasks)).model_copy(update={"failed": 5}), None)
    said = capsys.readouterr().out.splitlines()
    assert said[-5:] == [
        "failures",
        "  2 earlier ones are not listed",
        f"  {when(3_000)}  main[0] attempt 1 on tm: boom: restarted after 50 ms (fixed-delay: restart 1 of 1)",
        f"    and {when(4_000)}  main[1] attempt 1 on tm: gone: moved at once (lost executor: move 1 of 20)",
        f"  {when(5_000)}  main[0] attempt 2 on tm: boom: the job failed (fixed-delay: 1 of 1 restarts used)",
    ]


def test_the_reason_that_show_explains_is_the_one_that_a_task_manager_gives() -> None:
    assert STOPPED in leaving.on_stop_asked.__code__.co_consts


# down


def stopped(monkeypatch: pytest.MonkeyPatch, *args: str, answer: Any = None) -> list[str]:
    """What `down` says, and does, in its order."""
    from deploy.local import stack as local

    said: list[str] = []

    class Stack:
        name, option = "default", ""
        folder = SimpleNamespace(exists=lambda: True)

        def __init__(self, name: str) -> None: ...

        def supervisor(self) -> Any:
            return object()

        def facts(self) -> dict[str, str]:
            return {"state": "ready", "kafka_bootstrap": "own:1"}

        def down(self, purge: bool) -> bool:
            said.append("* down *")
            return True

    class Client:
        def __init__(self, *_: Any, **__: Any) -> None: ...
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def list(self, most: int, states: list[str]) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(local, "Stack", Stack)
    monkeypatch.setattr("millrace.client.Millrace", Client)
    monkeypatch.setattr("deploy.cli.stack_commands._print_line", said.append)
    assert run("down", *args) == 0
    return said


def test_down_says_which_jobs_have_not_ended_before_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    living = [summary(job="etl-1", running_ms=2_000), summary(job="etl-2", waiting="all slots are busy")]
    said = stopped(monkeypatch, answer=SimpleNamespace(jobs=living, total=3))
    assert said == [
        "3 jobs have not ended: at the next `millrace up` what runs begins again, a script from its start; of a graph what has FINISHED is "
        "kept",
        "  etl-1  RUNNING",
        "  etl-2  QUEUED",
        "  and 1 more",
        "* down *",
        "stack default stopped",
    ]
    said = stopped(monkeypatch, "--purge", answer=SimpleNamespace(jobs=living[:1], total=1))
    assert said[:3] == ["1 job has not ended: it is deleted", "  etl-1  RUNNING", "* down *"]


def test_down_without_living_jobs_and_down_of_a_silent_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = stopped(monkeypatch, answer=SimpleNamespace(jobs=[], total=0))
    assert quiet == ["* down *", "stack default stopped"]
    said = stopped(monkeypatch, answer=Unavailable("Kafka does not answer"))
    assert said[:2] == ["note: which jobs have not ended is not known (Kafka does not answer)", "* down *"]
