"""A slot whose TaskManager is stopped or hangs: what runs in it ends, for others may have been given it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slot.lifecycle import Slot, below, lives, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
SHORT_MS, LONG_MS = 300, 3_000
"""After so long without a heartbeat a slot ends. Who beats here may be held up by other processes, but not for the longer one."""


@contextmanager
def beating(slot: Slot) -> Iterator[None]:
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.02):
            slot.process.beat(LONG_MS)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_an_attempt_ends_with_its_slot_when_nothing_is_heard(tmp_path: Path, archives: str) -> None:
    slot = Slot(tmp_path, archive_folder=archives)
    try:
        slot.until("ready")
        for seconds in (2 * LONG_MS / 1000, 0):  # the first one ends long after it would without a heartbeat
            slot.process.beat(SHORT_MS)
            time.sleep(4 * SHORT_MS / 1000)  # what is tested, not a wait: while nothing runs, silence means nothing
            slot.process.beat(LONG_MS)
            with beating(slot):
                attempt = slot.end(slot.start(f"import time\ntime.sleep({seconds})"))
            assert attempt.ended["status"] == "finished"
        with beating(slot):
            slot.start("import time\ntime.sleep(3600)")
            slot.until("running")
        family = [process.pid for process in below(slot.process.pid)]
        slot.process.beat(SHORT_MS)
        assert slot.until_gone() == 0
        wait_until(lambda: not any(lives(pid) for pid in family), "the end of all that the slot ran")
        told = (tmp_path / "slot" / "host.log").read_text()
        assert re.search(r"no heartbeat of the TaskManager for 0\.(3\d|40) s", told), told
    finally:
        slot.close()
