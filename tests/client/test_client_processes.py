"""What the client library asks processes, and how it takes their answers and their silence; without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.client import Malformed, Millrace, NotFound, OutcomeUnknown, Refused, Unavailable
from millrace.client import processes as client_processes
from millrace.client.link import Gathering
from millrace.client.processes import silent_of
from millrace.core.messages import blocklist, client, processes
from millrace.core.messages.processes import LOG_PIECE_MOST, AskProcess, LogPiece, ThreadDump
from tests.core.of_processes import process_status

Asked = list[tuple[Any, float]]


def asking(*replies: Any) -> tuple[Any, Asked]:
    """A client whose questions are answered one after the other, None: not at all; and what it asks, with the time that it waits."""
    made: Any = object.__new__(Millrace)
    asked: Asked = []
    left = iter(replies)

    def ask(request: Any) -> Any:
        def result(wait_s: float) -> Any:
            asked.append((request, wait_s))
            reply = next(left)
            if reply is None:
                raise OutcomeUnknown("no answer")
            return reply

        return SimpleNamespace(result=result)

    made._timeout_s, made._closed, made._blobs, made._token = 10.0, threading.Event(), None, "t"
    made._link = SimpleNamespace(ask=ask)
    return made, asked


def refused(kind: str, silent: str | None = None) -> client.RequestRefused:
    return client.RequestRefused(correlation="1", kind=kind, reason="no", silent=silent)


def test_a_task_manager_is_asked_by_the_dispatcher_and_a_service_itself() -> None:
    dumped = processes.ThreadsDumped(correlation="1", process="p", dumps=[ThreadDump(of="the process", text="t")])
    millrace, asked = asking(dumped, dumped)
    assert millrace.task_manager("tm").threads(2) == millrace.service("web-1").threads() == dumped.dumps
    (by_dispatcher, wait_s), (itself, own_wait_s) = asked
    assert isinstance(by_dispatcher, processes.DumpThreads) and (by_dispatcher.task_manager, by_dispatcher.slot) == ("tm", 2)
    assert isinstance(itself, AskProcess) and (itself.process, itself.ask.do) == ("web-1", "threads")
    assert (wait_s, own_wait_s) == (10.0, client_processes.ANSWER_S)


def test_who_is_busy_is_asked_again_and_who_is_silent_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_processes, "BUSY_S", 0.0)
    listed = processes.LogsListed(correlation="1", process="tm", logs=[])
    millrace, asked = asking(refused("busy"), refused("busy"), listed)
    assert millrace.task_manager("tm").logs() == [] and len(asked) == 3
    millrace, asked = asking(refused("busy", "tm"))
    with pytest.raises(Unavailable, match="^no$") as silent:
        millrace.task_manager("tm").describe()
    assert silent.value.silent == "tm" and len(asked) == 1


@pytest.mark.parametrize(("kind", "error"), [("not_found", NotFound), ("invalid", Refused), ("internal", Refused)])
def test_a_refusal_is_an_error(kind: str, error: type[Exception]) -> None:
    millrace, _ = asking(refused(kind))
    with pytest.raises(error):
        millrace.task_manager("tm").describe()


def test_nobody_answers_for_a_service_that_is_silent() -> None:
    millrace, _ = asking(None, None)
    said = "there is no process dispatcher of a service, or it hangs: it has not answered within 3 s"
    with pytest.raises(Unavailable, match=said) as silent:
        millrace.service("dispatcher").describe()
    assert silent.value.silent == silent_of("dispatcher") != "dispatcher", "as the scope's silence is called"
    with pytest.raises(Unavailable) as away:
        millrace.task_manager("tm").describe()
    assert away.value.silent == "dispatcher"


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    millrace, asked = asking()
    for whose in (millrace.task_manager, millrace.service):
        with pytest.raises(Malformed, match="is no name of a process"):
            whose(name)
    with pytest.raises(NotFound):
        millrace.task_manager("tm").upload(name)
    assert asked == []


def of_log(log: bytes, growing: bytes = b"", first: int = 0) -> tuple[Any, Asked]:
    """A client of a process with this log, which grows whenever it is asked."""
    made, asked = asking()
    kept: dict[str, bytes] = {}

    def ask(request: Any) -> Any:
        def result(wait_s: float) -> Any:
            asked.append((request, wait_s))
            have = log + growing * (len(asked) - 1)
            start = min(max(len(have) + request.start if request.start < 0 else request.start, first), len(have))
            data = have[start : start + request.length]
            kept[path := str(len(asked)) if data else ""] = data
            piece = LogPiece(log="log", path=path, start=start, bytes=len(data), size=len(have))
            return processes.LogUploaded(correlation="1", process="tm", piece=piece)

        return SimpleNamespace(result=result)

    made._link = SimpleNamespace(ask=ask)
    made._piece = kept.__getitem__
    return made, asked


@pytest.mark.parametrize(("start", "read"), [(0, lambda log: log), (-5, lambda log: log[-5:]), (3, lambda log: log[3:])])
def test_a_log_is_read_piece_by_piece_as_long_as_it_was(start: int, read: Callable[[bytes], bytes]) -> None:
    """It ends though the log grows faster than it is read."""
    log = bytes(range(256)) * (LOG_PIECE_MOST // 256) + b"the end"
    millrace, asked = of_log(log, growing=b"x" * LOG_PIECE_MOST)
    assert b"".join(millrace.task_manager("tm").read("log", start)) == read(log)
    assert len(asked) == (1 if start < 0 else 2)


def test_a_log_whose_beginning_is_gone_is_read_from_where_it_is() -> None:
    millrace, _ = of_log(b"gone and there", first=9)
    assert b"".join(millrace.task_manager("tm").read("log")) == b"there"
    assert list(of_log(b"")[0].task_manager("tm").read("log")) == []


def test_those_that_answer_in_time_are_listed_by_service_and_name() -> None:
    forgotten: list[str] = []
    link: Any = SimpleNamespace(forget=forgotten.append)
    gathering = Gathering(link, "AskProcess", "7")
    for process, service in (("web-1", "web"), ("job-master-2", "job-master"), ("job-master-1", "job-master")):
        described = processes.ProcessDescribed(correlation="7", process=process, status=process_status(service=service), scopes={})
        gathering.settle(described.model_dump())
    made, asked = asking()
    made._link = SimpleNamespace(ask_all=lambda question: (asked.append((question, 0.0)), gathering)[1])
    assert [each.process for each in made.services(0.0)] == ["job-master-1", "job-master-2", "web-1"]
    assert (asked[0][0].process, asked[0][0].ask.do, forgotten) == ("", "describe", ["7"])


def test_a_question_to_all_that_kafka_does_not_take_is_no_silence() -> None:
    link: Any = SimpleNamespace(forget=lambda _: None)
    gathering = Gathering(link, "AskProcess", "7")
    gathering.settle(None, "the broker is away")
    with pytest.raises(Unavailable, match="AskProcess has not reached Kafka: the broker is away"):
        gathering.results(60.0)


@pytest.mark.parametrize("change", [
    lambda to: to.set_schedule("s", {"name": "s"}, "@daily"), lambda to: to.pause_schedule("s"), lambda to: to.remove_schedule("s"),
], ids=["set", "pause", "remove"])  # fmt: skip
def test_a_change_of_a_schedule_that_waits_for_etcd_is_not_asked_for_again(change: Any) -> None:
    """Each would take one of the sixteen places."""
    millrace, asked = asking(refused("busy", "etcd"))
    with pytest.raises(OutcomeUnknown, match="^no$"):
        change(millrace)
    assert len(asked) == 1


def test_who_is_silent_is_named_though_there_was_no_time_for_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the Dispatcher that was said to give no answer."""
    millrace, asked = asking(refused("busy", "etcd"), None)
    monkeypatch.setattr(millrace._closed, "wait", lambda _: None)
    with pytest.raises(Unavailable, match="^no$") as silent:
        list(millrace.schedules())
    assert (len(asked), silent.value.silent) == (2, "etcd")
    millrace, _ = asking(refused("busy", "etcd"), None)
    monkeypatch.setattr(millrace._closed, "wait", lambda _: None)
    with pytest.raises(OutcomeUnknown, match="^no$"):
        millrace.cancel("j")


def test_who_waits_for_a_job_goes_on_when_etcd_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = client.JobResult(correlation="1", job="j", status="CANCELED", ended_ms=1, archive=None)
    millrace, asked = asking(refused("busy", "etcd"), ended)
    monkeypatch.setattr(millrace._closed, "wait", lambda _: None)
    assert millrace.wait("j").status == "CANCELED" and len(asked) == 2


@pytest.mark.parametrize("change", [lambda to: to.block("a"), lambda to: to.unblock("a")], ids=["block", "unblock"])
def test_a_change_that_is_sent_to_who_is_silent_is_not_asked_for_again(change: Any) -> None:
    """It was, ten times a second: a ResourceManager that was back after that had it to do a hundred times."""
    millrace, asked = asking(refused("busy", "resource-manager"))
    with pytest.raises(Unavailable) as silent:
        change(millrace)
    assert (len(asked), silent.value.silent) == (1, "resource-manager")
    millrace, asked = asking(None)
    with pytest.raises(OutcomeUnknown):
        change(millrace)


def test_while_a_part_is_silent_it_is_asked_again_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    listed = blocklist.BlockedHostsListed(correlation="1", hosts=[])
    millrace, asked = asking(refused("busy"), refused("busy", "resource-manager"), listed)
    monkeypatch.setattr(millrace._closed, "wait", waited.append)
    assert millrace.blocked_hosts() == [] and waited == [0.1, 1.0] and len(asked) == 3
