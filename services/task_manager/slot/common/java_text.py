"""What a Java reads from us, so that it reads what we wrote: for the Spark of a slot, and for the laptop's Kafka."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping


def properties(values: Mapping[str, object]) -> str:
    """A properties file, in ASCII: Java reads other bytes of it as Latin-1, whatever the machine's encoding is."""
    return "".join(f"{_escaped(str(key))}={_escaped(str(value))}\n" for key, value in values.items())


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    codes = struct.unpack(f">{len(units) // 2}H", units)
    return "".join(chr(c) if chr(c).isalnum() and c < 128 or chr(c) in "._-/" else f"\\u{c:04x}" for c in codes)


def locale(environ: Mapping[str, str]) -> dict[str, str]:
    """What has to be set besides ``environ``: in the locale C, a Java on Linux opens no file whose name is not ASCII. A Python does."""
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C"
    return {"LC_ALL": "C.UTF-8"} if sys.platform == "linux" and locale in ("C", "POSIX") else {}
