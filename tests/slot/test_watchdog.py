"""A host that hears nothing of its TaskManager, without a slot."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from services.task_manager.slot.common.config import Dirs
from services.task_manager.slot.host.attempts import Attempts, OrderedAttempt
from services.task_manager.slot.host.watchdog import watchdog
from tests.slot.lifecycle import PATIENCE_S


def test_silence_ends_a_slot_only_while_an_attempt_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """As `test_lifecycle_silence.py` shows with a slot."""

    async def scene() -> None:
        beats, ours = os.pipe()
        attempts = Attempts()
        guard = asyncio.ensure_future(watchdog(beats, attempts))
        os.write(ours, b"1\n")
        await asyncio.sleep(0.2)  # what is tested, not a wait: a hundred times as long as it may hear nothing
        assert not guard.done()
        os.write(ours, b"3600000\n")
        attempts.put(OrderedAttempt("a", cast("Any", {}), Dirs("", "", "", ""), asyncio.get_running_loop().create_future()))
        await asyncio.sleep(0.2)  # as long again, while it may hear nothing for an hour
        assert not guard.done()
        os.write(ours, b"1\n")
        await asyncio.wait_for(guard, PATIENCE_S)
        for fd in (beats, ours):
            os.close(fd)

    asyncio.run(scene())
    assert "no heartbeat of the TaskManager for 0." in capsys.readouterr().err
