"""The cache of fetched programs: a folder is there whole and verified, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from deploy.local.errors import LocalError, plain_errors

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """MILLRACE_CACHE, else ``.millrace/cache`` in the checkout. Everything in it can be deleted and comes back."""
    environ = os.environ if environ is None else environ
    return Path(environ.get("MILLRACE_CACHE") or CHECKOUT / ".millrace" / "cache").absolute()


def read_pins(path: Path) -> dict[str, str]:
    """File name -> SHA-256, from a file as ``sha256sum`` writes and ``sha256sum -c`` reads it."""
    lines = [line.split() for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name.lstrip("*"): sha256 for sha256, name in lines}


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def verify(folder: Path, pins: Mapping[str, str]) -> None:
    """``folder`` holds exactly the pinned files as they were pinned, else a ``LocalError`` with each difference."""
    found = {path.name: path for path in folder.iterdir()}
    wrong = [f"{name} is missing" for name in sorted(pins.keys() - found.keys())]
    wrong += [f"{name} is not among the pinned files" for name in sorted(found.keys() - pins.keys())]
    for name in sorted(pins.keys() & found.keys()):
        actual = sha256_of(found[name])
        if actual != pins[name]:
            wrong.append(f"{name} has SHA-256 {actual} instead of {pins[name]}")
    if wrong:
        raise LocalError(
            f"What was fetched is not what is pinned ({wrong[0]}), so nothing of it was kept: "
            "try again; if it stays so, the source or the network was tampered with.",
            detail="\n".join(wrong),
        )


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Held by one process at a time; another waits. A dead process holds nothing."""
    with plain_errors(lock.parent):
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def fetched(folder: Path, pins: Mapping[str, str], fetch: Callable[[Path, Path], None]) -> Path:
    """``folder``, filled by ``fetch(files, scratch)`` and verified if it is not there yet.

    ``fetch`` writes the pinned files into ``files`` and may use ``scratch``. Every file is hashed when it is fetched;
    afterwards only the sizes are compared with a stamp. Two processes at once fetch once.
    """
    if is_intact(folder, pins):
        return folder
    with only_one(folder.with_name(folder.name + ".lock")), plain_errors(folder.parent):
        if is_intact(folder, pins):
            return folder
        with tempfile.TemporaryDirectory(prefix=folder.name + ".new-", dir=folder.parent) as temporary:
            files, scratch = Path(temporary, "files"), Path(temporary, "scratch")
            files.mkdir()
            scratch.mkdir()
            fetch(files, scratch)
            verify(files, pins)
            sizes = {name: (files / name).stat().st_size for name in sorted(pins)}
            (files / ".verified").write_text(json.dumps({"pins": dict(pins), "sizes": sizes}) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            files.rename(folder)
    return folder


def is_intact(folder: Path, pins: Mapping[str, str]) -> bool:
    """Whether the folder was verified against these pins and the sizes are still those of then."""
    try:
        stamp = json.loads((folder / ".verified").read_text())
        sizes = {name: (folder / name).stat().st_size for name in pins}
        return bool(stamp == {"pins": dict(pins), "sizes": sizes})
    except (OSError, ValueError):
        return False
