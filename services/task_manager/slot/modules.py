"""The uploaded files of a job, put where the driver's Python and Spark's Python workers find them."""

from __future__ import annotations

import os
import re
import shutil
import sys
import uuid
import zipfile
from typing import Any

from .errors import AttemptError

FOLDER = "millrace-modules"
_ZIPPED = (".zip", ".egg", ".whl")


def install(spec: dict[str, Any], session: Any, dirs: Any) -> str:
    """Copies the job's modules from `dirs.blobs` below `dirs.work` and gives them to Spark; returns their folder.

    py goes on `sys.path` and to the workers; file and archive into the working folder and to `SparkFiles` (a script stays here);
    jar is not ours:    a job with jars has a JVM of its own. Raises AttemptError MODULE_MISSING (infrastructure).
    """
    folder = os.path.join(dirs.work, FOLDER)
    os.makedirs(folder, exist_ok=True)
    # Spark's file server takes a name once in its life, and tracebacks show it: an attempt's own.
    unique = uuid.uuid4().hex[:12]
    scripts = {vertex["spark_app"]["script"] for vertex in spec["vertices"] if vertex.get("spark_app")}
    context = session.sparkContext
    path, plain = [folder], []
    for module in spec.get("modules") or []:
        kind, name = module["kind"], module["name"]
        if kind == "jar":
            continue
        copy = _copy(module, dirs, folder)
        if kind == "py" and name.endswith(_ZIPPED):
            path.append(copy)
            sent = os.path.join(dirs.work, f"{FOLDER}-{unique}-{os.path.splitext(name)[0]}.zip")
            shutil.copyfile(copy, sent)
            context.addPyFile(sent)
        elif kind == "py":
            plain.append(copy)
        elif kind == "file":
            _link(copy, os.path.join(dirs.work, name))
            if name not in scripts:
                context.addFile(copy)
        elif kind == "archive":
            shutil.unpack_archive(copy, os.path.join(dirs.work, name), _archive_format(name))
            context.addArchive(copy)
        else:
            raise AttemptError("UNKNOWN_MODULE_KIND", f"Module {name!r} is of the unknown kind {kind!r}")
    if plain:
        context.addPyFile(_zip(plain, os.path.join(dirs.work, f"{FOLDER}-{unique}.zip")))
    sys.path[:0] = path
    return folder


def _copy(module: dict[str, Any], dirs: Any, folder: str) -> str:
    name = module["name"]
    if os.path.basename(name) != name or name.startswith(".") or not re.fullmatch(r"[0-9a-f]{64}", module["sha256"]):
        raise AttemptError("BAD_MODULE_NAME", f"Module {name!r} is no plain file name with a SHA-256")
    copy = os.path.join(folder, name)
    try:
        shutil.copyfile(os.path.join(dirs.blobs, module["sha256"]), copy)
    except FileNotFoundError:
        raise AttemptError(
            "MODULE_MISSING",
            f"The content of module {name!r} ({module['sha256'][:12]}...) did not arrive on this TaskManager",
            kind="infrastructure",
            retryable=True,
        ) from None
    return copy


def _zip(files: list[str], target: str) -> str:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            archive.write(file, os.path.basename(file))
    return target


def _link(copy: str, target: str) -> None:
    if not os.path.lexists(target):
        shutil.copyfile(copy, target)


def _archive_format(name: str) -> str:
    for ending, kind in ((".tar.gz", "gztar"), (".tgz", "gztar"), (".tar", "tar"), (".zip", "zip"), (".jar", "zip")):
        if name.endswith(ending):
            return kind
    raise AttemptError("UNKNOWN_ARCHIVE", f"Archive {name!r} is none of .zip, .jar, .tar, .tar.gz, .tgz")
