"""Flink's lists of very many jobs, as of a history: others are answered meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.web.flink.source import Source
from services.web.view import View
from tests.web.flink.scene import Commands
from tests.web.test_web_tables import Story, accepted


def test_the_view_is_held_for_a_few_jobs_at_a_time_while_very_many_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.flink.source.AT_ONCE", 2)
    view, held = View({}, {}, 100), [0]
    view.load({})
    listed = Story()
    for n in range(7):
        accepted(listed, f"j{n}")
    for fact in listed.facts:
        view.fold(fact)
    ask = view.ask
    monkeypatch.setattr(view, "ask", lambda question: (held.append(0), ask(question))[1])

    def made(job: Any) -> str:
        held[-1] += 1
        if len(held) == 3:
            view.jobs._rows.pop("j0", None)  # it is forgotten meanwhile
        return str(job.row["job"])

    found = asyncio.run(Source(view, Commands()).summaries(made))
    assert sorted(found) == [f"j{n}" for n in range(1, 7)] and max(held) == 2
