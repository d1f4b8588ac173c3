"""Times, as people write them."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest
import typer

from millrace.cli.times import past_ms


def test_a_time_is_an_age_a_time_of_day_or_a_date() -> None:
    now = int(time.time() * 1000)
    assert now - 7_300_000 < past_ms("2h") <= now - 7_199_000
    assert past_ms("2026-01-31T12:00+00:00") == past_ms("2026-01-31T12:00:00Z") == 1769860800000
    at_noon = past_ms(" 12:00 ")
    assert now - 90_100_000 < at_noon <= int(time.time() * 1000), "the last noon, and none to come"
    assert datetime.fromtimestamp(at_noon / 1000, timezone.utc).astimezone().hour == 12


@pytest.mark.parametrize("text", ["", "2026", "14", "25:00", "soon", "-3d"])
def test_what_is_no_time_is_said_with_what_is_one(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time: say 30m"):
        past_ms(text)
