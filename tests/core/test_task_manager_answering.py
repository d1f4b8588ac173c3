"""Clients' questions to a TaskManager: what its process finds is published, with what the machine knows of its slots."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import Do, Publish, Say
from millrace.core.messages import base, client, processes
from millrace.core.messages.effects import AnswerSought, FindAnswer
from millrace.core.messages.processes import DescribeAsk, LogsAsk, ThreadsAsk, UploadAsk
from millrace.core.messages.slots import AnswerClient, AnswerFound, ClientAnswered, SlotBroken
from tests.core.of_processes import jvm_status, process_status
from tests.core.of_task_manager import INCARNATION, RM, Driver

ASKED = {"question": 5, "reply_to": "c", "correlation": "9"}


def found(driver: Driver, answer: processes.Answer) -> base.Reply:
    """The reply that is published; the ResourceManager learns that there is one."""
    published, told = driver.local(AnswerFound(**ASKED, task_manager="a", answer=answer))
    assert told == Say(RM, ClientAnswered(question=5))
    assert isinstance(published, Publish) and (published.topic, published.key) == ("client.replies", "c")
    return published.body


@pytest.mark.parametrize("ask", [DescribeAsk(), ThreadsAsk(slot=1), LogsAsk(), UploadAsk(log="log", start=3, length=4)], ids=str)
def test_a_question_is_looked_up_and_nothing_is_kept_of_it(ask: processes.Ask) -> None:
    driver = Driver()
    before = driver.state.slots
    assert driver.say(RM, AnswerClient(ask=ask, **ASKED)) == [Do("answer/5", FindAnswer(ask=ask, **ASKED))]
    assert driver.local(AnswerSought(question=5)) == [] and driver.state.slots == before


def test_a_description_has_each_slot_with_what_is_in_it_and_its_jvm() -> None:
    driver = Driver(slots=3).run()
    driver.local(SlotBroken(slot=2, reason="no disk"))
    jvms = [processes.SlotJvm(slot=0, jvm=jvm_status()), processes.SlotJvm(slot=1, no_answer="it hangs")]
    reply = found(driver, processes.Description(status=process_status(), slots=jvms))
    running = {"job": "j", "allocation": "al", "attempt": "j/t/0/1", "attempt_state": "RUNNING"}
    assert reply == processes.TaskManagerDescribed(
        correlation="9", task_manager="a", incarnation=INCARNATION, status=process_status(), total=3,
        slots=[
            processes.SlotDescribed(slot=0, state="ACTIVE", memory_mb=1024, jvm=jvm_status(), **running),
            processes.SlotDescribed(slot=1, state="FREE", memory_mb=1024, no_answer="it hangs"),
            processes.SlotDescribed(slot=2, state="BROKEN", memory_mb=1024, broken="no disk", no_answer="it was not asked"),
        ],
    )  # fmt: skip


def test_a_description_of_very_many_slots_fits_into_a_record() -> None:
    driver = Driver(slots=1000)
    jvms = [processes.SlotJvm(slot=slot, jvm=jvm_status(version="v" * 160)) for slot in range(1000)]
    reply: Any = found(driver, processes.Description(status=process_status(), slots=jvms))
    assert 100 < len(reply.slots) < reply.total == 1000 and len(reply.model_dump_json()) < 700_000


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (
            processes.ThreadDumps(dumps=[processes.ThreadDump(of="the process", text="...")]),
            processes.ThreadsDumped(correlation="9", process="a", dumps=[processes.ThreadDump(of="the process", text="...")]),
        ),
        (
            processes.LogFiles(logs=[processes.LogFile(log="log", bytes=3, modified_ms=4)]),
            processes.LogsListed(correlation="9", process="a", logs=[processes.LogFile(log="log", bytes=3, modified_ms=4)]),
        ),
        (
            processes.UploadedPiece(piece=processes.LogPiece(log="log", path="logs/asked/1", start=0, bytes=3, size=3)),
            processes.LogUploaded(
                correlation="9", process="a", piece=processes.LogPiece(log="log", path="logs/asked/1", start=0, bytes=3, size=3)
            ),
        ),
        (
            processes.SettingsFound(settings=[processes.Setting(name="slots", value=2, origin="from a flag")]),
            processes.SettingsListed(
                correlation="9", process="a", settings=[processes.Setting(name="slots", value=2, origin="from a flag")]
            ),
        ),
        (
            processes.NoAnswer(kind="not_found", reason="there is no log 'x'"),
            client.RequestRefused(correlation="9", kind="not_found", reason="there is no log 'x'"),
        ),
    ],
    ids=lambda each: each.__class__.__name__,
)  # fmt: skip
def test_what_is_found_is_published_as_it_is(answer: processes.Answer, reply: base.Reply) -> None:
    assert found(Driver(), answer) == reply
