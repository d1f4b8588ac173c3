"""The files that the attempts of a job have left in their folders, and that were kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from millrace.core.messages.attempts import Fault
from millrace.core.messages.execution import JobDetail


@dataclass(frozen=True)
class KeptFile:
    """One file; `path`: where it lies on the blob server."""

    task: str
    subtask: int
    attempt: int
    name: str
    bytes: int
    path: str


@dataclass(frozen=True)
class Files:
    """What is kept, and what is not: its name and the reason, as far as they are listed; `left_out_in_all`: how many those are."""

    kept: list[KeptFile] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    left_out_in_all: int = 0


def folders(detail: JobDetail | None) -> Iterator[tuple[str, int, int, str]]:
    """(task, subtask, attempt, folder below results/) of the attempts that left files, of each subtask the last one."""
    for task in detail.tasks if detail is not None else ():
        for subtask in task.subtasks:
            failed = [each.attempt for each in subtask.failures if _counts_files(each.error)]
            attempt = subtask.attempt if subtask.files is not None else failed[-1] if failed else None
            for log in subtask.logs:
                if log.attempt == attempt:
                    yield task.task, subtask.subtask, attempt, log.path


def _counts_files(error: Fault) -> bool:
    return bool(error.files_kept or error.files_left_out)


def listed(where: tuple[str, int, int, str], manifest: bytes) -> Files:
    """What the list beside an attempt's files says. Names that lead out of a folder are none. Raises ValueError."""
    task, subtask, attempt, folder = where
    try:
        value = json.loads(manifest)
        kept = [
            KeptFile(task, subtask, attempt, name, _size(each["bytes"]), f"results/{folder}/files/{name}")
            for each in value["files"]
            if not {"", ".", ".."} & set((name := each["name"]).split("/"))
        ]
        left_out = [(_text(each["name"]), _text(each["why"])) for each in value["left_out"]]
        return Files(kept, left_out, _size(value["left_out_in_all"]))
    except (AttributeError, KeyError, TypeError, RecursionError) as wrong:
        raise ValueError(f"it is no list of files ({type(wrong).__name__}: {wrong})") from None


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r:.100} is no size")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is no text")
    return value.encode("utf-8", "replace").decode()
