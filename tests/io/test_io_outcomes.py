"""An outcome that the log has lost is found by the leader's own ticks [R17]."""

from __future__ import annotations

from millrace.core.fold import PendingEffect, ScopeState
from millrace.core.messages.effects import JobCleaned
from millrace.runtime.outcomes import Outcomes

CLEANED = JobCleaned(job="one")


def scope(tick: int, *effects: str) -> ScopeState:
    return ScopeState(1, 7, tick=tick, effects={effect: PendingEffect("jobs/one", "") for effect in effects})


def test_an_outcome_that_the_log_has_lost_is_appended_again_and_only_then() -> None:
    outcomes = Outcomes()
    outcomes.appended("1.2.0", CLEANED, tick=4)
    assert outcomes.lost(scope(4, "1.2.0")) == []
    assert outcomes.lost(scope(5, "1.2.0")) == [], "that tick may lie before it"
    assert outcomes.lost(scope(6, "1.2.0")) == [("1.2.0", CLEANED)]
    outcomes.appended("1.2.0", CLEANED, tick=6)
    assert outcomes.lost(scope(6, "1.2.0")) == outcomes.lost(scope(7, "1.2.0")) == []
    assert outcomes.lost(scope(8, "1.2.0")) == [("1.2.0", CLEANED)], "it may be lost once more"


def test_an_outcome_that_was_read_is_forgotten_and_so_are_all_at_the_end_of_a_term() -> None:
    outcomes = Outcomes()
    outcomes.appended("1.2.0", CLEANED, tick=4)
    outcomes.appended("1.3.0", CLEANED, tick=4)
    assert outcomes.lost(scope(6, "1.3.0")) == [("1.3.0", CLEANED)]
    outcomes.clear()
    assert outcomes.lost(scope(9, "1.2.0", "1.3.0")) == []
