"""A history has the login of the web service: both are told who may use them in the same way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.web.access.certificates import certify, served, takes_up
from tests.web.access.logins import tokens_of

PAGE = {"Accept": "text/html"}


def test_a_history_asks_who_it_is(tmp_path: Path) -> None:
    tokens, (pem, key) = tokens_of(tmp_path), certify(tmp_path / "tls", "history")
    (tmp_path / "storage").mkdir()
    ready = tmp_path / "ready.json"
    process = subprocess.Popen([
        sys.executable, "-m", "services.web.history", "--storage-url", str(tmp_path / "storage"), "--ready-file", str(ready),
        "--access.tokens", str(tmp_path / "tokens.json"), "--access.certificate", str(pem), "--access.key", str(key),
    ], env={**os.environ, "MILLRACE_CONFIG": ""})  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        with served(json.loads(ready.read_text())["port"], pem) as web:
            assert web.get("/api/v1/jobs").status_code == 401
            assert web.get("/page/jobs", headers=PAGE).headers["location"].startswith("/page/login?")
            assert "Token" in web.get("/page/login", headers=PAGE).text
            mine = {"Authorization": f"Bearer {tokens['viewer']}"}
            while (answer := web.get("/api/v1/jobs", headers=mine)).status_code == 503:  # it reads its archives first
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert answer.json()["jobs"] == []
            assert web.get("/page/jobs", headers={**PAGE, **mine}).status_code == 200
        after, after_key = certify(tmp_path / "next", "next")
        key.write_bytes(after_key.read_bytes())
        pem.write_bytes(after.read_bytes())
        takes_up(json.loads(ready.read_text())["port"], after)
    finally:
        process.terminate()
        assert process.wait(120) == 0
    assert not [each for each in tokens.values() if each in ready.read_text()]


def test_off_loopback_a_history_needs_what_the_web_service_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "services.web.history", "--storage-url", str(tmp_path), "--host", "0.0.0.0", "--allowed-hosts", "x"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and "it needs TLS (access.certificate and access.key) and a login" in ended.stderr


def test_what_hinders_a_history_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for given, why in ((("--access.tokens", str(tmp_path / "tokens.json")), "is wrong"), (("--port", port), "the port is taken")):
            command = [sys.executable, "-m", "services.web.history", "--storage-url", str(tmp_path), *given]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith("history: ")
            assert why in ended.stderr.splitlines()[-1] and "Traceback" not in ended.stderr
