"""The uploaded files of a job, put where the driver's Python and Spark's Python workers find them."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tarfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

from ..attempt_wire import AttemptSpec, ModuleSpec
from ..common.config import MODULES_FOLDER, Dirs
from .errors import AttemptError

_ZIPPED = (".zip", ".egg", ".whl")
_ARCHIVES = ((".tar.gz", "gztar"), (".tgz", "gztar"), (".tar", "tar"), (".zip", "zip"), (".jar", "zip"))


def install(spec: AttemptSpec, session: Any, dirs: Dirs) -> str:
    """Puts the job's modules from `dirs.blobs` below `dirs.work` and gives them to Spark; returns their folder.

    A py goes on `sys.path` and to the workers. A file or archive goes into the working folder and to `SparkFiles`, a script only into
    the folder that is returned. A jar is not ours, because a job with jars has a JVM of its own; nor is env, which the
    TaskManager reads. Raises AttemptError; MODULE_MISSING (infrastructure) if the content did not arrive.
    """
    work = Path(dirs.work)
    folder = work / MODULES_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    # Spark's file server takes a name once in its life, and tracebacks show it: an attempt's own.
    unique = uuid.uuid4().hex[:12]
    scripts = {app["script"] for vertex in spec["vertices"] if (app := vertex.get("spark_app"))}
    context = session.sparkContext
    path, plain = [str(folder)], []
    for module in spec["modules"]:
        kind, name = module["kind"], module["name"]
        if kind in ("jar", "env"):
            continue
        copy = linked(module, dirs, folder)
        if kind == "py" and name.endswith(_ZIPPED):
            path.append(str(copy))
            sent = work / f"{MODULES_FOLDER}-{unique}-{copy.stem}.zip"
            shutil.copyfile(copy, sent)
            context.addPyFile(str(sent))
        elif kind == "py":
            plain.append(copy)
        elif kind == "file":
            shutil.copyfile(copy, work / name)
            if name not in scripts:
                context.addFile(str(copy))
        elif kind == "archive":
            _unpack(copy, work / name)
            context.addArchive(str(copy))
        else:
            raise AttemptError("UNKNOWN_MODULE_KIND", f"Module {name!r} is of the unknown kind {kind!r}")
    if plain:
        sent = work / f"{MODULES_FOLDER}-{unique}.zip"
        with zipfile.ZipFile(sent, "w", zipfile.ZIP_STORED) as archive:
            for file in plain:
                archive.write(file, file.name)
        context.addPyFile(str(sent))
    sys.path[:0] = path
    return str(folder)


def linked(module: ModuleSpec, dirs: Dirs, folder: Path) -> Path:
    """The attempt's own copy of a module, under its name. Raises AttemptError."""
    name, digest = module["name"], module["sha256"]
    if Path(name).name != name or name.startswith(".") or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise AttemptError("BAD_MODULE_NAME", f"Module {name!r} is no plain file name with a SHA-256")
    own, named = Path(dirs.blobs) / digest, folder / name
    try:
        named.unlink(missing_ok=True)  # of a process of this attempt that was lost
        if own.stat().st_nlink > 1:  # another of its names: who writes into one file is not to change the other
            shutil.copyfile(own, named)
        else:
            try:
                os.link(own, named)
            except OSError:  # no hard links here
                shutil.copyfile(own, named)
    except FileNotFoundError:
        raise AttemptError(
            "MODULE_MISSING",
            f"The content of module {name!r} ({digest[:12]}...) did not arrive on this TaskManager",
            kind="infrastructure",
            retryable=True,
        ) from None
    return named


def _unpack(archive: Path, folder: Path) -> None:
    """Unpacks into the folder alone: a member whose name leads out of it is an error (of a zip it is left out). Links may, as those to
    its Python of a packed environment do; nothing is written through them."""
    kind = _archive_format(archive.name)
    safely = {"filter": _inside} if kind != "zip" and hasattr(tarfile, "tar_filter") else {}  # the oldest Pythons know no filters
    shutil.unpack_archive(archive, folder, kind, **safely)


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """As the library's filter; and a hard link is to a file of the archive, for a later member of its name is written into that file."""
    if member.islnk():
        tarfile.data_filter(member, folder)
    return tarfile.tar_filter(member, folder)


def _archive_format(name: str) -> str:
    for ending, kind in _ARCHIVES:
        if name.endswith(ending):
            return kind
    raise AttemptError("UNKNOWN_ARCHIVE", f"Archive {name!r} is none of {', '.join(e for e, _ in _ARCHIVES)}")
