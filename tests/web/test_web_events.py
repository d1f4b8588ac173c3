"""The story of a job with very many events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from services.web.app import application
from services.web.commands import Commands
from services.web.follow import Follows
from tests.web.test_web_streams import fresh


class Told:
    """Of a client: a job with as many events."""

    def __init__(self, events: int) -> None:
        self._events = events

    def status(self, job: str) -> Any:
        return SimpleNamespace(accepted_ms=7)

    def events(self, job: str, **_: Any) -> Any:
        return iter([{"n": n} for n in range(self._events)])


@pytest.mark.parametrize(("events", "found", "truncated"), [(0, [], False), (3, [0, 1, 2], False), (5, [2, 3, 4], True)])
def test_of_very_many_events_the_last_are_told(monkeypatch: pytest.MonkeyPatch, events: int, found: list[int], truncated: bool) -> None:
    """The first ones were, and nothing said that how it ended was missing."""
    monkeypatch.setattr("services.web.api.questions.EVENTS_MOST", 3)
    commands = Commands(lambda: Told(events))  # type: ignore[arg-type,return-value]  # it has what is called
    web = TestClient(application(fresh(), lambda: Follows("", 0), commands), base_url="http://127.0.0.1")
    assert web.get("/api/v1/jobs/j/events").json() == {"events": [{"n": n} for n in found], "truncated": truncated}
