"""Which paths are Flink's."""

from __future__ import annotations

DASHBOARD = "/flink"
"""Below it are the dashboard's files, and the API again, for the dashboard asks relative to where it is."""
FIRST_WORDS = frozenset({
    "applications", "cluster", "config", "datasets", "jars", "jobmanager", "jobs", "overview", "savepoint-disposal", "taskmanagers",
})  # fmt: skip
"""What a path of Flink's begins with."""
PREFIX = "/v1"


def path_of(path: str) -> str | None:
    """What Flink's application is asked for by this path; None: it is none of Flink's."""
    mine = path.startswith(f"{DASHBOARD}/")
    asked = path[len(DASHBOARD) :] if mine else path
    if asked == PREFIX or asked.startswith(f"{PREFIX}/"):
        mine, asked = True, asked[len(PREFIX) :]
    word = asked.partition("/")[2].partition("/")[0]
    return (asked.rstrip("/") or "/") if mine or word in FIRST_WORDS else None
