"""What each screen is given, from the view. Called while the view is held: short, and without a wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millrace.cli.words import FIGURES, figures
from millrace.core.states import ENDED_JOB, IN_SLOT, ExecutionState, JobStatus

from ..core.plans import plan_of
from ..view import View
from . import listing, overview, words
from .causes import cause_of, query_of
from .job import JobShown, in_slots, job_shown, places_of, progress, state_shown
from .overview import HOUR_MS
from .reads import Known
from .timeline import begun, ended, took
from .words import COUNTED, attempt_state, subtask_name

Row = Mapping[str, Any]
Context = dict[str, Any]
LANE_MS = 600_000
SCANNED_MOST = 2000
"""Ended jobs whose attempts are looked at for a picture of the last minutes: the newest."""


def state_of(view: View) -> Callable[[Row], str]:
    """The state of a job as it is shown."""
    held = {each["job"] for each in view.jobs.in_slots()}
    return lambda row: state_shown(row["status"], row["waiting"], row["job"] in held)


def overview_screen(view: View, wall_ms: int, prefix: str) -> Context:
    state = state_of(view)
    live = sorted(view.jobs.live(), key=lambda row: (row["accepted_ms"] or 0, row["job"]), reverse=True)
    recent = view.jobs.ended_since(wall_ms - HOUR_MS)[-SCANNED_MOST:]
    failed = [row for row in reversed(view.jobs.ended_since(wall_ms - overview.FAILED_SHOWN_MS)) if row["status"] == "FAILED"]
    waiting = [row for row in live if state(row) == "WAITING"]
    slots = view.cluster.slots(view.jobs.in_slots())
    members, gone = view.cluster.task_managers(), view.cluster.task_managers(gone=True)
    described = {row["job"]: view.jobs.described(row["job"]) or {"tasks": []} for row in [*live, *recent]}
    waits = [span for row in [*live, *recent] for span in overview.waits_of(row, described[row["job"]], wall_ms)]
    statuses = {state: 0 for state in COUNTED if state != JobStatus.SUSPENDED}  # which is rare: not before there is one
    running = [row for row in live if state(row) in (JobStatus.RUNNING, JobStatus.RESTARTING)][: overview.SHOWN_MOST]
    broken = sum(slot["state"] == "BROKEN" for slot in slots)
    states: dict[str, int] = {}
    for row in [*live]:
        states[state(row)] = states.get(state(row), 0) + 1
    used = sum(slot["state"] == "ACTIVE" for slot in slots)
    needs = list(overview.needs(failed, waiting, slots, len(members), gone, wall_ms, prefix))
    return {
        "headline": overview.headline(states, broken, len(failed), len(members)), "running_jobs": states.get("RUNNING", 0), "used": used,
        "needs": needs[: overview.NEEDS_MOST], "needs_more": len(needs) - overview.NEEDS_MOST,
        "counted": {**statuses, **_counts(view, states)}, "grouped": grouped(slots, members),
        "course": overview.course(overview.attempts_of(described.values()), waits, len(slots), wall_ms),
        "running": [job_row(view, row, state(row), wall_ms) for row in running],
        "failed": [job_row(view, row, "FAILED", wall_ms) for row in failed[: overview.SHOWN_MOST]],
        "leaders": view.cluster.leaders(), "hour_ms": HOUR_MS,
    }  # fmt: skip


def _counts(view: View, live: Mapping[str, int]) -> dict[str, int]:
    ended = {status: n for status, n in view.jobs.statuses().items() if status in ENDED_JOB}
    return {**live, **ended}


def grouped(slots: Sequence[Row], members: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
    """The slots of each TaskManager."""
    return [(each, [slot for slot in slots if slot["task_manager"] == each["task_manager"]]) for each in members]


def job_row(view: View, row: Row, state: str, wall_ms: int) -> Context:
    """A job as one line."""
    described = view.jobs.described(row["job"]) or {"tasks": []}
    subtasks = [each for task in described["tasks"] if task["task"] != "@plan" for each in task["subtasks"]]
    what, tone = listing.going_on(row, described, state)
    base, dash, end = row["job"].rpartition("-")
    is_live = row["status"] not in ENDED_JOB
    return {
        "job": row["job"], "base": base or row["job"], "end": dash + end if base else "", "name": row["name"], "state": state,
        "status": row["status"], "accepted_ms": row["accepted_ms"], "ended_ms": row["ended_ms"], "what": what, "tone": tone,
        "done": sum(each["state"] == "FINISHED" for each in subtasks), "subtasks": len(subtasks), "slots": in_slots(described),
        "pieces": progress({"subtasks": subtasks}, is_live=is_live) if subtasks else (), "live": is_live,
        "took_ms": (row["ended_ms"] or wall_ms) - row["accepted_ms"] if row["accepted_ms"] else None, "position": row["position"],
        "expected_ms": row.get("expected_ms"),
        "waiting": row["waiting"],
    }  # fmt: skip


def jobs_screen(
    view: View, wall_ms: int, text: str, sort: str, down: bool, start: int, upto: tuple[int, str] | None
) -> Context:
    state = state_of(view)
    want = listing.wanted(text, wall_ms)
    there = view.jobs.on(want.task_manager) if want.task_manager else None
    found = listing.page(view.jobs.rows(), want, state, there, sort, down, start, upto)
    top = max(found.rows, key=lambda row: (row["accepted_ms"] or 0, row["job"]), default=None)
    return {
        "rows": [job_row(view, row, state(row), wall_ms) for row in found.rows], "found": found, "wrong": want.wrong, "q": text,
        "sort": sort, "down": down, "start": found.first, "page": listing.PAGE, "wanted": want,
        "upto": f"{top['accepted_ms'] or 0}.{top['job']}" if top is not None else "", "held": upto is not None,
    }  # fmt: skip


def job_screen(view: View, wall_ms: int, job: str, known: Known, task: str | None, tab: str = "") -> Context | None:
    row, described = view.jobs.row(job), view.jobs.described(job)
    if row is None or described is None:
        return None
    plan = plan_of(known.graph, [each["task"] for each in described["tasks"]])
    shown: JobShown = job_shown(row, described, known.detail, plan, wall_ms, task)
    detail_cause = known.cause or (known.detail.cause if known.detail is not None else None)
    return {
        "shown": shown, "row": row, "chosen": shown.task(task), "cause": cause_of(detail_cause or _fault(row["cause"])),
        "cause_at": _last_failed(described), "missing": known.missing, "line": queue(view, wall_ms)[0] if shown.state == "WAITING" else [],
        "story": story(row, described), "grouped": grouped(view.cluster.slots(view.jobs.in_slots()), view.cluster.task_managers()),
        "query": query_of(plan, detail_cause), "work": spark_work(described) if tab == "work" else (), "figures": FIGURES,
    }  # fmt: skip


def spark_work(described: Row) -> list[tuple[str, ...]]:
    """What the Spark of each attempt has done that reported it: task and subtask, attempt, then FIGURES."""
    blank = dict.fromkeys(("tasks_done", "tasks_failed", "tasks_total", "rows_read", "rows_written"), 0)
    return [
        (subtask_name(task["task"], each["subtask"]), str(attempt["attempt"]), *figures({**blank, **attempt["progress"]}))
        for task in described["tasks"] for each in task["subtasks"] for attempt in each["attempts"] if attempt.get("progress")
    ]  # fmt: skip


def _fault(cause: Row | None) -> Any:
    from millrace.core.messages.attempts import Fault

    return Fault.model_validate(cause) if cause else None


def _last_failed(described: Row) -> Row | None:
    failed = [
        {"task": task["task"], "subtask": each["subtask"], **attempt}
        for task in described["tasks"] for each in task["subtasks"] for attempt in each["attempts"]
        if attempt_state(attempt) == "FAILED"
    ]  # fmt: skip
    return max(failed, key=lambda each: ended(each) or 0, default=None)


def story(row: Row, described: Row) -> list[Context]:
    """What happened to a job, step by step, each with the time since its acceptance."""
    steps: list[tuple[int, int, str, str]] = []
    for each in row.get("past", ()):
        detail = {
            "JobAccepted": "stored; from here on it cannot be lost",
            "JobWaiting": each.get("reason", "") + (f"; place {each['position']}" if each.get("position") else ""),
            "JobStateChanged": "the job",
            "JobCancelling": "a client asked for its end",
            "JobRescaled": "another parallelism was asked for",
        }.get(each["kind"], "")
        kind = each.get("status", "") if each["kind"] == "JobStateChanged" else each["kind"]
        steps.append((each["at_ms"], 0, kind, detail))
    for task in described["tasks"]:
        for each in task["subtasks"]:
            name = subtask_name(task["task"], each["subtask"])
            for attempt in each["attempts"]:
                for state, at_ms in attempt["since_ms"].items():
                    if state == ExecutionState.CREATED:  # that is when the job was, or the attempt before ended
                        continue
                    error = attempt["error"] if state == "FAILED" else None
                    why = f": {str((error or {}).get('message') or '').partition(chr(10))[0]}" if error else ""
                    place = f" on {attempt['task_manager']}" if attempt["task_manager"] and state == "DEPLOYING" else ""
                    again = f" attempt {attempt['attempt']}" if attempt["attempt"] > 1 else ""
                    steps.append((at_ms, 1, state, f"{name}{again}{place}{why}"))
    steps.sort(key=lambda each: each[:2])
    first = steps[0][0] if steps else 0
    before = first
    found = []
    for n, (at_ms, _, kind, detail) in enumerate(steps, 1):
        found.append({"n": n, "at_ms": at_ms, "from_start_ms": at_ms - first, "after_ms": at_ms - before, "kind": kind, "detail": detail})
        before = at_ms
    return found


def queue(view: View, wall_ms: int) -> tuple[list[Context], list[Context]]:
    """Who waits in line, and who fits into no slot."""
    state = state_of(view)
    waiting = [job_row(view, row, state(row), wall_ms) for row in view.jobs.live() if words.is_for_slots(row["waiting"])]
    for each in waiting:
        row = view.jobs.row(each["job"])
        past = [event for event in (row or {}).get("past", ()) if overview.is_wait(event)]
        each["since_ms"] = past[0]["at_ms"] if past and each["state"] == "WAITING" else (past[-1]["at_ms"] if past else None)
        each["places"] = places_of(past)
    line = sorted((each for each in waiting if each["position"] is not None), key=lambda each: each["position"])
    never = sorted((each for each in waiting if each["position"] is None), key=lambda each: each["since_ms"] or 0)
    return line, never


def queue_screen(view: View, wall_ms: int) -> Context:
    line, never = queue(view, wall_ms)
    slots = view.cluster.slots(view.jobs.in_slots())
    recent = view.jobs.ended_since(wall_ms - HOUR_MS)[-SCANNED_MOST:]
    rows = [*view.jobs.live(), *recent]
    described = {row["job"]: view.jobs.described(row["job"]) or {"tasks": []} for row in rows}
    attempts = list(overview.attempts_of(described.values()))
    given = sum(1 for each in attempts if (begun(each) or 0) > wall_ms - 300_000)
    held = sorted(t for each in attempts if ended(each) and (t := took(each, wall_ms)) is not None)
    waits = [span for row in rows for span in overview.waits_of(row, described[row["job"]], wall_ms)]
    waited = sorted(until - since for since, until in waits)
    return {
        "in_line": line, "never": never, "given": given, "held": _quantiles(held), "waited": _quantiles(waited),
        "course": overview.course(attempts, waits, len(slots), wall_ms), "grouped": grouped(slots, view.cluster.task_managers()),
        "hour_ms": HOUR_MS,
    }  # fmt: skip


def _quantiles(values: Sequence[int]) -> tuple[int, int] | None:
    """Median, and what 99 of 100 stay below."""
    return (values[len(values) // 2], values[min(len(values) - 1, len(values) * 99 // 100)]) if values else None


def members_screen(view: View, wall_ms: int) -> Context:
    slots = view.cluster.slots(view.jobs.in_slots())
    members = view.cluster.task_managers()
    gone = sorted(view.cluster.task_managers(gone=True), key=lambda row: row["gone_ms"], reverse=True)
    broken = [slot for slot in slots if slot["state"] == "BROKEN"]
    return {
        "grouped": grouped(slots, members), "gone": gone, "broken": broken, "moved": _moved(view, gone),
        "provided": view.cluster.provider(), "hosts": view.cluster.blocklist(view.jobs.in_slots()),
    }  # fmt: skip


def _moved(view: View, gone: Sequence[Row]) -> dict[str, int]:
    """TaskManager -> how many attempts were lost with it, as far as their jobs are live."""
    names, found = {row["task_manager"] for row in gone}, dict.fromkeys((row["task_manager"] for row in gone), 0)
    for row in view.jobs.live():
        for each in overview.attempts_of([view.jobs.described(row["job"]) or {"tasks": []}]):
            if each["task_manager"] in names and attempt_state(each) == "LOST":
                found[each["task_manager"]] += 1
    return found


def member_row(view: View, name: str) -> Row | None:
    """The TaskManager of this name, also one that is gone."""
    rows = (*view.cluster.task_managers(), *view.cluster.task_managers(gone=True))
    return next((each for each in rows if each["task_manager"] == name), None)


def member_screen(view: View, wall_ms: int, member: Row) -> Context:
    name = member["task_manager"]
    held = {(each["task_manager"], each["slot"]): each for each in view.jobs.in_slots()}
    slots = [slot for slot in view.cluster.slots(held.values()) if slot["task_manager"] == name]
    lanes: dict[int, list[Context]] = {slot["slot"]: [] for slot in slots}
    first = wall_ms - LANE_MS
    for row in [*view.jobs.live(), *view.jobs.ended_since(first)[-SCANNED_MOST:]]:
        described = view.jobs.described(row["job"]) or {"tasks": []}
        for task in described["tasks"]:
            for one in task["subtasks"]:
                for each in one["attempts"]:
                    start, lasted = begun(each), took(each, wall_ms)
                    if each["task_manager"] != name or each["slot"] is None or start is None or lasted is None or start + lasted < first:
                        continue
                    x = max(0.0, 100 * (start - first) / LANE_MS)
                    wide = max(0.2, min(100 - x, 100 * (start + lasted - max(start, first)) / LANE_MS))
                    lanes.setdefault(each["slot"], []).append({
                        "job": row["job"], "task": task["task"], "subtask": one["subtask"], "state": attempt_state(each),
                        "x": round(x, 3), "wide": round(wide, 3), "took_ms": lasted, "runs": each["state"] in IN_SLOT,
                    })  # fmt: skip
    return {
        "member": member, "slots": [{**slot, "since": held.get((name, slot["slot"]))} for slot in slots],
        "lanes": sorted(lanes.items()), "lane_ms": LANE_MS,
    }  # fmt: skip


def leaders_screen(view: View, wall_ms: int) -> Context:
    led, leaders = view.cluster.led(), view.cluster.leaders()
    first = wall_ms - 24 * HOUR_MS
    lanes, changes = [], []
    for now in leaders:
        terms = [*led.get(now["scope"], ()), {**now, "until_ms": wall_ms}]
        bars = []
        for n, term in enumerate(terms):
            if term["until_ms"] > first:
                x = max(0.0, 100 * (term["since_ms"] - first) / (wall_ms - first))
                wide = max(0.0, 100 * (term["until_ms"] - max(term["since_ms"], first)) / (wall_ms - first))
                bars.append({**term, "x": round(x, 3), "wide": round(wide, 3), "odd": n % 2})
            if n and term["since_ms"] > first:
                before = terms[n - 1]
                changes.append({"scope": now["scope"], "from": before["leader"], "to": term["leader"], "epoch": term["epoch"],
                                "at_ms": term["since_ms"], "led_ms": before["until_ms"] - before["since_ms"]})  # fmt: skip
        lanes.append({**now, "bars": bars})
    changes.sort(key=lambda each: each["at_ms"], reverse=True)
    return {"lanes": lanes, "changes": changes}
