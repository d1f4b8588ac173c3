"""Notices, while this replica leads, what others put into etcd under the keys of jobs, or take out of there.

It follows etcd's changes and compares each with the state: what the leader does itself is in the state before it is in etcd. What is left
is read once more and told to the machine, as a record. A new leader begins a little before the revision that the log knows of, so nothing
is missed between two; where etcd has forgotten that, all keys are read and compared.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from millrace.core.clocks import OwnMs
from millrace.core.messages.base import Body, parsed
from millrace.core.messages.client import Problem
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.graphs import JobGraphAdded, JobGraphChanged, JobGraphRemoved
from millrace.core.messages.records import Fact
from millrace.core.states import Recovery
from millrace.core.topics import DISPATCHER
from millrace.io.interfaces import Change, Entry, Store, Txn, Unavailable, pages
from millrace.io.storage.store import StorageError
from millrace.runtime import troubles
from millrace.runtime.hosting import Term, monotonic_ms
from millrace.runtime.metrics import FENCED
from millrace.runtime.performer import Fence, Refused

from .core import submission
from .core.state import State
from .intake import Intake
from .stored import JOBS, Unreadable, job_of, key_of, stored_of

LOOK_S = 0.5
SETTLE_MS = 700  # what the leader does itself is folded by then, else it is looked at for nothing
AGAIN_MS = 30_000  # what was told, or finds no room, is looked at again
BEHIND = 10_000  # revisions before the last that the log knows of: what the leader of before had not looked at
SUSPECTS_MOST = 50_000  # of more all keys are compared
LOOK_MOST = 200  # that are read at a look: it goes on at the next
HEAD_BYTES = 512

_ENDED = re.compile(rb'\{"state":"(?:dirty|clean)"')
_ACCEPTED = re.compile(rb'\{"state":"accepted","digest":"[^"]*","acceptance":"([^"]+)"')

Refusal = tuple[troubles.Kind, str]
"""What is noted of a key that is refused, and of which value: its revision, or why it cannot be read."""

log = structlog.get_logger("graphs")


@dataclass
class _Suspect:
    """A job of which somebody else may have changed the key."""

    due_ms: int
    acceptance: str = ""
    """That the key named, by its first bytes, if it was put once: the leader puts a graph once, and whoever edits it puts it again."""
    deleted: bool = False
    """etcd has told of it."""
    over: bool = False


class GraphListener:  # [R24]
    """`lead(term)` starts a thread that ends with the term. `fatal(reason)` ends the process."""

    def __init__(self, store: Store, intake: Intake, fatal: Callable[[str], None]) -> None:
        self._store, self._intake, self._fatal = store, intake, fatal

    def lead(self, term: Term) -> None:
        threading.Thread(target=self._run, args=(term,), name="graphs", daemon=True).start()

    def _run(self, term: Term) -> None:
        listening = Listening(self._store, self._intake, term)
        try:
            while not term.ended.wait(LOOK_S):
                listening.look(monotonic_ms())
        except Refused:
            FENCED.add(DISPATCHER)  # the term is over
        except Exception as failure:  # else nothing would be noticed any more, and nobody would know
            log.exception("nobody notices graphs in etcd any more")
            self._fatal(f"graphs: {type(failure).__name__}: {failure}")
        finally:
            listening.close()


class Listening:
    """One term of it. `look` does what is due; not for several threads at once. Raises Refused."""

    def __init__(self, store: Store, intake: Intake, term: Term) -> None:
        self._store, self._intake, self._term = store, intake, term
        self._fence = Fence(DISPATCHER, term.epoch)
        self._through = max(1, term.folded.revision - BEHIND)
        """All changes up to this revision are in `_suspects`, or of no interest."""
        self._changes: deque[tuple[str, int, _Suspect | None]] = deque()
        """(job, revision, what is to be looked at), as the watch tells them."""
        self._suspects: dict[str, _Suspect] = {}
        self._refused: dict[str, Refusal] | None = None
        """Job -> what its key is known to be refused for, by this term or one before. None: not read yet."""
        self._recorded: deque[tuple[str, Refusal, list[Problem]]] = deque()
        """Refusals that the log has, to be noted: noted first, one would be told to nobody if this process ended before Kafka had it."""
        self._watch: Callable[[], None] | None = None
        self._lost, self._compacted = threading.Event(), False
        self._all, self._base = False, 0
        """Whether every key is to be compared; which revision that is of, at least."""

    def look(self, own_ms: OwnMs) -> None:
        state: State = self._term.folded.state
        try:
            self._follow()
            self._take(own_ms)
            if state.recovery is not Recovery.DONE:
                self._all = True  # the recovery leaves out what names another cluster
            if state.recovery is not Recovery.DONE or state.closing is not None:
                return
            if self._refused is None:
                self._refused = self._read_refused()
            if self._all and len(self._suspects) < SUSPECTS_MOST // 2:
                self._compare(own_ms, state)
            due = [job for job, suspect in self._suspects.items() if suspect.due_ms <= own_ms and not self._passes(job, state, own_ms)]
            for job in due[:LOOK_MOST]:
                self._look_at(job, own_ms, state, self._refused)
            self._note_recorded(self._refused)
            for job in [job for job, suspect in self._suspects.items() if suspect.over]:
                del self._suspects[job]
        except (Unavailable, StorageError) as failure:
            log.warning("what others do to graphs in etcd is not noticed now", reason=str(failure))

    def close(self) -> None:
        if self._watch is not None:
            self._watch()
            self._watch = None

    # what etcd tells

    def _follow(self) -> None:
        """Watches first, then reads what must be read: nothing is missed between."""
        if self._lost.is_set():
            self.close()
            self._lost.clear()
        if self._watch is None:
            self._all, self._compacted = self._all or self._compacted, False
            self._base = self._store.revision
            self._watch = self._store.changes(JOBS, 0 if self._all else self._through, self._changed, self._ended)

    def _changed(self, change: Change) -> None:
        """On the streams' thread. Endings are known by their first bytes."""
        job, ended, accepted = change.key[len(JOBS) :], None, ""
        if change.value is not None:
            ended, accepted = _ENDED.match(change.value), _acceptance(change.value, change.created == change.revision)
        suspect = _Suspect(0, accepted, change.value is None)
        if len(self._changes) < SUSPECTS_MOST:
            self._changes.append((job, change.revision, None if ended else suspect))
        else:
            self._all = True

    def _ended(self, compacted: bool) -> None:
        self._compacted = compacted
        self._lost.set()

    def _take(self, own_ms: OwnMs) -> None:
        while self._changes:
            job, revision, suspect = self._changes.popleft()
            self._through = max(self._through, revision)
            if suspect is None:
                self._suspects.pop(job, None)
            else:
                self._suspect(job, suspect, own_ms)

    def _suspect(self, job: str, suspect: _Suspect, own_ms: OwnMs) -> None:
        """It is looked at when what the leader may have done itself is folded; not later for what comes meanwhile."""
        before = self._suspects.get(job)
        if before is None and len(self._suspects) >= SUSPECTS_MOST:
            self._all = True
            return
        suspect.due_ms = min(before.due_ms if before is not None else own_ms + SETTLE_MS, own_ms + SETTLE_MS)
        self._suspects[job] = suspect

    def _compare(self, own_ms: OwnMs, state: State) -> None:
        """A job that lives, and has no key, was not deleted by anybody that etcd tells of."""
        self._all = False
        missing = dict.fromkeys(list(state.live))
        try:
            for entry in pages(self._store, JOBS):
                missing.pop(job_of(entry), None)
                if _ENDED.match(entry.value) is None:
                    accepted = _acceptance(entry.value, entry.create_revision == entry.mod_revision)
                    self._suspect(job_of(entry), _Suspect(0, accepted), own_ms)
        except Unavailable:
            self._all = True
            raise
        for job in [*missing, *(self._refused or ())]:
            if job not in self._suspects:
                self._suspect(job, _Suspect(0), own_ms)
        self._through = max(self._through, self._base)

    # what is suspect

    def _passes(self, job: str, state: State, own_ms: OwnMs) -> bool:
        """Whether it is as the log knows it, by the state alone: of a flood of submissions nothing is read. The order follows a job's way:
        from a lookup to the live ones. Else it would be seen in none of them."""
        suspect = self._suspects[job]
        if job in state.lookups:
            suspect.due_ms = own_ms + SETTLE_MS
            return True
        live = state.live.get(job)
        if suspect.deleted:  # else a tombstone was swept
            suspect.over = live is None and job not in (self._refused or ())
        else:
            suspect.over = live is not None and live.acceptance == suspect.acceptance
        return suspect.over

    def _read_refused(self) -> dict[str, Refusal]:
        refused: dict[str, Refusal] = {job: ("unreadable", facts.reason) for job, facts, _ in troubles.noted(self._store, "unreadable")}
        for job, facts, _ in troubles.noted(self._store, "graphs"):
            refused[job] = ("graphs", str(facts.offset))
        return refused

    def _look_at(self, job: str, own_ms: OwnMs, state: State, refused: dict[str, Refusal]) -> None:
        """Reads first, and looks into the state then: what the leader puts is there before."""
        suspect, leader, key = self._suspects[job], self._fence.compare().key, key_of(job)
        reads = self._store.txn(Txn([], [], [leader, key])).reads
        self._fence.check_read(reads)
        entry, stands, unreadable = reads[key], None, ""
        try:
            stands = stored_of(entry)
        except Unreadable as reason:
            unreadable = str(reason)
        if job in state.lookups:
            suspect.due_ms = own_ms + SETTLE_MS
            return
        live, ended = state.live.get(job), state.ended.get(job)
        suspect.over = True
        if entry is None or (stands is not None and stands.status is not None):
            self._forget_refusal(job, refused)
        if entry is None:
            if live is not None and live.ending is None:
                kind = JobGraphRemoved if suspect.deleted else partial(JobGraphChanged, revision=0)
                self._tell(kind(job=job, acceptance=live.acceptance))
        elif stands is not None and stands.status is not None:
            return
        elif live is not None:
            same = stands is not None and stands.acceptance == live.acceptance and stands.graph == parsed(live.graph)
            if live.ending is None and not same:
                self._tell(JobGraphChanged(job=job, acceptance=live.acceptance, revision=entry.mod_revision, **_excerpt(entry)))
        elif ended is not None:
            self._tell(JobGraphChanged(job=job, acceptance=ended.acceptance, revision=entry.mod_revision, **_excerpt(entry)))
        else:
            self._added(job, entry, stands, unreadable, own_ms, state, refused)

    def _added(
        self, job: str, entry: Entry, stands: StoredJob | None, unreadable: str, own_ms: OwnMs, state: State,
        refused: dict[str, Refusal],
    ) -> None:  # fmt: skip
        suspect = self._suspects[job]
        refusal: Refusal = ("unreadable", unreadable) if unreadable else ("graphs", str(entry.mod_revision))
        if refused.get(job) == refusal:
            return
        added = partial(JobGraphAdded, job=job, revision=entry.mod_revision, **_excerpt(entry))
        if stands is None or stands.graph is None:
            problems = [Problem(place=[], message=unreadable)]
            self._refuse(job, refusal, added(acceptance="", problems=problems), refused)
            return
        found = self._intake.graph(stands.graph)
        if found.graph is None:
            self._refuse(job, refusal, added(acceptance=stands.acceptance, problems=found.problems), refused)
            return
        suspect.over, suspect.due_ms = False, own_ms + AGAIN_MS
        lack = found.lack or submission.no_room(state, found.graph)
        if lack:
            log.warning("a graph that somebody has put into etcd waits", job=job, reason=lack)
        else:
            self._tell(added(acceptance=stands.acceptance, digest=found.digest, graph=found.graph))

    def _refuse(self, job: str, refusal: Refusal, added: JobGraphAdded, refused: dict[str, Refusal]) -> None:
        if len(refused) < troubles.MOST or job in refused:
            refused[job] = refusal
        self._tell(added, partial(self._recorded.append, (job, refusal, added.problems)))

    def _note_recorded(self, refused: dict[str, Refusal]) -> None:
        while self._recorded:
            job, (kind, mark), problems = self._recorded[0]
            if refused.get(job) == (kind, mark):  # else it was mended meanwhile
                facts = troubles.Facts(reason=mark)
                if kind == "graphs":
                    facts = troubles.Facts(reason="; ".join(each.message for each in problems)[:500], offset=int(mark))
                troubles.note(self._store, self._fence, kind, job, facts)
            self._recorded.popleft()

    def _forget_refusal(self, job: str, refused: dict[str, Refusal]) -> None:
        refusal = refused.pop(job, None)
        if refusal is not None:
            troubles.over(self._store, self._fence, refusal[0], job)

    def _tell(self, body: Body, on_ack: Callable[[], None] | None = None) -> None:
        log.info("somebody else has changed a job's key in etcd", told=body.type, job=getattr(body, "job", ""))
        self._term.append(Fact(body=body), on_ack)


def _acceptance(value: bytes, once: bool) -> str:
    accepted = _ACCEPTED.match(value) if once else None
    return accepted[1].decode(errors="replace") if accepted else ""


def _excerpt(entry: Entry) -> dict[str, Any]:
    head = base64.b64encode(entry.value[:HEAD_BYTES]).decode()
    return {"size_bytes": len(entry.value), "sha256": hashlib.sha256(entry.value).hexdigest(), "head_base64": head}
