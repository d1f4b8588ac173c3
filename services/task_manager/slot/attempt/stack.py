"""The process of one attempt: where its Python is at this moment. Places only, no value of any variable."""

from __future__ import annotations

import os
import sys
from types import FrameType

from .. import wire
from ..common.config import MODULES_FOLDER

_HERE = os.path.dirname(os.path.abspath(__file__))
_MAIN = os.path.join(_HERE, "main.py")
_OURS = os.path.dirname(_HERE) + os.sep


def stack_of(frame: FrameType | None, work: str) -> list[str]:
    """A line ``file:line function`` for each frame, the innermost last. ``work``: the attempt's folder.

    Frames that only led to the user's code are left out: those of the host, from which this process was forked, and ours.
    """
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    found.reverse()
    began = max((at for at, (file, _, _) in enumerate(found) if file == _MAIN), default=-1) + 1
    theirs = next((at for at, (file, _, _) in enumerate(found) if at >= began and not file.startswith((_OURS, "<frozen "))), began)
    roots = sorted({os.path.join(work, MODULES_FOLDER), work, *(path for path in sys.path if isinstance(path, str) and path)}, key=len)
    return [_line(*each, roots) for each in found[theirs:][-wire.STACK_MAX :]]


def _line(file: str, line: int, function: str, roots: list[str]) -> str:
    for root in reversed(roots):  # the longest first
        if file.startswith(root + os.sep):
            file = file[len(root) + 1 :]
            break
    place = f":{line} {function}"
    return (file[-max(0, wire.TEXT_MAX - len(place)) :] + place)[: wire.TEXT_MAX]
