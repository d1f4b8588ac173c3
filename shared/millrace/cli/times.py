"""Times, as people write them."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from datetime import time as TimeOfDay

import typer

YEAR_MS = 366 * 86_400_000
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def past_ms(text: str) -> int:
    """A past time, as Unix time in milliseconds: an age (90s, 30m, 2h, 3d), a time of day (the last such one), or a date with or without
    a time, in the local time zone. Raises typer.BadParameter."""
    text, wall_ms = text.strip(), time.time_ns() // 1_000_000
    age = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    try:
        found = wall_ms - int(float(age.group(1)) * AGES[age.group(2)] * 1000) if age else stamp_ms(text, wall_ms)
    except OverflowError:
        found = -1
    except ValueError:
        raise typer.BadParameter(
            f"{_short(text)!r} is no time: say 30m, 2h or 3d (ago), 14:30, or 2026-01-31 or 2026-01-31T12:00"
        ) from None
    if found < 0:
        raise typer.BadParameter(f"{_short(text)!r} is before 1970: say a later time") from None
    return found


def length_ms(text: str) -> int:
    """A length of time (90s, 30m, 2h, 3d), in milliseconds. Raises typer.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text.strip())
    length = int(float(found.group(1)) * AGES[found.group(2)] * 1000) if found else 0
    if not 1 <= length <= YEAR_MS:
        raise typer.BadParameter(f"{_short(text)!r} is no length of time: say 90s, 30m, 2h or 3d, and a year at most")
    return length


def stamp_ms(text: str, newest_ms: int) -> int:
    """A time of day is the last such one before `newest_ms`. Raises ValueError."""
    text = text.replace("Z", "+00:00")  # not read by Python 3.10
    try:
        if re.match(r"\d\d?:", text):
            return _last_such(TimeOfDay.fromisoformat(text), newest_ms)
        return _ms(datetime.fromisoformat(text).astimezone())
    except OverflowError:
        raise ValueError("it is not within the years 1 to 9999") from None


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def _last_such(time_of_day: TimeOfDay, newest_ms: int) -> int:
    day = datetime.fromtimestamp(newest_ms / 1000, timezone.utc).astimezone(time_of_day.tzinfo).date()
    on_that_day = _ms(datetime.combine(day, time_of_day).astimezone())
    if on_that_day <= newest_ms:
        return on_that_day
    return _ms(datetime.combine(day - timedelta(days=1), time_of_day).astimezone())


def _ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)
