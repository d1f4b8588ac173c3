"""What runs inside a peer's own environment: it takes requests as JSON lines from a socket and answers each. Standard library alone."""

from __future__ import annotations

import json
import math
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Handler = Callable[[dict[str, Any]], list[list[Any]]]


def serve(handlers: dict[str, Handler]) -> None:
    """Answers until the socket that the command line names is closed: {"seconds", "rows"}, or {"error"}."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        lines = connection.makefile("rw", encoding="utf-8")
        lines.write(json.dumps({"ready": True}) + "\n")
        lines.flush()
        for line in lines:
            lines.write(json.dumps(_answer(handlers, json.loads(line)), default=str) + "\n")
            lines.flush()


def _answer(handlers: dict[str, Handler], request: dict[str, Any]) -> dict[str, Any]:
    try:
        started = time.perf_counter()
        rows = handlers[request["work"]](request)
        seconds = time.perf_counter() - started
    except Exception as error:
        traceback.print_exc()  # into the worker's log
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
    return {"seconds": seconds, "rows": [[_plain(value) for value in row] for row in rows]}


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of numpy as numbers, and what is no number as null, for pandas has no other null."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value
