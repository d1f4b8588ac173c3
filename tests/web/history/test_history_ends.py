"""A history whose server has ended would look well and answer nobody: its process ends, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.io.http.server import HttpServer
from millrace.runtime import logs
from services.web.history import running
from services.web.history.settings import HistorySettings


def test_the_end_of_its_server_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[Any] = []

    class Kept(HttpServer):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            servers.append(self)

    def ends(url: str) -> None:
        assert url.startswith("http://127.0.0.1:")
        servers[0]._server.end()

    monkeypatch.setattr(running, "HttpServer", Kept)
    monkeypatch.setattr(running, "on_stop", lambda _: None)
    monkeypatch.setattr(logs, "configure", lambda *_, **__: None)
    settings = HistorySettings(storage_url=str(tmp_path), port=0, ready_file=tmp_path / "ready")
    assert running.run(settings, ends) == 1
