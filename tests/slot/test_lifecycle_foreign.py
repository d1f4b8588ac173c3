"""What an attempt started and this user may not end, as a script does by ``sudo``. Emulated, for the tests may run as root: the slot's host
is refused to signal it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.slot.lifecycle import Slot, below, lives

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

REFUSES = """
import os
killed = os.kill
def kill(pid, signum):
    if signum:
        with open(f"/proc/{pid}/cmdline") as words:
            if "not-ours" in words.read():
                raise PermissionError(1, "Operation not permitted")
    killed(pid, signum)
os.kill = kill
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the emulation knows a process by /proc")
def test_a_finished_attempt_stays_finished_the_slot_goes_on_and_told_to_end_it_leaves_nothing_of_its_own(
    tmp_path: Path, archives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot said that its folder could not be used, and the attempt was run again, on up to 20 slots."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(REFUSES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    slot = Slot(tmp_path, archive_folder=archives, warming_rounds=3)
    try:
        slot.until("ready")
        attempt = slot.run(
            "import json, subprocess, sys\n"
            "foreign = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)  # not-ours'], start_new_session=True).pid\n"
            "ours = subprocess.Popen(['sleep', '3600'], start_new_session=True).pid\n"
            "print(json.dumps([foreign, ours]))\n"
        )
        foreign, ours = attempt.value
        assert lives(foreign) and not lives(ours)
        assert f"Millrace: process {foreign} (" in attempt.stderr
        assert "# not-ours), which this attempt started, lives on: it may not be ended here.\n" in attempt.stderr
        following = slot.run("print(1)")
        assert following.value == 1 and "lives on" not in following.stderr, "it is not that attempt's"
        pids = [slot.process.pid, *(process.pid for process in below(slot.process.pid) if process.pid != foreign)]
        assert len(pids) >= 4
        os.kill(slot.process.pid, signal.SIGTERM)
        assert slot.until_gone() == 0
        assert not any(map(lives, pids))
    finally:
        slot.close()
        for each in psutil.process_iter(["cmdline"]):
            if "not-ours" in " ".join(each.info["cmdline"] or ()):
                each.kill()
