"""The files that an attempt leaves in its folder, kept with its job: `results/<attempt>/files/...`, and a list of them beside it.

Nothing of the attempt lives any more. What it left is a stranger's all the same: links are not followed, pipes not opened, and a file
counts with the length that it claims. What is not kept is listed too, with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from millrace.core.messages.attempts import ModuleSpec
from millrace.io.storage.store import BadName, Storage, StorageError

LEFT_OUT_LISTED = 100
SEEN_MOST, DEPTH_MOST = 20_000, 32  # entries and levels of folders that are looked at
_OWN = re.compile(r"jars|millrace-modules(-[0-9a-f]{12}(-.*)?\.zip)?", re.DOTALL)  # by slot/attempt/modules.py, slot/host/main.py
COMPARED_MOST = 1 << 30  # bytes: of a larger file it is not read whether it is as it was shipped


@dataclass(frozen=True)
class Keep:
    """How much is kept of one attempt."""

    files: int = 1000
    bytes: int = 64 << 20


@dataclass
class _Found:
    kept: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    left_out_in_all: int = 0
    bytes: int = 0

    def leave_out(self, name: str, why: str) -> None:
        """A byte of a name that is no UTF-8 becomes a question mark: no page and no message could be written with it."""
        self.left_out_in_all += 1
        if len(self.left_out) < LEFT_OUT_LISTED:
            self.left_out.append({"name": name[:255].encode("utf-8", "replace").decode(), "why": why})


def keep_files(work: str, modules: Sequence[ModuleSpec], storage: Storage, folder: str, keep: Keep) -> dict[str, Any] | None:  # [R30]
    """Copies them to storage; what to tell of them, in numbers: {"kept", "bytes", "left_out"}, None if there are none. Raises
    StorageError only if the list itself cannot be written."""
    found = _Found()
    shipped = {
        module.name: module.sha256 if module.kind == "file" else None for module in modules if module.kind in ("file", "archive")
    }
    for seen, (name, parent, entry) in enumerate(_walk(work, found)):
        if seen == SEEN_MOST:
            found.leave_out("...", f"more than {SEEN_MOST} files and folders are there")
            break
        if name.partition("/")[0] in shipped and shipped[name.partition("/")[0]] is None:
            continue  # of an archive that was unpacked there
        _keep_one(name, parent, entry, shipped.get(name), storage, folder, keep, found)
    if not found.kept and not found.left_out:
        return None
    listed = {"files": found.kept, "left_out": found.left_out, "left_out_in_all": found.left_out_in_all}
    storage.put_if_absent(f"results/{folder}/files.json", json.dumps(listed).encode())
    return {"kept": len(found.kept), "bytes": found.bytes, "left_out": found.left_out_in_all}


def _walk(work: str, found: _Found) -> Iterator[tuple[str, int, os.DirEntry[str]]]:
    """(its name from the attempt's folder on, the folder that it is in, the entry) of all that is no folder, in the order of names."""
    with contextlib.ExitStack() as opened:
        try:
            top = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return  # it was never made
        opened.callback(os.close, top)
        yield from _below(top, "", 0, found)


def _below(where: int, prefix: str, depth: int, found: _Found) -> Iterator[tuple[str, int, os.DirEntry[str]]]:
    with os.scandir(where) as entries:
        listed = sorted(islice(entries, SEEN_MOST + 1), key=lambda entry: entry.name)
    for entry in listed:
        name = prefix + entry.name
        if (depth == 0 and _OWN.fullmatch(entry.name)) or entry.name == "__pycache__" or _is_check_sum(entry.name):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield name, where, entry
        elif depth == DEPTH_MOST:
            found.leave_out(name, f"it is deeper than {DEPTH_MOST} folders")
        else:
            try:
                inner = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=where)
            except OSError as error:
                found.leave_out(name, error.strerror or "it cannot be read")
                continue
            try:
                yield from _below(inner, f"{name}/", depth + 1, found)
            finally:
                os.close(inner)


def _is_check_sum(name: str) -> bool:
    """Hadoop's, of the file beside it."""
    return name.startswith(".") and name.endswith(".crc")


def _keep_one(
    name: str, parent: int, entry: os.DirEntry[str], sha256: str | None, storage: Storage, folder: str, keep: Keep, found: _Found
) -> None:
    """Copies one file. `sha256`: of one that went with the job under this name; as it was, it is not kept."""
    try:
        file = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError as error:
        found.leave_out(name, "it is a link" if entry.is_symlink() else error.strerror or "it cannot be read")
        return
    try:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            found.leave_out(name, "it is no file")
        elif sha256 is not None and seen.st_size <= COMPARED_MOST and _digest(file, seen.st_size) == sha256:
            return
        elif found.bytes + seen.st_size > keep.bytes:
            found.leave_out(name, f"all that is kept of an attempt has at most {keep.bytes} bytes, and this {seen.st_size}")
        elif len(found.kept) == keep.files:
            found.leave_out(name, f"at most {keep.files} files of an attempt are kept")
        else:
            written = _copy(file, seen.st_size, storage, f"results/{folder}/files/{name}")
            found.kept.append({"name": name, "bytes": written})
            found.bytes += written
    except BadName:
        found.leave_out(name, "storage takes no such name")
    except (OSError, StorageError) as error:
        found.leave_out(name, f"it could not be stored: {error}")
    finally:
        os.close(file)


def _digest(file: int, size: int) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(file, size):
        digest.update(piece)
    return digest.hexdigest()


def _copy(file: int, size: int, storage: Storage, path: str) -> int:
    """How many bytes were written: fewer than `size` if somebody cuts the file meanwhile."""
    written = 0
    with storage.writer(path) as writer:
        for piece in _pieces(file, size):
            writer.write(piece)
            written += len(piece)
        writer.commit()
    return written


def _pieces(file: int, size: int) -> Iterator[bytes]:
    """Its first `size` bytes, and no more: they were counted."""
    at = 0
    while at < size and (piece := os.pread(file, min(1 << 20, size - at), at)):
        yield piece
        at += len(piece)
