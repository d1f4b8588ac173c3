"""TLS: what is served with a certificate, and with the next one without a restart."""

from __future__ import annotations

import ssl
import time
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest

from millrace.io.http.server import CannotListen, HttpServer
from tests.web.access.certificates import certify, served, takes_up
from tests.web.access.logins import access_of, login_of, tokens_of
from tests.web.page.seed import Cluster


def test_it_serves_over_tls_alone_and_takes_up_the_next_certificate(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path)
    pem, key = certify(tmp_path / "now", "first")
    app = Cluster(1, 1).app(login=login_of(tmp_path), access=access_of(tmp_path))
    server = HttpServer(app, certificate=pem, key=key)
    port = server.start()
    try:
        with served(port, pem) as web:
            answer = web.get("/api/v1/overview", headers={"Authorization": f"Bearer {tokens['viewer']}"})
            assert answer.status_code == 200 and "strict-transport-security" in answer.headers
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"https://127.0.0.1:{port}/healthz", verify=old, trust_env=False)

        assert not server.renew_certificate(), "nothing has changed"
        after, after_key = certify(tmp_path / "next", "second")
        pem.write_bytes(after.read_bytes())
        with pytest.raises(CannotListen, match="cannot be used"):
            server.renew_certificate()  # its key has not come yet
        key.write_bytes(after_key.read_bytes())
        assert server.renew_certificate()
        takes_up(port, after)
    finally:
        server.stop()


def test_a_certificate_that_could_not_be_read_for_a_moment_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hindered it may end without a change of the files. Each reason is said once."""
    pem, key = certify(tmp_path, "first")
    server = HttpServer(Cluster(1, 1).app(), certificate=pem, key=key)
    server.start()
    try:
        pem.touch()
        for reason, said in (("first", True), ("first", False), ("second", True)):
            def refuse(*_: object, reason: str = reason) -> None:
                raise CannotListen(reason)

            with monkeypatch.context() as away:
                away.setattr("millrace.io.http.server._check", refuse)
                with pytest.raises(CannotListen, match=reason) if said else nullcontext():
                    assert not server.renew_certificate()
        assert server.renew_certificate() and not server.renew_certificate()
        mark, deadline = server._stat(), time.monotonic() + 30
        while server._stat() == mark:  # a kernel's clock of files goes in steps of milliseconds
            assert time.monotonic() < deadline
            key.chmod(0o640)
    finally:
        server.stop()


def test_what_is_no_certificate_is_said_before_it_listens(tmp_path: Path) -> None:
    pem, key = certify(tmp_path / "a", "a")
    _, other = certify(tmp_path / "b", "b")
    for wrong in ((key, key), (pem, other), (pem, pem), (tmp_path / "none", key)):
        with pytest.raises(CannotListen, match="cannot be used: .*; both must be PEM"):
            HttpServer(Cluster(1, 1).app(), certificate=wrong[0], key=wrong[1]).start()
