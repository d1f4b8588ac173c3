"""Payloads replaced by tokens: what a job computes and with what, not how it was handled.

A string becomes a token of a keyed hash, equal for equal strings of one export; numbers of results become 0; shape, names, ids and
paths stay. Machines copy payloads and do not look into them, so that what is redacted can be folded; only digests and what is made
of payloads (a message with a cause in it) are other words then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

PAYLOADS = frozenset({
    "sql", "parameters", "args", "conf", "options", "rows", "message", "stack", "detail", "frame", "head_base64",
})  # fmt: skip
"""Fields whose values, with all that is in them, are payloads, wherever they stand."""
TOKEN = "redacted:"
Text = Callable[[str], str]


def tokens(secret: bytes) -> Text:
    """Makes tokens of texts; who does not have the secret cannot try texts."""

    def token(text: str) -> str:
        if text == "" or text.startswith(TOKEN):
            return text
        return TOKEN + hashlib.blake2b(text.encode(), digest_size=6, key=secret).hexdigest()

    return token


def redacted(value: bytes, token: Text) -> bytes:
    """A record with its payloads replaced; bytes that are no JSON become one token."""
    try:
        return json.dumps(walk(json.loads(value), token), separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return token(value.decode(errors="replace")).encode()


def masked(value: bytes) -> bytes:
    """A record without what redaction changes: what is left to compare."""
    return redacted(value, lambda _: "")


def walk(value: Any, token: Text, payload: bool = False) -> Any:
    """The value with its payloads replaced. JSON within texts, as states hold it, is redacted within."""
    if isinstance(value, dict):
        return {name: walk(inner, token, payload or name in PAYLOADS) for name, inner in value.items()}
    if isinstance(value, list):
        return [walk(inner, token, payload) for inner in value]
    if isinstance(value, str):
        if payload:
            return token(value)
        return _within(value, token) if value[:1] in ("{", "[") else value
    return 0 if payload and isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _within(text: str, token: Text) -> str:
    try:
        return json.dumps(walk(json.loads(text), token), separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        return text
