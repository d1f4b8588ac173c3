"""What something costs: counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def lines(run: Callable[[], Any]) -> int:
    """How many lines of Python it runs."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
