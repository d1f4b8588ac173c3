"""Requests of strangers, as bytes."""

from __future__ import annotations

import json

GRAPH = {"name": "one", "vertices": {"v": {"sql": "SELECT 1"}}}


def of(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def submit(graph: object = GRAPH, **fields: object) -> bytes:
    return of({"type": "SubmitJob", "version": 1, "job": "j", "graph": graph, "reply_to": "me", **fields})
