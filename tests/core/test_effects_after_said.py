"""Effects that wait until what was said before them is in Kafka: a cut log takes nothing away that nobody says again [R16]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.core.machine import Do, Envelope, Output, Say
from millrace.core.messages.effects import FindJob, JobFound
from millrace.core.messages.jobs import JobMasterStarted
from millrace.core.messages.records import Outcome
from millrace.core.replica import Action, Perform
from tests.core.of_replica import OTHER, Echo, Log, heard


@pytest.fixture(autouse=True)
def _cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(self: Echo, state: Any, envelope: Envelope) -> Iterator[Output]:
        if isinstance(envelope.body, JobMasterStarted):
            yield Say(OTHER, envelope.body)
            yield Do("jobs/x", FindJob(job=envelope.body.job), after_said=True)
            yield Do("jobs/x", FindJob(job="behind"))

    monkeypatch.setattr(Echo, "handle", handle)


def performed(actions: list[Action]) -> list[str]:
    return [action.effect for action in actions if isinstance(action, Perform)]


def told() -> Log:
    """A leader that has said 1 (Hello), 2 (that it leads), 3 (Hello) and 4, and then is to do 1.2.1 and, behind it on its key, 1.2.2."""
    log = Log(2)
    log.elect()
    log.append(heard(1, None))
    assert performed(log.append(heard(2, 1))) == []
    return log


def test_an_effect_waits_for_what_was_said_before_it_and_those_on_its_key_wait_behind() -> None:
    log = told()
    leader = log.replicas[0]
    assert [performed(leader.acked(*ack)) for ack in ((10, 4), (10, 1), (10, 3), (9, 2))] == [[]] * 4
    assert performed(leader.acked(10, 2)) == ["1.2.1"]
    assert performed(log.append(Outcome(effect="1.2.1", result=JobFound(job="j2", stands=None)))) == ["1.2.2"]


def test_a_new_leader_lets_it_wait_as_well_unless_it_is_known_to_be_said() -> None:
    log = told()
    assert performed(log.elect(11, which=1)) == []
    log.tick(published_through=4)
    log.elect(12, which=0)
    assert performed(log.actions[0]) == ["1.2.1"]


def test_one_that_an_earlier_leader_has_done_meanwhile_waits_no_more() -> None:
    log = told()
    outcome = Outcome(effect="1.2.1", result=JobFound(job="j2", stands=None))
    assert performed(log.append(outcome)) == ["1.2.2"]
    leader = log.replicas[0]
    assert [performed(leader.acked(*ack)) for ack in ((10, 1), (10, 2), (10, 3), (10, 4))] == [[]] * 4
