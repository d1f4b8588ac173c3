"""What a job's modules import from beside them: it goes with the job, as it would be found where the user runs them.

Nothing is run. Imports are read off the text, in functions too, and followed: `helper.py`, and the folder `lib`, packed.
"""

from __future__ import annotations

import ast
import io
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FILES_MOST, BYTES_MOST = 2000, 32 << 20  # of one packed folder
_UNPACKED = ("__pycache__", "node_modules")


@dataclass
class FilesBeside:
    """Modules by their file's name: files as they are, folders as zip archives; and the folders that are too large to go along."""

    files: dict[str, Path] = field(default_factory=dict)
    packed: dict[str, bytes] = field(default_factory=dict)
    too_large: list[Path] = field(default_factory=list)


def imported(modules: Iterable[Path], folder: Path, given: Iterable[str] = ()) -> FilesBeside:
    """What `modules` import from `folder`, and what that imports. `given`: names of files that go with the job already. A name of
    Python's own library is that one: a file that is called so would be found by others, too."""
    found = FilesBeside()
    seen = {Path(name).stem for name in given} | sys.stdlib_module_names
    ahead = list(modules)
    while ahead:
        for name in _names(ahead.pop()):
            if name in seen:
                continue
            seen.add(name)
            file, package = folder / f"{name}.py", folder / name
            if not (package / "__init__.py").is_file() and file.is_file():
                found.files[file.name] = file
                ahead.append(file)
            elif package.is_dir():
                _pack_into(found, package, ahead)
    return found


def package(folder: Path) -> FilesBeside:
    """One folder, packed, with what its modules import from beside it."""
    found = FilesBeside()
    ahead: list[Path] = []
    _pack_into(found, folder, ahead)
    beside = imported(ahead, folder.parent, [folder.name])
    return FilesBeside({**found.files, **beside.files}, {**found.packed, **beside.packed}, [*found.too_large, *beside.too_large])


def _pack_into(found: FilesBeside, folder: Path, ahead: list[Path]) -> None:
    files = list(_inside(folder))
    modules = [file for file in files if file.suffix == ".py"]
    if not modules:
        return  # no package, whatever it is called
    if len(files) > FILES_MOST or sum(file.stat().st_size for file in files) > BYTES_MOST:
        found.too_large.append(folder)
        return
    found.packed[f"{folder.name}.zip"] = _zipped(folder, files)
    ahead += modules


def _inside(folder: Path) -> Iterator[Path]:
    """Its files, however deep, in the order of their names, one more than are taken at most; nothing hidden, no compiled ones."""
    left = FILES_MOST + 1
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _UNPACKED and not name.startswith("."))
        for name in sorted(files):
            path = Path(where) / name
            if not name.startswith(".") and path.is_file():
                yield path
                left -= 1
                if not left:
                    return


def _zipped(folder: Path, files: list[Path]) -> bytes:
    """The same bytes for the same files, so that a repeat is the same job."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        entries: dict[str, bytes] = {}
        for file in files:
            path = file.relative_to(folder.parent)
            for parent in reversed(path.parents[:-1]):  # folders without __init__.py are found by entries of their own
                entries.setdefault(f"{parent.as_posix()}/", b"")
            entries[path.as_posix()] = file.read_bytes()
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _names(module: Path) -> list[str]:
    """The top-level names that a module imports; none of one that this Python cannot read."""
    try:
        tree = ast.parse(module.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name.partition(".")[0] for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.partition(".")[0]] = None
    return list(names)
