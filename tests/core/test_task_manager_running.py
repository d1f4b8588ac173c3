"""Running attempts: orders to them, answers, progress."""

from __future__ import annotations

from millrace.core.machine import Do, Say
from millrace.core.messages.effects import AttemptOrderSent, OrderAttempt
from millrace.core.messages.progress import ReportOrder
from millrace.core.messages.slots import (
    AttemptAnswered,
    AttemptRunning,
    OrderAnswered,
    OrderAttempts,
    ProgressReported,
    ReportedProgress,
    SlotProgress,
    SlotsProgressed,
)
from tests.core.of_progress import progress, status
from tests.core.of_task_manager import JM0, JM1, Driver

ATTEMPT = "j/t/0/1"


def test_an_order_goes_to_the_slot_of_a_running_attempt_and_its_answer_to_who_asked() -> None:
    driver = Driver().run()
    order = OrderAttempts(attempts=[ATTEMPT], order=ReportOrder(), question=5)
    effect = OrderAttempt(slot=0, attempt=ATTEMPT, order=ReportOrder(), shard=1, question=5)
    assert driver.say(JM1, order) == [Do("order/0", effect)]
    assert driver.local(AttemptOrderSent(attempt=ATTEMPT)) == []
    replied = OrderAnswered(attempt=ATTEMPT, shard=1, question=5, status=status())
    assert driver.local(replied) == [Say(JM1, AttemptAnswered(attempt=ATTEMPT, question=5, status=status()))]


def test_an_attempt_that_does_not_run_is_answered_for() -> None:
    driver = Driver()
    driver.allocate()
    driver.deploy()
    no_answer = "it does not run on this TaskManager"
    for attempt in (ATTEMPT, "another"):
        order = OrderAttempts(attempts=[attempt], order=ReportOrder(), question=5)
        assert driver.say(JM0, order) == [Say(JM0, AttemptAnswered(attempt=attempt, question=5, no_answer=no_answer))]


def test_progress_goes_to_the_shard_of_the_slot_while_its_attempt_runs() -> None:
    driver = Driver(slots=3)
    for slot, shard in enumerate((0, 1, 0)):
        driver.allocate(slot, f"al{slot}", shard)
        driver.deploy(f"j/t/{slot}/1", f"al{slot}")
        if slot < 2:
            driver.local(AttemptRunning(slot=slot, attempt=f"j/t/{slot}/1"))
    fact = SlotsProgressed(attempts=[
        *(SlotProgress(slot=slot, attempt=f"j/t/{slot}/1", progress=progress(slot)) for slot in range(3)),
        SlotProgress(slot=0, attempt="j/t/0/0", progress=progress()),
    ])  # fmt: skip
    assert driver.local(fact) == [
        Say(to, ProgressReported(attempts=[
            ReportedProgress(allocation=f"al{slot}", attempt=f"j/t/{slot}/1", progress=progress(slot))
        ]))
        for slot, to in enumerate((JM0, JM1))
    ]  # fmt: skip
