"""Addresses with a port: what is said to clients, and what is taken from settings, also where a machine has IPv6 alone."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from deploy import provision
from millrace.client.blobs import BlobClient
from millrace.io.addresses import joined, parted
from millrace.io.http.blobs import BlobServer
from millrace.io.http.server import CannotListen, HttpServer, application
from millrace.io.storage.store import Storage
from services.dispatcher.settings import DispatcherSettings

TOKEN = "a token of the tests"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


with_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("[::1]", "[::1]:80"), ("kafka-1", "kafka-1:80")]
)
def test_an_ipv6_host_stands_in_brackets(host: str, address: str) -> None:
    assert joined(host, 80) == address
    assert parted(address) == parted(f"http://{address}/x") == (host.strip("[]"), 80)


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:port", "::1:80", "host:99999", "[::1]"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ValueError, match="is no address: write HOST:PORT, an IPv6 host in brackets"):
        parted(address)


@with_ipv6
def test_clients_reach_a_blob_server_on_ipv6_by_the_url_that_they_are_told(tmp_path: Path) -> None:
    settings = DispatcherSettings(blob_host="::1", blob_token=TOKEN)
    server = BlobServer(Storage(str(tmp_path)), TOKEN, host=settings.blob_host)
    client = BlobClient(settings.advertised_url(server.start()), TOKEN)
    try:
        assert client.put_bytes(b"some bytes")
    finally:
        client.close()
        server.stop()


@with_ipv6
def test_provisioning_hears_a_server_on_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked_again(_: float) -> None:
        raise AssertionError("it was not heard")

    monkeypatch.setattr(provision.time, "sleep", asked_again)
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        provision.wait_for(f"[::1]:{server.getsockname()[1]}", give_up_s=float("inf"))


@with_ipv6
def test_a_port_that_is_taken_on_ipv6_is_told_as_an_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=rf"^cannot listen on \[::1\]:{port}: the port is taken"):
            HttpServer(application([]), "::1", port).start()


@with_ipv6
def test_an_http_server_on_ipv6_answers() -> None:
    server = HttpServer(application([]), "::1")
    port = server.start()
    try:
        assert httpx.get(f"http://{joined('::1', port)}/", trust_env=False).status_code == 404
    finally:
        server.stop()
