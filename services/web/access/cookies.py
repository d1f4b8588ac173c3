"""Reads cookies. The library's parser unquotes values, on older Pythons in a time that grows with the square of their length; no value of
ours is quoted."""

from __future__ import annotations

from starlette.datastructures import Headers

COOKIES_MOST = 16 << 10
"""Characters of all cookies of a request."""


def cookie_of(headers: Headers, name: str) -> str:
    """The cookie's value; empty: there is none."""
    for part in headers.get("cookie", "").split(";"):
        found, _, value = part.strip().partition("=")
        if found == name:
            return value
    return ""
