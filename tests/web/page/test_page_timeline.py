"""Where the text of a bar of the timeline stands."""

from __future__ import annotations

import pytest

from services.web.page.timeline import Bar, critical_path

LONG = "attempt 2, 7 min 30 s so far"


@pytest.mark.parametrize(("x", "wide", "text", "ends"), [
    (62, 38, LONG, True), (0, 100, LONG, False), (40, 38, LONG, False), (62, 38, "1.2 s", False), (95, 5, "1.2 s", False),
])  # fmt: skip
def test_on_a_phone_the_text_of_the_last_attempt_stays_in_the_picture(x: float, wide: float, text: str, ends: bool) -> None:
    assert Bar(2, "RUNNING", x, wide, text, "").is_tight is ends


def test_a_path_through_a_circle_comes_to_an_end() -> None:
    """No graph of a job has one."""
    runs = {(task, 0): [{"state": "RUNNING", "since_ms": {"RUNNING": 1}}] for task in "ab"}
    assert critical_path(runs, {"a": [("b", "hash")], "b": [("a", "hash")]}, 9) == (("a", 0), ("b", 0))
