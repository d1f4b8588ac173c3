"""etcd: versions and states in which writes can be lost or are refused. Asked over HTTP, which every etcd answers beside gRPC."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from deploy.local.etcd import OLDEST_SAFE, danger, version_text
from millrace.io.interfaces import Store
from millrace.runtime import troubles

from .findings import Finding, Unreachable, note, ok, problem

QUOTA_BYTES = 2 << 30  # etcd's own, unless --quota-backend-bytes says more
TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Member:
    """One endpoint's answers; `failure` says why there are none."""

    endpoint: str
    version: str = ""
    db_bytes: int = 0
    errors: tuple[str, ...] = ()
    members: int = 0
    has_leader: bool = True
    clock_ms: int | None = None
    """Its clock less ours, to a second."""
    failure: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def read(endpoints: str) -> list[Member]:
    """Asks each endpoint (host:port[,host:port]). Raises Unreachable when none answers."""
    members = [_ask(each.strip().removeprefix("http://")) for each in endpoints.split(",")]
    if all(member.failure for member in members):
        raise Unreachable(f"etcd at {endpoints} does not answer ({members[0].failure})")
    return members


def _ask(endpoint: str) -> Member:
    try:
        with httpx.Client(base_url=f"http://{endpoint}", timeout=TIMEOUT_S, trust_env=False) as http:
            version = http.get("/version")
            now = time.time()
            status = http.post("/v3/maintenance/status", json={}).json()
            listed = http.post("/v3/cluster/member/list", json={}).json()
    except (httpx.HTTPError, ValueError) as failure:
        return Member(endpoint, failure=str(failure) or type(failure).__name__)
    stamp = email.utils.parsedate_to_datetime(version.headers["date"]).timestamp() if "date" in version.headers else None
    return Member(
        endpoint,
        version=str(version.json().get("etcdserver", "")),
        db_bytes=int(status.get("dbSize", 0)),
        errors=tuple(status.get("errors", ())),
        members=len(listed.get("members", ())),
        has_leader=bool(int(status.get("leader", 0))),
        clock_ms=round((stamp + 0.5 - now) * 1000) if stamp is not None else None,
        extra={name: status.get(name) for name in ("raftTerm", "raftIndex", "dbSizeInUse")},
    )


def findings(members: list[Member], brought: bool = False) -> Iterator[Finding]:
    """What is wrong with any of them. brought: it is a local stack's, started by Millrace."""
    answered = [member for member in members if not member.failure]
    for member in members:
        if member.failure:
            yield problem("etcd", f"{member.endpoint} does not answer ({member.failure})", "start it, or see its log")
    bad = 0
    for member in answered:
        for finding in _member(member, brought):
            bad += finding.level == "problem"
            yield finding
    if answered and answered[0].members == 1:
        yield note(
            "etcd", "one member: what it acknowledged does not survive the loss of its disk", "for more than a try, run three members"
        )
    if not bad and len(answered) == len(members):
        yield ok("etcd", f"version {answered[0].version}, {answered[0].db_bytes / 1e6:.1f} MB, it has a leader and no alarm")


def jobs(store: Store) -> Iterator[Finding]:
    """How many keys jobs have, and what troubles there are. Raises Unavailable."""
    yield ok("jobs", f"{store.count('jobs/'):,} in etcd: live ones, and those that ended within the retention of client.commands")
    for key, facts, _ in troubles.noted(store, "unreadable"):
        job = key.encode(errors="backslashreplace").decode()  # a key can be any bytes, and is printed
        yield problem(
            "jobs", f"{job}: {facts.reason}",
            f"look at it (etcdctl get .../jobs/{job}). If `millrace show {job}` knows the job, leave it: its end writes it anew, and until "
            "then a Dispatcher that loses its log has no other copy. Else delete that key: no other job needs it",
        )  # fmt: skip
    for job, facts, _ in troubles.noted(store, "graphs"):
        yield problem(
            "jobs", f"{job}: a graph that somebody has put into etcd is refused: {facts.reason}",
            f"put a valid one there, or delete the key (etcdctl del .../jobs/{job}): a Dispatcher that loses its log would try to run it",
        )  # fmt: skip
    for key, facts, _ in troubles.noted(store, "requests"):
        yield problem(
            "jobs", f"requests wait at offset {facts.offset} of {key!a}: {facts.reason}",
            "reading there has ended a Dispatcher; it is tried again every 10 seconds, and nothing is passed over before that succeeds:"
            " look into the Dispatcher's log, and at its memory",
        )  # fmt: skip
    for job, facts, _ in troubles.noted(store, "staging"):
        yield note(
            "jobs", f"{job}: staged output is still there: {', '.join(facts.folders)} ({facts.reason})",
            "it is tried again each hour until it is as old as keep_hours; delete it by hand, or add its scheme to sink_schemes",
        )  # fmt: skip


def _member(member: Member, brought: bool) -> Iterator[Finding]:
    if _version(member.version) < OLDEST_SAFE:
        fine = ": fine for a try" if brought else ""  # what `up` starts and says so is no fault of its user
        yield (note if brought else problem)(
            "etcd",
            f"{member.endpoint} runs {member.version}, which {danger(_version(member.version))}{fine}",
            f"put an etcd from {version_text(OLDEST_SAFE)} on PATH,"
            " or run `make etcd` where Go is installed, then `millrace down` and `millrace up`",
        )  # fmt: skip
    if not member.has_leader:
        yield problem("etcd", f"{member.endpoint} has no leader", "start the other members: a majority must run")
    for error in member.errors:
        yield problem(
            "etcd", f"{member.endpoint} raises the alarm {error!r}",
            "for NOSPACE: compact and defragment it (etcdctl compact, defrag), raise --quota-backend-bytes, then etcdctl alarm disarm",
        )  # fmt: skip
    if member.db_bytes > 0.8 * QUOTA_BYTES:
        yield note(
            "etcd", f"{member.endpoint} holds {member.db_bytes / 1e9:.1f} GB; without another quota it takes no writes above 2.1 GB",
            "compact and defragment it, or raise --quota-backend-bytes",
        )  # fmt: skip


def _version(text: str) -> tuple[int, ...]:
    parts = text.split("-")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (0,)
