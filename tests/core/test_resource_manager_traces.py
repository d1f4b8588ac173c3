"""The spans of slots that a ResourceManager makes, of what it sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.core.machine import Say
from millrace.core.messages.jobs import RequestSlots
from millrace.core.messages.records import message_json
from millrace.core.messages.slots import AllocateSlot, AllocateSlots
from millrace.runtime.spans import Span
from services.resource_manager.traces import granted
from tests.core.of_resource_manager import JM0, TM_A, TM_B, Driver

TRACE, JOB = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{JOB}-01"


def spans(driver: Driver, outputs: list[Any]) -> list[Span]:
    """Of all grants, as they go to Kafka."""
    grants = [each for each in outputs if isinstance(each, Say) and isinstance(each.body, (AllocateSlot, AllocateSlots))]
    said = [json.loads(message_json(each.to, 7, "resource-manager", 1, (1, 0), None, each.body)) for each in grants]
    return [span for message in said for span in granted(message, driver.state)]


def times(found: list[Span]) -> list[tuple[int, int]]:
    return [(span.start_ms, span.end_ms) for span in found]


def test_each_slot_that_a_job_is_granted_is_a_span_of_its_own() -> None:
    driver = Driver().declared()
    assert spans(driver, driver.ask("j", 2, trace=f"{GIVEN} a=1,b=2")) == []
    driver.tick(250)
    first = spans(driver, driver.register())
    driver.tick(500)
    second = spans(driver, driver.register(TM_B))
    assert times(first + second) == [(1_000_000, 1_000_250), (1_000_000, 1_000_750)]
    assert {(span.parent, span.context.trace, span.context.state) for span in first + second} == {(JOB, TRACE, "a=1,b=2")}
    assert [span.attributes for span in first + second] == [
        {"millrace.job.id": "j", "millrace.task_manager": name, "millrace.slot": 0} for name in "ab"
    ]
    assert first[0].context.span != second[0].context.span


@pytest.mark.parametrize("build", ["", "0.2"], ids=["one by one", "together"])
def test_slots_that_are_granted_at_once_are_spans_however_they_are_sent(build: str) -> None:
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024), build=build)
    found = spans(driver, driver.ask("j", 2, trace=GIVEN))
    assert [span.attributes["millrace.slot"] for span in found] == [0, 1] and found[0].context.span != found[1].context.span


def test_what_is_sent_again_makes_the_same_span_again_until_the_grant_is_over() -> None:
    driver = Driver().declared()
    driver.register()
    outputs = driver.ask("j", trace=GIVEN)
    first = spans(driver, outputs)
    driver.tick(300)
    assert spans(driver, outputs) == first != []
    driver.ask("j", 0, trace=GIVEN)
    driver.free()
    assert spans(driver, outputs) == []


def test_a_job_that_wants_more_later_has_lacked_it_since_then() -> None:
    driver = Driver().declared()
    driver.register(memory_mb=(1024, 1024))
    assert times(spans(driver, driver.ask("j", trace=GIVEN))) == [(1_000_000, 1_000_000)]
    driver.tick(400)
    assert times(spans(driver, driver.ask("j", 2, trace=GIVEN))) == [(1_000_400, 1_000_400)]
    assert driver.state.jobs["j"].lacks_ms is None


def test_a_job_that_loses_a_slot_lacks_it_since_then_without_a_request() -> None:
    driver = Driver().declared()
    driver.register()
    driver.ask("j", trace=GIVEN)
    driver.tick(700)
    assert spans(driver, driver.free(state="BROKEN")) == []
    driver.tick(100)
    assert times(spans(driver, driver.register(TM_B))) == [(1_000_700, 1_000_800)]


def test_where_no_spans_are_made_grants_are_as_before() -> None:
    driver = Driver().declared()
    driver.register()
    outputs = driver.ask("j")
    assert spans(driver, outputs) == []
    [grant] = [each.body for each in outputs if isinstance(each, Say) and each.to == TM_A]
    assert set(grant.model_dump(mode="json")) == {"type", "version", "slot", "allocation", "job", "shard"}
    driver.say(JM0, RequestSlots(job="j", slots=0, priority=0, since_ms=0))
    assert driver.state.jobs["j"].lacks_ms is None
