"""The files by which an attempt reports how it ended. Its user's code can write them, too: what they cost is known before they are parsed,
and what they hold before it is passed on. The TaskManager, which must not stand still for one of its slots, parses little of it."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

REPORT = "report.json"
ERROR = "error.json"
SPARK = "spark.jsonl"

REPORT_FILE_BYTES_MAX = 8 << 20  # a result's rows have at most 4 MiB, all else less than one
ROWS_BYTES_MAX = 5 << 20
SPARK_FILE_BYTES_MAX = 1 << 19  # twice what an attempt of ours writes
ERROR_FILE_BYTES_MAX = 1 << 20  # a hundred times what `errors.describe` writes
VALUES_MAX = 100_000  # beside the rows: schemas, and the files that a plan pins
DEPTH_MAX = 100

Unchecked = dict[str, Any]
"""What an attempt left, of a bounded size: user code may have written it. `ports/reports.py` looks at it before it is passed on."""


class Unreadable(Exception):
    """A file that is too large, or holds what no attempt of ours writes."""


def report(log_folder: str) -> tuple[Unchecked, str | None] | None:
    """The report without its result's rows, and those as text. None: there is none. Raises Unreadable."""
    found = _read(os.path.join(log_folder, REPORT), REPORT_FILE_BYTES_MAX, "its process left a report that cannot be read")
    if found is None:
        return None
    return parted(found)


def parted(found: Unchecked) -> tuple[Unchecked, str | None]:  # [R30]
    """A report and the rows of its result, bounded both. Raises Unreadable."""
    result, rows = found.get("result"), None
    if isinstance(result, dict) and "rows" in result:
        lists = result["rows"]
        found = {**found, "result": {key: value for key, value in result.items() if key != "rows"}}
        if not isinstance(lists, list) or not all(isinstance(row, list) for row in lists):
            raise Unreadable("its process left a report that cannot be read: the rows of its result are no lists")
        if _weigh(lists)[0] > DEPTH_MAX:
            raise Unreadable("its process left a report that cannot be read: the rows of its result are nested too deep")
        rows = json.dumps(lists, ensure_ascii=False).encode(errors="replace").decode()  # half of a surrogate pair: a question mark
        if len(rows) > ROWS_BYTES_MAX:
            raise Unreadable(f"the rows of its result take {len(rows)} bytes; at most {ROWS_BYTES_MAX} can be passed on")
    return _bounded(found, "its process left a report that cannot be read"), rows


def error(log_folder: str) -> Unchecked | None:
    """The error, or None: there is none. Raises Unreadable."""
    what = "its process left an error that cannot be read"
    found = _read(os.path.join(log_folder, ERROR), ERROR_FILE_BYTES_MAX, what)
    return None if found is None else _bounded(found, what)


def spark(log_folder: str) -> bytes:
    """What it noted of its Spark jobs, a JSON object in a line; of more than an attempt of ours writes, the beginning."""
    return _bytes(os.path.join(log_folder, SPARK), SPARK_FILE_BYTES_MAX) or b""


def _bytes(path: str, most: int) -> bytes | None:
    """So many of a file; None for what is no file: a pipe would hold up who reads it for ever."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            return file.read(most)  # whatever its size was: something may be writing to it
    except OSError:
        return None


def _read(path: str, most: int, what: str) -> Unchecked | None:
    """The object in a file; None: there is none."""
    data = _bytes(path, most + 1)
    if data is None:
        return None
    if len(data) > most:
        raise Unreadable(f"{what}: it has more than {most} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as wrong:
        raise Unreadable(f"{what}: it is no JSON ({str(wrong)[:200]})") from None
    if not isinstance(found, dict):
        raise Unreadable(f"{what}: it is no object")
    return found


def _bounded(found: Unchecked, what: str) -> Unchecked:
    depth, values = _weigh(found)
    if depth > DEPTH_MAX or values > VALUES_MAX:
        most = f"at most {DEPTH_MAX} and {VALUES_MAX} can be passed on"
        raise Unreadable(f"{what}: it is nested {depth} deep and has {values} values; {most}")
    return found


def _weigh(value: Any) -> tuple[int, int]:
    """How deep it is nested, and how many values it has."""
    depth = values = 0
    level = [value]
    while level:
        values += len(level)
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        depth += bool(inner) or any(isinstance(each, (dict, list)) for each in level)
        level = inner
    return depth, values
