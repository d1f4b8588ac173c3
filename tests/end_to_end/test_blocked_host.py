"""A host is taken out of service on a real stack, whose one host it is: `millrace block`, `blocked`, `unblock`, as in docs/operate.md."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

from tests.cli.inside import command
from tests.end_to_end.running import Held, RunningStack, until

HOST = socket.gethostname()
UNTIL = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def millrace(*words: str) -> tuple[str, str]:
    done = command(*words)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout, done.stderr


def test_what_runs_is_moved_and_nothing_runs_until_the_host_is_back_whoever_leads(running: RunningStack, tmp_path: Path) -> None:
    """Also one that takes over."""
    held = Held(running, tmp_path / "held", settings={"restart": {"attempts": 0}})
    [before] = held.started()
    try:
        out, err = millrace("block", HOST, "--for", "2h", "--reason", "its disk is changed", "--evacuate")
        said = rf"{re.escape(HOST)} is blocked until {UNTIL}: 2 slots of 2 TaskManagers, 1 in use\n"
        assert re.fullmatch(said, out) and err == "what runs there is moved\n", (out, err)
        waits = held.watched.until("why it waits", lambda events: [e for e in events if e["type"] == "JobWaiting"][-1:])
        assert "on a blocked host" in waits[0]["reason"], waits
        os.kill(running.pid("resource-manager"), signal.SIGKILL)
        row = re.compile(rf"^{re.escape(HOST)} +{UNTIL} +\S+@\S+ +its disk is changed +2 +2 +0 +yes *$", re.MULTILINE)
        # Nobody answers until the next one leads, and then the command ends with 3.
        until("the next leader, and the end of what ran", lambda: row.search(command("blocked").stdout))
        assert len(re.findall(rf" blocked until {UNTIL} *$", millrace("taskmanagers")[0], re.MULTILINE)) == 2
        assert running.client.overview().free_slots == 0
    finally:
        out, _ = millrace("unblock", HOST)
    assert out == f"{HOST} is not blocked any more\n"
    assert before in held.started(2), "it runs again"
    assert held.let_go().end["type"] == "JobFinished"
    assert [e["error"] for e in held.watched.events if e.get("error")] == [], "no attempt has failed"
    assert millrace("blocked")[1] == "no host is blocked\n"
