"""Folders that attempts write to are removed, whatever was left there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

LONG = 900  # characters of a path: with one name more it is below PATH_MAX, whatever they are


def remove(path: str) -> None:
    """Removes what is at ``path``, if anything is: a folder with all that is in it, however deep, also what its owner may not write. Of
    what is another user's as much goes as may; raises OSError for the rest. Nothing may write there any more."""
    kept: list[OSError] = []

    def tried(step: Callable[[str], None], name: str) -> None:
        try:
            step(name)
        except FileNotFoundError:
            pass
        except OSError as failure:
            kept.append(failure)

    def raised(folder: str) -> str:
        """Its new name, at the top: a path of more than PATH_MAX, which comes of steps from folder to folder, opens nothing."""
        name = os.path.join(path, os.urandom(8).hex())
        try:
            os.chmod(folder, 0o700)  # its owner may move it only if it may be written
            os.rename(folder, name)
        except OSError:  # another user's
            return folder
        return name

    def empty(folder: str) -> None:
        with contextlib.suppress(OSError):  # another user's, from which files may go all the same
            os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(raised(entry.path) if len(entry.path) > LONG and folder != path else entry.path)
                else:
                    tried(os.unlink, entry.path)

    folders = [path] if os.path.isdir(path) and not os.path.islink(path) else []
    if not folders:
        tried(os.unlink, path)
    for folder in folders:  # which grow meanwhile
        tried(empty, folder)
    for folder in reversed(folders):
        tried(os.rmdir, folder)
    if kept:
        raise kept[0]


def why_kept(path: str) -> str:
    """As `remove`; why something is left there, or ""."""
    try:
        remove(path)
    except OSError as failure:
        return str(failure)
    return ""
