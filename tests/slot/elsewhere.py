"""A machine without ``prctl`` and ``/proc``, emulated on Linux: for whoever is started with this folder's `sitecustomize` in its way, and
for a process that calls `emulate` itself. What is left is ``ps``, and what POSIX has: as on macOS."""

from __future__ import annotations

from pathlib import Path

SITE = '''
import builtins, ctypes, os

def hidden(path):
    return isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith("/proc")

def without(call):
    def asked(path, *more, **named):
        if hidden(path):
            raise FileNotFoundError(2, "there is no /proc here", path)
        return call(path, *more, **named)
    return asked

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError("there is no prctl here")
        return super().__getattr__(name)

exists = os.path.exists
os.path.exists = lambda path: not hidden(path) and exists(path)
builtins.open, os.open, os.listdir = without(builtins.open), without(os.open), without(os.listdir)
ctypes.CDLL = Library
'''


def site(folder: Path) -> str:
    """A folder for PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(SITE)
    return str(folder)
