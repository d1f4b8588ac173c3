"""The health endpoint and the server below it, over real sockets."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millrace.io.http import server as http_server
from millrace.io.http.server import CannotListen, HttpServer, application
from millrace.runtime.health import HealthServer


def ask(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    answer = httpx.request(method, f"http://127.0.0.1:{port}{path}")
    assert answer.text.endswith("\n") or not answer.text
    return answer.status_code, answer.json() if answer.text else None


def test_health_and_ready() -> None:
    state: dict[str, Any] = {"role": "leader", "epoch": 7, "offset": 41, "lag": 0}
    server = HealthServer(lambda: state)
    port = server.start()
    try:
        assert ask(port, "/health") == (200, {"status": "ok", "role": "leader", "epoch": 7, "offset": 41, "lag": 0})
        assert ask(port, "/ready") == (200, {"ready": True, "status": "ok"})
        state["ready"] = False
        assert ask(port, "/health")[0] == 200
        assert ask(port, "/ready") == (503, {"ready": False, "status": "ok"})
        state.clear()
        state["status"] = "Kafka does not answer"
        assert ask(port, "/health") == (503, {"status": "Kafka does not answer"})
        assert ask(port, "/ready") == (503, {"ready": False, "status": "Kafka does not answer"})
        assert ask(port, "/nothing") == (404, {"error": "Not Found"})
        assert ask(port, "/health", "POST") == (405, {"error": "Method Not Allowed"})
        assert ask(port, "/health", "HEAD") == (503, None)
    finally:
        server.stop()


def test_a_probe_that_raises_is_failing() -> None:
    def probe() -> dict[str, Any]:
        raise RuntimeError("no state yet")

    server = HealthServer(probe)
    port = server.start()
    try:
        assert ask(port, "/health") == (503, {"status": "failing", "error": "RuntimeError: no state yet"})
        assert ask(port, "/ready") == (503, {"ready": False, "status": "failing"})
    finally:
        server.stop()


def test_a_server_that_cannot_serve_is_told_at_its_start() -> None:
    """Else its port would be told to others, and nobody would ever answer there. In a process of its own: it runs out of files."""
    code = """
import os, resource
from millrace.runtime.health import HealthServer
from millrace.io.http.server import CannotListen
HealthServer(dict).start()  # what is loaded late is loaded
free = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, free + 1))  # one for the port, none for the loop
os.close(free)
try:
    print("listens at", HealthServer(dict).start())
except CannotListen as told:
    print(told)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(r"nothing answers at 127.0.0.1:\d+: OSError: \[Errno 24\] Too many open files\n", done.stdout), done


def test_it_listens_on_loopback_alone() -> None:
    server = HealthServer(dict)
    port = server.start()
    try:
        with socket.socket() as other, pytest.raises(OSError):
            other.settimeout(5)
            other.connect((_address_of_this_machine(), port))
    finally:
        server.stop()


def _address_of_this_machine() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def test_a_taken_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen) as caught:
            HealthServer(dict, port=port).start()
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: the port is taken; give another one, or 0 for a free one"
    )


def test_an_address_of_another_machine_is_one_sentence() -> None:
    with pytest.raises(CannotListen) as caught:
        HttpServer(application([]), host="192.0.2.1", port=0).start()
    assert str(caught.value) == "cannot listen on 192.0.2.1:0: this machine has no such address; give another host"


def test_answers_are_not_held_back() -> None:
    """Without TCP_NODELAY an answer in two packets waits 40 ms for the client's delayed acknowledgement."""
    set_on: list[int] = []

    async def look(_: Request) -> Response:
        (connection,) = server._server.server_state.connections
        set_on.append(connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return Response("x")

    server = HttpServer(application([Route("/", look)]))
    port = server.start()
    try:
        assert httpx.get(f"http://127.0.0.1:{port}/").text == "x"
    finally:
        server.stop()
    assert set_on == [1]


def test_stop_frees_port_and_thread_although_clients_hold_connections() -> None:
    before = set(threading.enumerate())
    server = HealthServer(dict)
    port = server.start()
    with httpx.Client() as client, socket.create_connection(("127.0.0.1", port)):
        assert client.get(f"http://127.0.0.1:{port}/health").status_code == 200
        server.stop()
        assert set(threading.enumerate()) <= before, "those of other tests may end meanwhile"
        again = HealthServer(dict, port=port)
        assert again.start() == port
        again.stop()
    server.stop()


@pytest.mark.parametrize("sent", [b"", b"GET /health HT"])
@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_connection_whose_request_does_not_come_is_closed(
    before: bytes, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is sent at once must come in time although this machine is busy.
    monkeypatch.setattr(http_server, "_HEADERS_WITHIN_S", 2 if before else 0.1)
    monkeypatch.setattr(http_server, "_IDLE_CONNECTION_S", 1)
    server = HealthServer(dict)
    port = server.start()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(before)
            if before:
                assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
            client.sendall(sent)
            while client.recv(1000):
                pass
    finally:
        server.stop()
