"""The header `Range` of a request for a part of a file."""

from __future__ import annotations

import re


def byte_range(header: str, size: int) -> tuple[int, int, bool]:
    """(start, end, whether a part is asked for). What is no single range of bytes asks for the whole (RFC 9110)."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.replace(" ", ""))
    if found is None or found[0] == "bytes=-" or (found[1] and found[2] and int(found[2]) < int(found[1])):
        return 0, size, False
    if not found[1]:
        return max(0, size - int(found[2])), size, True
    return int(found[1]), min(size, int(found[2]) + 1) if found[2] else size, True
