"""The failure history of a job, from its row with all its attempts."""

from __future__ import annotations

from .facts import Row


def failures_of(described: Row) -> tuple[list[Row], int]:
    """What made the job restart or fail, the newest first, each with what failed meanwhile; and how many failures are not listed."""
    found = [
        {
            "at_ms": attempt["since_ms"].get("FAILED"), "task": task["task"], "subtask": subtask["subtask"], "attempt": attempt["attempt"],
            "task_manager": attempt["task_manager"], "error": attempt["error"],
        }
        for task in described["tasks"] for subtask in task["subtasks"] for attempt in subtask["attempts"] if attempt["error"]
    ]  # fmt: skip
    found.sort(key=lambda each: (_decided(each).get("number") or 0, each["at_ms"] or 0))
    roots: dict[int, Row] = {}
    listed: list[Row] = []
    for each in found:
        decided = _decided(each)
        root = roots.get(decided.get("concurrent_with") or 0)
        if root is not None:
            root["concurrent"].append(each)
            continue
        listed.append({**each, "concurrent": []})
        if decided.get("number"):
            roots[decided["number"]] = listed[-1]
    last = max((_decided(each).get("number") or 0 for each in found), default=0)
    return listed[::-1], max(0, last - len(found))


def _decided(failure: Row) -> Row:
    """Empty: an earlier build decided it."""
    return failure["error"].get("decided") or {}
