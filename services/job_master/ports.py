"""What a JobMaster does to the outside world: publishing sinks."""

from __future__ import annotations

import posixpath
from typing import Any

import fsspec

from millrace.core.messages.effects import PublishSink, SinkPublished
from millrace.io.performer import Fence, Port, one_by_one


def ports() -> dict[type, Port]:
    return {PublishSink: one_by_one(publish_sink)}


def publish_sink(effect: PublishSink, fence: Fence) -> SinkPublished:
    """As `_publish`; what the user must mend is the job's problem, all else is tried again."""
    try:
        return _publish(effect)
    except (
        FileExistsError,
        NotADirectoryError,
        IsADirectoryError,
        PermissionError,
        ImportError,
        ValueError,
    ) as failure:
        what = f"{effect.path} cannot be written as a folder of files: {failure}"
        return SinkPublished(job=effect.job, vertex=effect.vertex, problem=what[:500])


def _publish(effect: PublishSink) -> SinkPublished:
    """Moves the staged files of the attempts that count to the sink's path.

    A file's published name is made of (acceptance, vertex, life, subtask), so a repeat after a crash finds what was moved and goes
    on, and what an earlier life of the JobMaster's state published for the same job is replaced, not doubled. overwrite deletes the
    old files only after the new ones stand, and only while they do: a repeat that comes after a later job has overwritten the path
    finds nothing of its own there, and touches nothing.
    """
    fs, target = fsspec.core.url_to_fs(effect.path)
    staged = [_staged(fs, folder) for folder in effect.staged]
    standing = _files(fs, target)
    jobs_own = [file for file in standing if posixpath.basename(file).startswith(f"{effect.name}-")]
    prefix = f"{effect.name}-{effect.life}-"
    ours = [file for file in jobs_own if posixpath.basename(file).startswith(prefix)]
    if effect.mode == "error" and len(jobs_own) < len(standing):
        what = f"{effect.path} is there already (mode: error); use mode overwrite or append, or another path"
        return SinkPublished(job=effect.job, vertex=effect.vertex, problem=what)
    fs.makedirs(target, exist_ok=True)
    for index, (folder, files) in enumerate(staged):
        for file in files:
            relative = posixpath.relpath(file, folder)
            name = f"{prefix}{index:05d}-{posixpath.basename(relative)}"
            published = posixpath.join(target, posixpath.dirname(relative), name)
            fs.makedirs(posixpath.dirname(published), exist_ok=True)
            fs.mv(file, published)
            ours.append(published)
    if ours:
        # Of what stood there at the start: a later job's files are not ours to delete, should this process have slept meanwhile.
        for file in standing if effect.mode == "overwrite" else jobs_own:
            if not posixpath.basename(file).startswith(prefix):
                fs.rm(file)
    return SinkPublished(job=effect.job, vertex=effect.vertex)


def _staged(fs: Any, folder: str) -> tuple[str, list[str]]:
    path = fs._strip_protocol(folder)
    return path, [file for file in _files(fs, path) if not posixpath.basename(file).startswith(("_", "."))]


def _files(fs: Any, folder: str) -> list[str]:
    """All files below a folder, in order; none if it is not there."""
    fs.invalidate_cache()
    return sorted(fs.find(folder)) if fs.exists(folder) else []
