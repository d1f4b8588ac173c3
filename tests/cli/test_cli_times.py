"""Times, as people write them."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest
import typer

from millrace.cli.times import past_ms


def test_a_time_is_an_age_a_time_of_day_or_a_date() -> None:
    now = int(time.time() * 1000)
    assert now - 7_300_000 < past_ms("2h") <= int(time.time() * 1000) - 7_199_000
    assert past_ms("2026-01-31T12:00+00:00") == past_ms("2026-01-31T12:00:00Z") == 1769860800000
    at_noon = past_ms(" 12:00 ")
    assert now - 90_100_000 < at_noon <= int(time.time() * 1000), "the last noon, and none to come"
    assert datetime.fromtimestamp(at_noon / 1000, timezone.utc).astimezone().hour == 12


@pytest.mark.parametrize("text", ["9" * 400 + "h", "99999999999999999999h", "1969-12-30", "1969-12-30T00:00Z"])
def test_what_is_before_all_time_is_refused_at_the_prompt(text: str) -> None:
    """It was a traceback, or was sent as a number that nobody can read, and never answered."""
    with pytest.raises(typer.BadParameter, match=r"is before 1970: say a later time$") as refused:
        past_ms(text)
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize("text", ["0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_date_that_is_out_of_the_calendar_elsewhere_is_no_time(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time"):
        past_ms(text)


@pytest.mark.parametrize("text", ["", "2026", "14", "25:00", "soon", "-3d", "\u0663h"])
def test_what_is_no_time_is_said_with_what_is_one(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no time: say 30m"):
        past_ms(text)
