"""The client's side of the BlobServer: files over HTTP."""

from __future__ import annotations

import hashlib
import io
import re
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

BATCH = 1 << 18
BUSY_S, BUSY_RETRY_S = 20.0, 0.5  # how long one comes again to a server that answers as many as it may, and after what pause


class BlobError(Exception):
    """A blob or file could not be put or got; the message says why. `status`: HTTP's, None if there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Piece:
    """Part of a file, and how long the file was then."""

    data: bytes
    size: int


class BlobClient:
    """Puts and gets over one connection. Not for several threads at once. All methods raise BlobError."""

    def __init__(self, url: str, token: str, timeout_s: float = 30.0) -> None:
        """`url`: the BlobServer's, as the cluster tells it. `timeout_s`: the longest wait for any single step."""
        if not re.fullmatch(r"([!-~]([ -~]*[!-~])?)?", token):  # httpx would say so with the token in its words
            raise BlobError("the token has a character that no token has (the end of a line?); give it as the cluster has it")
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        # Not through a proxy from the environment: the server is of the cluster, mostly on this very machine.
        # Nor is httpx's list of authorities the system's: with TLS those of the system are known, or of SSL_CERT_FILE. Without TLS
        # nobody's are: to read the list takes longer than a request.
        verify = ssl.create_default_context() if self._url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._http = httpx.Client(base_url=self._url, headers=headers, timeout=timeout_s, trust_env=False, verify=verify)

    def __enter__(self) -> BlobClient:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()

    def has(self, sha256: str) -> bool:
        """Whether the blob is there. If so, it stays for a while."""
        return self._ask("HEAD", f"/blobs/{sha256}", allowed=(404,)).status_code == 200

    def put_bytes(self, data: bytes) -> str:
        """Stores the bytes unless they are there already; returns their hash."""
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.has(sha256):
            self._ask("PUT", f"/blobs/{sha256}", content=data)
        return sha256

    def put_file(self, path: str | Path) -> str:
        """Stores a file's content unless it is there already; returns its hash."""
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while chunk := file.read(BATCH):
                    digest.update(chunk)
                if not self.has(digest.hexdigest()):
                    file.seek(0)
                    self._ask("PUT", f"/blobs/{digest.hexdigest()}", content=file)
        except OSError as error:
            raise BlobError(f"{path} cannot be read: {error.strerror}") from None
        return digest.hexdigest()

    def get(self, sha256: str) -> bytes:
        """The blob's content, checked against its hash."""
        data: bytes = self._ask("GET", f"/blobs/{sha256}").content
        if hashlib.sha256(data).hexdigest() != sha256:
            raise BlobError(f"the blob {sha256} came damaged; ask again")
        return data

    def get_file(self, path: str) -> bytes:
        """The whole of a file below logs/, results/ or archives/."""
        content: bytes = self._ask("GET", self._file(path)).content
        return content

    def get_range(self, path: str, start: int, length: int | None = None) -> Piece:
        """What the file has from `start` on, at most `length` bytes; none if nothing has come yet. A negative `start`
        counts from the end. BlobError with status 416: the file is shorter than `start`."""
        last = "" if length is None else str(start + max(length, 1) - 1)
        wanted = f"bytes={start}-{last}" if start >= 0 else f"bytes={start}"
        answer = self._ask("GET", self._file(path), headers={"Range": wanted})
        size = int(answer.headers.get("content-range", f"/{len(answer.content)}").rpartition("/")[2])
        return Piece(answer.content if length is None else answer.content[:length], size)

    def _file(self, path: str) -> str:
        return f"/files/{quote(path)}"

    def _ask(self, method: str, path: str, allowed: tuple[int, ...] = (), **more: Any) -> httpx.Response:
        end = time.monotonic() + BUSY_S
        try:
            answer = self._http.request(method, path, **more)
            while answer.status_code == 503 and time.monotonic() < end:  # others are served first
                time.sleep(BUSY_RETRY_S)
                if isinstance(content := more.get("content"), io.IOBase):
                    content.seek(0)
                answer = self._http.request(method, path, **more)
        except httpx.TimeoutException:
            raise BlobError(f"the blob server at {self._url} did not answer in time; try again") from None
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            do = "name its authority's certificate in SSL_CERT_FILE" if "CERTIFICATE_VERIFY_FAILED" in reason else "is the cluster up?"
            raise BlobError(f"the blob server at {self._url} cannot be reached ({reason}); {do}") from None
        if answer.is_success or answer.status_code in allowed:
            return answer
        raise BlobError(_reason(answer, path), answer.status_code)


def _reason(answer: httpx.Response, path: str) -> str:
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = answer.text.strip()[:200]
    return f"{path}: {error or answer.reason_phrase or 'refused'} (HTTP {answer.status_code})"
