"""The file of tokens: their names, roles and hashes. It never has a token itself.

A token is 32 random bytes, so a plain SHA-256 keeps it: nobody can try 2^256 of them. A slow hash with a salt is for passwords, which
people choose, and would cost every request what it costs an attacker.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from millrace.core.messages.audit import Role

PREFIX = "mlr_"
"""Begins every token, so that who searches for secrets that got out finds it."""
TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$"
TOKENS_MOST = 1000
FILE_MOST = 1 << 20
LOOK_S = 1.0

log = structlog.get_logger("web")


class BadTokens(Exception):
    """The file cannot be used; the message says why."""


class Token(BaseModel):
    """One, without itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=NAME)]
    role: Role
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    created_ms: int
    expires_ms: int | None = None

    def is_over(self, wall_ms: int) -> bool:
        return self.expires_ms is not None and wall_ms >= self.expires_ms


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tokens: Annotated[list[Token], Field(max_length=TOKENS_MOST)] = []


def sha256_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def read(path: Path) -> list[Token]:
    """What is in the file. Raises BadTokens."""
    try:
        with open(path, "rb") as file:
            text = file.read(FILE_MOST + 1)
    except OSError as error:
        raise BadTokens(f"the tokens' file {path} cannot be read: {error.strerror}") from None
    if len(text) > FILE_MOST:
        raise BadTokens(f"the tokens' file {path} is larger than {FILE_MOST} bytes")
    try:
        found = _File.model_validate_json(text).tokens
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadTokens(f"the tokens' file {path} is wrong{' at ' + where if where else ''}: {first['msg']}") from None
    names = [each.name for each in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadTokens(f"the tokens' file {path} has {twice} twice")
    return found


def create(path: Path, name: str, role: Role, lasts_s: float | None, wall_ms: int) -> str:
    """Adds a token to the file, which is made if it is not there: the token, which is nowhere else. Raises BadTokens."""
    if not re.fullmatch(NAME, name):
        raise BadTokens(f"{name[:200]!r} is no name of a token: letters, digits and . _ @ -, at most 100")
    token = f"{PREFIX}{secrets.token_urlsafe(32)}"
    with _changed(path) as tokens:
        if any(each.name == name for each in tokens):
            raise BadTokens(f"there is a token {name} already: revoke it first, or give another name")
        if len(tokens) >= TOKENS_MOST:
            raise BadTokens(f"there are {TOKENS_MOST} tokens already, the most that a file has: revoke some")
        expires_ms = None if lasts_s is None else wall_ms + int(lasts_s * 1000)
        tokens.append(Token(name=name, role=role, sha256=sha256_of(token), created_ms=wall_ms, expires_ms=expires_ms))
    return token


def revoke(path: Path, name: str) -> None:
    """Takes a token out of the file. Raises BadTokens."""
    with _changed(path) as tokens:
        left = [each for each in tokens if each.name != name]
        if len(left) == len(tokens):
            raise BadTokens(f"there is no token {name!r} in {path}")
        tokens[:] = left


@contextmanager
def _changed(path: Path) -> Iterator[list[Token]]:
    """The tokens, to be changed; written in one step, by one process at a time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.with_name(f".{path.name}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = read(path) if path.exists() else []
            yield tokens
            with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:  # of mode 0600
                file.write(_File(tokens=tokens).model_dump_json(indent=1) + "\n")
            if path.exists():
                was = path.stat()
                os.chmod(file.name, was.st_mode & 0o777)
                if os.geteuid() == 0:  # the service may run as another user
                    os.chown(file.name, was.st_uid, was.st_gid)
            os.replace(file.name, path)
    except OSError as error:
        raise BadTokens(f"the tokens' file {path} cannot be written: {error.strerror}") from None


class TokenFile:
    """The file as a service uses it: read again within a second of a change. While it is wrong no token is taken: one that somebody has
    just revoked must not be."""

    def __init__(
        self, path: Path, now_s: Callable[[], float] = time.monotonic, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        """Raises BadTokens."""
        self._path, self._now_s, self._wall_ms = path, now_s, wall_ms
        self._looked_s, self._mark, self._failure = now_s(), self._stat(), ""
        self._by_hash = {each.sha256: each for each in read(path)}

    def find(self, token: str) -> Token | None:
        """The token that this text is, if it may be used."""
        return self.by_hash(sha256_of(token)) if TOKEN.fullmatch(token) else None

    def by_hash(self, sha256: str) -> Token | None:
        """The token with this hash, if it may be used now."""
        self._look()
        found = self._by_hash.get(sha256)
        if found is None or not hmac.compare_digest(found.sha256, sha256) or found.is_over(self._wall_ms()):
            return None
        return found

    def _look(self) -> None:
        if self._now_s() - self._looked_s < LOOK_S:
            return
        self._looked_s = self._now_s()
        mark = self._stat()
        if mark == self._mark and not self._failure:
            return
        self._mark, before = mark, self._failure
        try:
            self._by_hash, self._failure = {each.sha256: each for each in read(self._path)}, ""
            log.info("the tokens were read again", number=len(self._by_hash))
        except BadTokens as bad:  # what hinders the reading may end without a change of the file
            self._by_hash, self._failure = {}, str(bad)
            if self._failure != before:
                log.error("no token is taken until the file is right again", reason=self._failure)

    def _stat(self) -> tuple[int, int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
