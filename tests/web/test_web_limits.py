"""What one address may hold of the service: places for requests, and how long a body may take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.web import middleware
from services.web.middleware import Limits


def scope(address: str, path: str = "/page/login") -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "headers": [], "client": (address, 1), "scheme": "http"}


class Asked:
    """A request: its body comes in pieces, of which one that is None never comes."""

    def __init__(self, limits: Limits, address: str, pieces: list[bytes | None], pause_s: float = 0.0, path: str = "/page/login") -> None:
        self._pieces, self._pause_s, self.status, self.said = pieces, pause_s, 0, b""
        self.done = asyncio.ensure_future(limits(scope(address, path), self._receive, self._send))

    async def _receive(self) -> Any:
        await asyncio.sleep(self._pause_s)
        piece = self._pieces.pop(0)
        if piece is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.said += message.get("body", b"")


async def takes(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads a whole body."""
    try:
        while (await receive())["more_body"]:
            pass
        status = 200
    except middleware.Refusal as refusal:
        status = refusal.status_code
    await send({"type": "http.response.start", "status": status, "headers": []})


def test_one_address_leaves_places_for_the_others() -> None:
    """One that half-sent as many bodies as there are places had everybody refused for half a minute."""

    async def story() -> None:
        limits = Limits(takes, requests_most=8)
        half = [Asked(limits, "192.0.2.1", [b"a", None]) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert [each.status for each in half] == [0] * 4 + [429] * 4
        assert b"4 requests of 192.0.2.1 are under way already" in half[-1].said
        other = Asked(limits, "192.0.2.2", [b"a"])
        await other.done
        assert other.status == 200
        many = [Asked(limits, f"198.51.100.{n}", [b"a", None]) for n in range(5)]
        await asyncio.sleep(0.05)
        assert [each.status for each in many] == [0] * 4 + [429] and b"8 requests are under way already" in many[-1].said
        for each in half + many:
            each.done.cancel()
        await asyncio.gather(*(each.done for each in half + many), return_exceptions=True)
        near = [Asked(limits, address, [b"a", None]) for address in ("127.0.0.1", "::1") for _ in range(4)]
        await asyncio.sleep(0.05)
        assert [each.status for each in near] == [0] * 8, "on loopback all clients have one address"
        for each in near:
            each.done.cancel()
        await asyncio.gather(*(each.done for each in near), return_exceptions=True)
        after = Asked(limits, "192.0.2.1", [b"a"])
        await after.done
        assert after.status == 200 and not limits._of, "what has ended is not counted"

    asyncio.run(story())


def test_streams_are_no_part_of_an_addresss_share() -> None:
    async def story() -> None:
        limits = Limits(takes, requests_most=2)
        streams = [Asked(limits, "192.0.2.1", [None], path="/api/v1/streams/jobs") for _ in range(5)]
        await asyncio.sleep(0.01)
        asked = Asked(limits, "192.0.2.1", [b"a"])
        await asked.done
        assert asked.status == 200
        for each in streams:
            each.done.cancel()

    asyncio.run(story())


@pytest.mark.parametrize(("size", "status"), [(1, 408), (4000, 200)])
def test_a_body_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch, size: int, status: int) -> None:
    """Each piece came in time, and the whole never."""
    monkeypatch.setattr(middleware, "PACE_BYTES", 10_000)

    async def story() -> None:
        asked = Asked(Limits(takes, step_most_s=0.5), "192.0.2.1", [b"a" * size for _ in range(12)], 0.1)
        await asyncio.wait_for(asked.done, 60)
        assert asked.status == status

    asyncio.run(story())
