"""Blobs and files over HTTP, on loopback, against a real folder."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.processes import free_port
from millrace.client import blobs as client_blobs
from millrace.client.blobs import BlobClient, BlobError, Piece
from millrace.io.http import blobs
from millrace.io.http.blobs import BlobServer
from millrace.io.http.server import CannotListen
from millrace.io.storage.disk_space import DiskSpace
from millrace.io.storage.store import Storage, StorageError, upload_path
from tests.web.access.certificates import certify

TOKEN = "a token of the tests"
CAP = 3_000_000


class Place:
    """A server with its storage, and a client."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.storage = Storage(str(folder))
        self.server = BlobServer(self.storage, TOKEN, most_bytes=CAP, **options)
        self.port = self.server.start()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = BlobClient(self.url, TOKEN)
        no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.http = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, verify=no_tls)

    def raw(self, head: str, body: bytes = b"", token: str = TOKEN) -> tuple[int, bytes]:
        """One request as written, with no client that would tidy it up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(f"{head}\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n".encode())
            connection.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]

    def temporaries(self) -> list[Path]:
        return list(self.storage.local().rglob(".tmp-*"))


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """With the options of the server that a test is given as its parameter."""
    made = Place(tmp_path / "storage", **getattr(request, "param", {}))
    yield made
    made.client.close()
    made.http.close()
    made.server.stop()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_put_and_get(place: Place, tmp_path: Path) -> None:
    data = os.urandom(2_000_000)
    assert place.client.has(sha(data)) is False
    assert place.client.put_bytes(data) == sha(data)
    assert place.client.has(sha(data)) is True
    assert place.client.get(sha(data)) == data == place.storage.get(upload_path(sha(data)))
    path = tmp_path / "module.py"
    path.write_text("def f(): ...\n")
    assert place.client.put_file(path) == sha(path.read_bytes())
    assert place.client.get(sha(path.read_bytes())) == path.read_bytes()
    assert place.client.put_bytes(b"") == sha(b"") and place.client.get(sha(b"")) == b""


def test_answers_of_put(place: Place) -> None:
    first = place.http.put(f"/blobs/{sha(b'x')}", content=b"x")
    again = place.http.put(f"/blobs/{sha(b'x')}", content=b"x")
    chunked = place.http.put(f"/blobs/{sha(b'xy')}", content=iter([b"x", b"y"]))
    assert [each.status_code for each in (first, again, chunked)] == [201, 200, 201]
    assert first.text == f'{{"sha256":"{sha(b"x")}"}}\n'


@pytest.mark.parametrize("known", [False, True])
def test_another_hash_is_refused(place: Place, known: bool) -> None:
    if known:
        place.client.put_bytes(b"x")
    answer = place.http.put(f"/blobs/{sha(b'x')}", content=b"y")
    assert answer.status_code == 422
    assert answer.json() == {"error": f"what came has the hash {sha(b'y')}, not {sha(b'x')}"}
    assert place.storage.exists(upload_path(sha(b"x"))) is known and place.temporaries() == []


@pytest.mark.parametrize("size", [CAP + 1, 2 * CAP + 1])
@pytest.mark.parametrize("declared", [True, False])
def test_too_large_is_refused(place: Place, declared: bool, size: int) -> None:
    data = b"x" * size
    pieces = (data[at : at + 100_000] for at in range(0, len(data), 100_000))
    answer = place.http.put(f"/blobs/{sha(data)}", content=data if declared else pieces)
    assert answer.status_code == 413
    assert answer.text == '{"error":"the blob is larger than 3000000 bytes, the most that is taken"}\n'
    assert place.storage.list() == [] and place.temporaries() == []
    assert place.client.put_bytes(b"x" * CAP) == sha(b"x" * CAP)


def test_client_says_what_is_wrong(place: Place) -> None:
    with pytest.raises(BlobError) as large:
        place.client.put_bytes(b"x" * (CAP + 1))
    with pytest.raises(BlobError) as missing:
        place.client.get(sha(b"none"))
    with pytest.raises(BlobError) as stranger:
        BlobClient(place.url, "wrong").has(sha(b"x"))
    with pytest.raises(BlobError) as unreadable:
        place.client.put_file("/nowhere/file")
    digest = sha(b"x" * (CAP + 1))
    assert (large.value.status, str(large.value)) == (
        413,
        f"/blobs/{digest}: the blob is larger than 3000000 bytes, the most that is taken (HTTP 413)",
    )
    assert str(missing.value) == f"/blobs/{sha(b'none')}: the blob {sha(b'none')} is not there (HTTP 404)"
    assert str(stranger.value) == f"/blobs/{sha(b'x')}: Unauthorized (HTTP 401)"
    assert str(unreadable.value) == "/nowhere/file cannot be read: No such file or directory"


@pytest.mark.parametrize("token", ["a-secret-token\n", "a-secret-token\r", "a-secret-token ", "a-secret-tökén"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(BlobError) as caught:
        BlobClient("http://127.0.0.1:1", token).has(sha(b"x"))
    assert "secret" not in str(caught.value) and "the token has a character that no token has" in str(caught.value)


def test_client_without_a_server() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(BlobError) as caught:
            BlobClient(url, TOKEN).put_bytes(b"x")
    assert str(caught.value) == (
        f"the blob server at {url} cannot be reached ([Errno 111] Connection refused); is the cluster up?"
    )
    assert caught.value.status is None


def test_client_notices_damage(place: Place) -> None:
    place.client.put_bytes(b"good")
    place.storage.local(upload_path(sha(b"good"))).write_bytes(b"evil")
    with pytest.raises(BlobError, match="came damaged"):
        place.client.get(sha(b"good"))


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", ["/blobs/" + "0" * 64, "/files/logs/a", "/nothing"])
def test_nothing_without_the_token(place: Place, method: str, path: str, token: str) -> None:
    status, body = place.raw(f"{method} {path} HTTP/1.1", token=token)
    assert status == 401
    assert body == (b"" if method == "HEAD" else b'{"error":"the token is missing or wrong"}\n')


def test_no_token_header_at_all(place: Place) -> None:
    answer = httpx.get(f"{place.url}/files/logs/a")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("host", "token", "message"),
    [
        ("127.0.0.1", "", "a BlobServer does not listen without a token; set one"),
        ("0.0.0.0", "", "a BlobServer does not listen without a token; set one"),
        (
            "0.0.0.0",
            "short",
            "a BlobServer on 0.0.0.0 can be reached by other machines; give it a token of at least 16 characters, "
            "or let it listen on 127.0.0.1",
        ),
    ],
)
def test_it_does_not_listen_unprotected(tmp_path: Path, host: str, token: str, message: str) -> None:
    with pytest.raises(CannotListen) as caught:
        BlobServer(Storage(str(tmp_path)), token, host=host)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "path",
    [
        "/files/logs/../secret",
        "/files/logs/%2e%2e/secret",
        "/files/logs/..%2fsecret",
        "/files/logs/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
        "/files//etc/passwd",
        "/files/../secret",
        "/files/secret",
        "/files/uploads/x",
        "/files/logs/..%5csecret",
        "/files/logs/link",
        "/files/logs/a%00",
        "/files/logs",
        "/files/",
        "/files/logs/folder",
        "/blobs/../secret",
    ],
)
def test_no_way_out_of_the_folders(place: Place, path: str) -> None:
    place.storage.put_new("secret", b"TOP")
    place.storage.put_new("uploads/x", b"TOP")
    place.storage.put_new("logs/folder/a", b"a")
    place.storage.local("logs/link").symlink_to("/etc/passwd")
    status, body = place.raw(f"GET {path} HTTP/1.1")
    assert status == 404 and b"TOP" not in body and b"root" not in body


@pytest.mark.parametrize("name", ["abc", "0" * 63, "0" * 65, "A" * 64, "..%2f..%2fx"])
def test_what_is_no_hash(place: Place, name: str) -> None:
    for method in ("GET", "PUT"):
        status, body = place.raw(f"{method} /blobs/{name} HTTP/1.1")
        if "%2f" in name:
            assert status == 404
        else:
            assert (status, body) == (
                400,
                b'{"error":"a blob is named by its SHA-256, 64 small hexadecimal digits"}\n',
            )


def test_ranges(place: Place) -> None:
    place.storage.put_new("logs/a", b"0123456789")

    def ask(wanted: str) -> tuple[int, bytes, str | None]:
        answer = place.http.get("/files/logs/a", headers={"Range": wanted} if wanted else {})
        return answer.status_code, answer.content, answer.headers.get("content-range")

    assert ask("") == (200, b"0123456789", None)
    assert ask("bytes=0-") == (206, b"0123456789", "bytes 0-9/10")
    assert ask("bytes=4-") == (206, b"456789", "bytes 4-9/10")
    assert ask("bytes=4-5") == (206, b"45", "bytes 4-5/10")
    assert ask("bytes=4-400") == (206, b"456789", "bytes 4-9/10")
    assert ask("bytes=-3") == (206, b"789", "bytes 7-9/10")
    assert ask("bytes=-30") == (206, b"0123456789", "bytes 0-9/10")
    assert ask("bytes=10-") == (204, b"", "bytes */10")
    assert ask("bytes=11-") == (416, b'{"error":"logs/a has 10 bytes"}\n', "bytes */10")
    for no_range in ("bytes=", "bytes=-", "bytes=5-4", "bytes=1-2,4-5", "lines=1-2", "bytes=x-"):
        assert ask(no_range) == (200, b"0123456789", None)


def test_head_tells_the_size(place: Place) -> None:
    place.storage.put_new("results/a", b"0123456789")
    answer = place.http.head("/files/results/a")
    assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "10", b"")
    assert place.http.head("/files/results/b").status_code == 404


def test_a_growing_file_is_followed(place: Place) -> None:
    path = place.storage.local("logs/j/stdout")
    path.parent.mkdir(parents=True)
    with pytest.raises(BlobError) as caught:
        place.client.get_range("logs/j/stdout", 0)
    assert caught.value.status == 404
    path.write_bytes(b"")
    assert place.client.get_range("logs/j/stdout", 0) == Piece(b"", 0)
    with path.open("ab", buffering=0) as log:
        log.write(b"one\n")
        assert place.client.get_range("logs/j/stdout", 0) == Piece(b"one\n", 4)
        assert place.client.get_range("logs/j/stdout", 4) == Piece(b"", 4)
        log.write(b"two\nthree\n")
        assert place.client.get_range("logs/j/stdout", 4) == Piece(b"two\nthree\n", 14)
        assert place.client.get_range("logs/j/stdout", 4, 3) == Piece(b"two", 14)
        assert place.client.get_range("logs/j/stdout", -6) == Piece(b"three\n", 14)
    path.write_bytes(b"new")
    with pytest.raises(BlobError) as caught:
        place.client.get_range("logs/j/stdout", 14)
    assert caught.value.status == 416
    assert place.client.get_file("logs/j/stdout") == b"new"


def test_names_with_odd_characters(place: Place) -> None:
    place.storage.put_new("logs/j 1/a+b?#%41ü", b"odd")
    assert place.client.get_file("logs/j 1/a+b?#%41ü") == b"odd"


def test_a_broken_upload_leaves_nothing(place: Place) -> None:
    digest = sha(b"x" * 1000)
    with socket.create_connection(("127.0.0.1", place.port)) as connection:
        head = (
            f"PUT /blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
        )
        connection.sendall(head.encode() + b"x" * 999)
    assert place.client.put_bytes(b"x" * 1000) == digest
    place.server.stop()
    assert [each.path for each in place.storage.list()] == [upload_path(digest)] and place.temporaries() == []


def test_a_slow_upload_is_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_SLOWEST_STEP_S", 0.1)
    with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
        head = (
            f"PUT /blobs/{sha(b'x')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1\r\n\r\n"
        )
        connection.sendall(head.encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 408 ") and answer.endswith(b'{"error":"the upload came too slowly"}\n')
    assert place.storage.list() == [] and place.temporaries() == []


@pytest.mark.parametrize("place", [{"most_requests": 1}], indirect=True)
def test_a_reader_that_stops_reading_is_let_go(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.storage.put_new("logs/large", b"x" * 50_000_000)
    monkeypatch.setattr(blobs, "_SLOWEST_STEP_S", 0.1)
    with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
        head = f"GET /files/logs/large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(head.encode())
        connection.recv(1)
        while place.http.head("/files/logs/large").status_code == 503:
            pass
        received = 1
        while chunk := connection.recv(1 << 20):
            received += len(chunk)
    assert received < 50_000_000


@pytest.mark.parametrize("place", [{"most_requests": 0}], indirect=True)
def test_too_many_requests_at_once(place: Place) -> None:
    answer = place.http.get("/files/logs/a")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "too many requests at once; ask again"}


@pytest.mark.parametrize("place", [{"most_requests": 1}], indirect=True)
def test_a_client_comes_again_to_a_server_that_is_busy(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload while others were served had failed the submission; and a second try of a file would have begun at its end."""
    monkeypatch.setattr(client_blobs, "BUSY_RETRY_S", 0.01)
    (tmp_path / "file").write_bytes(data := os.urandom(1_000_000))
    with socket.create_connection(("127.0.0.1", place.port)) as slow:
        slow.sendall(f"PUT /blobs/{sha(b'xy')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 2\r\n\r\nx".encode())
        while place.http.head(f"/blobs/{sha(data)}").status_code != 503:
            pass
        with pytest.raises(BlobError, match="too many requests|HTTP 503") as refused, monkeypatch.context() as patched:
            patched.setattr(client_blobs, "BUSY_S", 0.05)
            place.client.put_file(tmp_path / "file")
        assert refused.value.status == 503
        threading.Timer(0.2, slow.sendall, (b"y",)).start()
        assert place.client.put_file(tmp_path / "file") == sha(data)
    assert place.storage.get(upload_path(sha(data))) == data


def test_many_uploads_of_one_content_store_it_once(place: Place) -> None:
    data = os.urandom(1_000_000)
    ready = threading.Barrier(8)
    answers: list[int] = []

    def upload() -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
            ready.wait()
            answers.append(client.put(f"{place.url}/blobs/{sha(data)}", content=data).status_code)

    threads = [threading.Thread(target=upload) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] * 7 + [201]
    assert [each.path for each in place.storage.list()] == [upload_path(sha(data))] and place.temporaries() == []


def test_use_keeps_a_blob_from_being_swept(place: Place) -> None:
    place.client.put_bytes(b"x")
    path = place.storage.local(upload_path(sha(b"x")))
    os.utime(path, (0, 0))
    place.client.put_bytes(b"x")
    assert path.stat().st_mtime > 1_600_000_000


@pytest.mark.parametrize(("place", "made_young"), [({"young_ms": 60_000}, True), ({}, False)], indirect=["place"])
def test_how_old_a_blob_is_made_young_by_its_use_goes_by_how_long_it_is_kept(place: Place, made_young: bool) -> None:
    """One that is kept for an hour would be swept a minute after it was used, if its age began anew only after an hour."""
    place.client.put_bytes(b"x")
    path, long_ago = place.storage.local(upload_path(sha(b"x"))), int(time.time()) - 1800
    os.utime(path, (long_ago, long_ago))
    assert place.client.has(sha(b"x"))
    assert (path.stat().st_mtime > long_ago) is made_young


def test_of_several_ports_the_first_that_is_free_is_taken(place: Place, tmp_path: Path) -> None:
    """Flink's blob.server.port: a range."""
    free = free_port([])
    server = BlobServer(place.storage, TOKEN, port=[place.port, free])
    assert server.start() == free
    with pytest.raises(CannotListen, match="all 2 ports that it was given are taken; give more"):
        BlobServer(place.storage, TOKEN, port=[place.port, free]).start()
    with pytest.raises(CannotListen, match="the port is taken; give another one, or 0 for a free one"):
        BlobServer(place.storage, TOKEN, port=[place.port]).start()
    server.stop()


def test_over_tls_a_client_knows_its_server_by_the_authority_that_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flink's blob.service.ssl.enabled."""
    certificate, key = certify(tmp_path, "blobs")
    place = Place(tmp_path / "storage", certificate=certificate, key=key)
    url = f"https://127.0.0.1:{place.port}"
    try:
        with BlobClient(url, TOKEN) as client, pytest.raises(BlobError, match="name its authority's certificate in SSL_CERT_FILE"):
            client.put_bytes(b"x")
        with pytest.raises(httpx.HTTPError):
            place.http.get("/files/logs/a")
        assert place.storage.list() == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with BlobClient(url, TOKEN) as client:
            assert client.get(client.put_bytes(b"x")) == b"x"
    finally:
        place.server.stop()


def test_who_looks_at_a_disk_that_hangs_keeps_nobody_else_waiting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def shortage(_: DiskSpace) -> str:
        seen.append(threading.current_thread().name)
        return "the disk is nearly full"

    monkeypatch.setattr(DiskSpace, "shortage", shortage)
    with pytest.raises(BlobError, match="the blob is not taken: the disk is nearly full") as caught:
        place.client.put_bytes(b"x")
    assert caught.value.status == 507
    assert [name.startswith("asyncio_") for name in seen] == [True], "not the thread that answers"


@pytest.mark.parametrize("step", ["__enter__", "write", "commit"])
def test_a_full_disk_is_said(place: Place, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageError("blobs", "no space is left on the disk", "free some")

    monkeypatch.setattr(f"millrace.io.storage.store.Writer.{step}", fail)
    with pytest.raises(BlobError) as caught:
        place.client.put_bytes(b"x" * CAP)
    assert caught.value.status == 507
    assert str(caught.value).endswith(
        "the blob could not be stored: blobs: no space is left on the disk; free some (HTTP 507)"
    )
    assert place.temporaries() == []


def test_other_methods_and_paths(place: Place) -> None:
    assert place.raw("DELETE /blobs/x HTTP/1.1") == (405, b'{"error":"Method Not Allowed"}\n')
    assert place.raw("GET /nothing HTTP/1.1") == (404, b'{"error":"Not Found"}\n')
    assert place.raw("GET /blobs HTTP/1.1") == (404, b'{"error":"Not Found"}\n')


def test_stop_cuts_transfers_under_way(place: Place) -> None:
    before = threading.active_count()
    digest = sha(b"x" * 1000)
    with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
        head = (
            f"PUT /blobs/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
        )
        connection.sendall(head.encode() + b"x" * 999)
        place.server.stop()
        assert threading.active_count() < before
        with pytest.raises(BlobError):
            place.client.has(digest)
    assert place.storage.list() == [] and place.temporaries() == []


def test_a_blob_whose_age_cannot_be_changed_is_read_all_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.client.put_bytes(b"x")

    def fail(*_: object) -> None:
        raise StorageError("blobs", "the disk is read-only", "mount it writable")

    os.utime(place.storage.local(upload_path(sha(b"x"))), (0, 0))
    monkeypatch.setattr(Storage, "touch", fail)
    assert place.client.get(sha(b"x")) == b"x"
    monkeypatch.setattr(Storage, "stat", fail)
    with pytest.raises(BlobError, match="cannot be read: blobs: the disk is read-only") as caught:
        place.client.get(sha(b"x"))
    assert caught.value.status == 507
