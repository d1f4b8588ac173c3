"""A slot whose TaskManager is stopped or hangs: what runs in it ends, for others may have been given it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.slot.lifecycle import PATIENCE_S, Slot, below, lives, wait_until

pytestmark = pytest.mark.timeout(600)


def test_an_attempt_ends_with_its_slot_when_nothing_is_heard(tmp_path: Path, archives: str) -> None:
    slot = Slot(tmp_path, archive_folder=archives)
    try:
        slot.until("ready")
        slot.process.beat(300)  # while nothing runs, silence means nothing
        for _ in range(2):
            attempt = slot.start("import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(1)", args=[
                str(tmp_path / "begun")
            ])  # fmt: skip
            begun = time.monotonic()
            while not attempt.file("report.json").exists():
                slot.process.beat(300)
                assert time.monotonic() - begun < PATIENCE_S
                time.sleep(0.02)  # the beat itself, not a wait
            slot.end(attempt)
            assert attempt.ended["status"] == "finished"
        slot.start("import time\ntime.sleep(3600)")
        slot.until("running")
        family = [process.pid for process in below(slot.process.pid)]
        slot.process.beat(300)
        while (event := slot.events.get(timeout=PATIENCE_S))["is"] != "gone":
            pass
        assert event["code"] == 0
        wait_until(lambda: not any(lives(pid) for pid in family), "the end of all that the slot ran")
        assert "no heartbeat of the TaskManager for 0.3" in (tmp_path / "slot" / "host.log").read_text()
    finally:
        slot.close()
