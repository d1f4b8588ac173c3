"""The table of the cluster: a row for each TaskManager, one for each scope's leader, one for the provider that starts and stops
TaskManagers, and one for the blocked hosts. Folded from `cluster.events`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millrace.core.states import UNUSABLE_SLOT

from .facts import Fact, Row, Rows, is_news, noted, shown

TOPIC = "cluster.events"
GONE_KEPT = 100  # TaskManagers that are gone, the newest
PROVIDER, BLOCKLIST = "provider", "blocklist"
LED_KEPT = 20  # who led a scope before, the newest


class Cluster:
    """The table, over rows that somebody else keeps."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    # folding

    def fold(self, fact: Fact) -> bool:
        """Takes a fact in. False: it is known already, or of a kind that this table does not hold."""
        if fact.kind == "LeaderElected":
            return self._elected(fact)
        if fact.kind in ("ProviderConfigured", "WorkerChanged"):
            return self._provided(fact)
        if fact.kind == "BlocklistChanged":
            row = self._rows.get(BLOCKLIST)
            if news := is_news(row, fact):
                self._rows[BLOCKLIST] = noted(row, fact, hosts={each["host"]: dict(each) for each in fact.body["hosts"]})
            return news
        if fact.kind not in ("TaskManagerJoined", "TaskManagerGone", "SlotChanged"):
            return False
        key = f"task-manager/{fact.body['task_manager']}"
        row = self._rows.get(key)
        incarnation = fact.body["incarnation"]
        if row is not None and incarnation < row["incarnation"]:
            return False  # of a process that another one has replaced
        if row is not None and incarnation > row["incarnation"]:
            row = None
        new = _slot(row, fact) if fact.kind == "SlotChanged" else self._member(row, fact)
        if new is None:
            return False
        self._rows[key] = new
        if fact.kind == "TaskManagerGone":
            self._forget_old()
        return True

    def _elected(self, fact: Fact) -> bool:
        body = fact.body
        key = f"leader/{body['scope']}"
        row = self._rows.get(key)
        if row is not None and body["epoch"] <= row["epoch"]:
            return False  # epochs grow over all lives of a scope
        values = {name: body[name] for name in ("scope", "leader", "epoch", "generation")}
        past = [*row.get("past", ()), _led(row, body["at_ms"])] if row is not None else []
        self._rows[key] = noted(row, fact, **values, since_ms=body["at_ms"], past=past[-LED_KEPT:])
        return True

    def _provided(self, fact: Fact) -> bool:
        """One row for all workers, because their facts are counted together."""
        row, body = self._rows.get(PROVIDER), fact.body
        if not is_news(row, fact):
            return False
        before: Row = row or {"provider": "", "least": 0, "most": None, "workers": {}, "problem": None}
        if fact.kind == "ProviderConfigured":
            self._rows[PROVIDER] = noted(before, fact, **{name: body[name] for name in ("provider", "least", "most")})
            return True
        others = {name: each for name, each in before["workers"].items() if name != body["worker"]}
        problem = before["problem"]
        if body["state"] == "REGISTERED":
            problem = None
        elif body["failed"]:
            problem = f"{body['worker']}: {body['reason']}"
        if body["state"] != "STOPPED":
            others[body["worker"]] = {"state": body["state"], "since_ms": body["at_ms"]}
        self._rows[PROVIDER] = noted(before, fact, workers=others, problem=problem)
        return True

    @staticmethod
    def _member(row: Row | None, fact: Fact) -> Row | None:
        if not is_news(row, fact):
            return None
        body = fact.body
        if fact.kind == "TaskManagerGone":
            before = row or _blank(body)
            return noted(before, fact, gone_ms=body["at_ms"], reason=body["reason"])
        blank = _blank(body)
        since_ms = row["since_ms"] if row is not None and row["since_ms"] else body["at_ms"]
        known = row["slots"] if row is not None else {}
        slots = {
            str(n): {**_NEW, **known.get(str(n), {}), "state": state, "reason": None} for n, state in enumerate(body["states"])
        }
        changes = {"slots": slots, "host": body["host"], "since_ms": since_ms, "gone_ms": None, "reason": None}
        return noted(row or blank, fact, **changes)

    def _forget_old(self) -> None:
        gone = [row for row in self._rows_of("task-manager/") if row["gone_ms"] is not None]
        for row in sorted(gone, key=lambda row: row["gone_ms"])[: max(0, len(gone) - GONE_KEPT)]:
            self._rows.pop(f"task-manager/{row['task_manager']}", None)

    # answers

    def task_managers(self, gone: bool = False) -> list[Row]:
        """The TaskManagers that are registered, or those that are gone, by name."""
        blocked = self.blocked() if not gone else {}
        rows = [row for row in self._rows_of("task-manager/") if (row["gone_ms"] is not None) is gone]
        return [{**_member_shown(row), "blocked": blocked.get(row["host"])} for row in rows]

    def blocked(self) -> dict[str, Row]:
        """The hosts that are blocked, by name."""
        hosts: dict[str, Row] = self._rows[BLOCKLIST]["hosts"] if BLOCKLIST in self._rows else {}
        return hosts

    def blocklist(self, in_slots: Iterable[Row]) -> list[Row]:
        """The blocked hosts with what is registered there; `in_slots`: as of `slots`."""
        host_of = {row["task_manager"]: row["host"] for row in self._rows_of("task-manager/") if row["gone_ms"] is None}
        slots = [(host_of[each["task_manager"]], each["state"]) for each in self.slots(in_slots)]
        return [
            {
                **row, "task_managers": sum(each == host for each in host_of.values()), "slots": sum(each == host for each, _ in slots),
                "busy": sum(each == (host, "ACTIVE") for each in slots),
            }
            for host, row in sorted(self.blocked().items())
        ]  # fmt: skip

    def slots(self, in_slots: Iterable[Row]) -> list[Row]:
        """The slots of the registered TaskManagers. A slot is ACTIVE while an attempt is in it; `in_slots`: the attempts that are
        in slots now."""
        attempts = {(each["task_manager"], each["slot"]): each for each in in_slots}
        found = []
        for row in self._rows_of("task-manager/"):
            for number, slot in row["slots"].items() if row["gone_ms"] is None else ():
                held = attempts.get((row["task_manager"], int(number)))
                state = "ACTIVE" if held is not None else slot["state"] if slot["state"] in UNUSABLE_SLOT else "FREE"
                attempt = {name: held[name] if held is not None else None for name in ("job", "task", "subtask", "attempt")}
                found.append({
                    "task_manager": row["task_manager"], "slot": int(number), "state": state, **attempt, "reason": slot["reason"],
                })  # fmt: skip
        return found

    def provider(self) -> Row:
        """Who starts and stops TaskManagers, how many there may be (most null: no limit is known), the names of its own, those of them that
        are being started, and why the last one was not."""
        row = self._rows.get(PROVIDER)
        if row is None:
            return {"provider": "standalone", "least": 0, "most": None, "workers": [], "starting": [], "problem": None}
        starting = [
            {"task_manager": name, "since_ms": each["since_ms"]}
            for name, each in sorted(row["workers"].items()) if each["state"] in ("REQUESTED", "STARTING")
        ]  # fmt: skip
        told = {name: row[name] for name in ("provider", "least", "most", "problem")}
        return {**told, "workers": sorted(row["workers"]), "starting": starting}

    def leaders(self) -> list[Row]:
        """Who was last elected for each scope."""
        return [_without(shown(row), "past") for row in self._rows_of("leader/")]

    def led(self) -> dict[str, list[Row]]:
        """Scope -> who led it before, the oldest first."""
        return {row["scope"]: list(row.get("past", ())) for row in self._rows_of("leader/")}

    def _rows_of(self, prefix: str) -> list[Row]:
        return [row for key, row in sorted(self._rows.items()) if key.startswith(prefix)]


_NEW: Row = {"state": "STARTING", "reason": None, "since_ms": None, "seen": [0, 0]}


def _blank(body: Any) -> Row:
    return {
        "task_manager": body["task_manager"], "incarnation": body["incarnation"], "host": "", "since_ms": None, "gone_ms": None,
        "reason": None, "slots": {}, "seen": {},
    }  # fmt: skip


def _slot(row: Row | None, fact: Fact) -> Row | None:
    """The subject of such a fact is the slot: its number is kept with it."""
    body = fact.body
    before = row or _blank(body)
    slot = before["slots"].get(str(body["slot"]), _NEW)
    number = [fact.life, body["count"]]
    if number <= slot["seen"]:
        return None
    new = {"state": body["state"], "reason": body.get("reason"), "since_ms": body["at_ms"], "seen": number}
    return noted(before, fact, slots={**before["slots"], str(body["slot"]): new})


def _member_shown(row: Row) -> Row:
    return {**_without(shown(row), "slots"), "slots": len(row["slots"])}


def _led(row: Row, until_ms: int) -> Row:
    return {**{name: row[name] for name in ("leader", "epoch", "since_ms")}, "until_ms": until_ms}


def _without(row: Row, field: str) -> Row:
    return {name: value for name, value in row.items() if name != field}
