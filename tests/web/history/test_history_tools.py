"""Flink's own command line over a history: it lists what has ended, and can cancel nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.io.http.server import HttpServer
from services.web.flink.ids import job_id
from tests.web.flink.tools import flink
from tests.web.history.scene import T0, Scene, archive

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    scene = Scene(tmp_path)
    for n, status in enumerate(("FINISHED", "FAILED", "CANCELED")):
        scene.write(f"j{n}", archive(f"j{n}", status, T0 + 1000 * n))
    scene.write("torn", b"{")
    scene.archives.look()
    server = HttpServer(scene.web.app, "127.0.0.1", 0, name="api")  # type: ignore[arg-type]  # it is the application
    yield server.start()
    server.stop()


def test_flinks_command_line_lists_what_has_ended(port: int) -> None:
    listed = flink(port, "list", "-a")
    assert listed.returncode == 0, listed.stderr
    ended = listed.stdout.partition("Terminated Jobs")[2]
    for job, state in (("j0", "FINISHED"), ("j1", "FAILED"), ("j2", "CANCELED"), ("torn", "FAILED")):
        assert any(f"{job_id(job)} : " in line and f"({state})" in line for line in ended.splitlines()), listed.stdout
    canceled = flink(port, "cancel", job_id("j0"))
    assert canceled.returncode == 1 and "has ended" in canceled.stderr
