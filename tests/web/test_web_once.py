"""What takes long to make is made beside the event loop: others are answered meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from services.web import app, once
from services.web.app import application
from services.web.commands import Commands
from services.web.flink import app as of_flink
from services.web.follow import Follows
from services.web.view import View
from tests.web.test_web_commands import Cluster

LIMIT_S = 60.0


@pytest.mark.parametrize(
    ("path", "place", "name"),
    [("/api/v1/openapi.json", app, "_described"), ("/v1/openapi.json", of_flink, "_described"), ("/v1/config", app, "flink")],
)
def test_others_are_answered_while_it_is_made(path: str, place: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others_were_answered, made = threading.Event(), []
    make = getattr(place, name)

    def makes(*given: Any) -> Any:
        made.append(others_were_answered.wait(LIMIT_S))
        return make(*given)

    monkeypatch.setattr(place, name, makes)
    view = View({}, {}, 10)
    view.load({})
    web = application(view, lambda: Follows("", 0.1), Commands(Cluster))  # type: ignore[arg-type]  # it has what is called

    async def asked() -> None:
        transport = httpx.ASGITransport(app=web)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=LIMIT_S) as client:
            firsts = [asyncio.create_task(client.get(path)) for _ in range(2)]
            await asyncio.sleep(0)
            assert (await client.get("/api/v1/overview")).status_code == 200
            others_were_answered.set()
            answers = await asyncio.gather(*firsts)
            assert [each.status_code for each in answers] == [200, 200] and answers[0].json() == answers[1].json()

    asyncio.run(asked())
    assert made == [True]


def test_what_could_not_be_made_is_tried_again() -> None:
    tries: list[int] = []

    def make() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return "made"

    made = once.Once(make)
    with pytest.raises(OSError, match="once"):
        asyncio.run(made.get())
    assert [asyncio.run(made.get()) for _ in range(2)] == ["made", "made"] and len(tries) == 2
