"""This machine and its local stack: Java, disk, ports, processes. Only a checkout has a local stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .findings import Finding, note, ok, problem

DISK_LEAST_MB, DISK_LITTLE_MB = 1_000, 5_000
BEHIND_MOST = 5_000


def java() -> Finding:
    """The Java that Kafka and the slots are started with."""
    from deploy.local.errors import LocalError
    from deploy.local.java import find_java

    try:
        found = find_java()
    except LocalError as failure:
        return problem("java", str(failure), "install Java 17 or newer, or point JAVA_HOME at it")
    return ok("java", f"version {found.version} at {found.path}")


def disk(status: dict[str, Any]) -> Finding:
    """The room where the stack's data lies."""
    free_mb = status["disk"].get("free", 0) // 1_000_000
    if free_mb < DISK_LEAST_MB:
        return problem(
            "disk", f"{free_mb:,} MB are free on the disk of {status['folder']}: Kafka and etcd stop when it is full",
            "free some space, or move MILLRACE_HOME to another disk",
        )  # fmt: skip
    if free_mb < DISK_LITTLE_MB:
        return note("disk", f"{free_mb:,} MB are free on the disk of {status['folder']}", "free some space soon")
    return ok("disk", f"{free_mb:,} MB are free")


def ports(facts: dict[str, Any]) -> Iterator[Finding]:
    """Of a stack that does not run: whether the ports that it keeps are taken by others."""
    from deploy.local.processes import port_is_free, port_owner

    bad = 0
    for name in ("kafka_bootstrap", "etcd_endpoint", "blob_url", "web_url"):
        port = str(facts.get(name) or "").rpartition(":")[2]
        if port.isdigit() and not port_is_free(int(port)):
            bad += 1
            yield problem(
                "ports", f"port {port} ({name}) is taken by {port_owner(int(port)) or 'another process'}",
                "end that process; `millrace up` says what else can be done",
            )  # fmt: skip
    if not bad:
        yield ok("ports", "those that the stack keeps are free")


def processes(status: dict[str, Any]) -> Iterator[Finding]:
    """Whether each process of the stack answers and how far its replicas are behind."""
    bad = 0
    for name, service in status["services"].items():
        answer = str((service["health"] or {}).get("status", "does not answer"))
        if answer != "ok":
            bad += 1
            yield problem("processes", f"{name} (process {service['pid']}): {answer}", f"see the end of {service['log']}")
        if service["restarts"]:
            yield note(
                "processes", f"{name} was started again {service['restarts']} times",
                f"see why in {service['log']}.failed (it ended by a failure of its own), or {service['log']}.1 (it was killed)",
            )  # fmt: skip
    if not bad:
        yield ok("processes", f"all {len(status['services'])} answer")


def lag(status: dict[str, Any], ends: dict[str, int]) -> Iterator[Finding]:
    """How many records each replica has still to read. `ends`: the end of each scope's inbox, asked before the replicas."""
    most = 0
    for name, service in status["services"].items():
        for scope in (service["health"] or {}).get("scopes", ()):
            behind = max(0, ends.get(scope["scope"], 0) - scope["offset"])
            most = max(most, behind)
            if behind > BEHIND_MOST:
                yield problem(
                    scope["scope"], f"{name} ({scope['role']}) is {behind:,} records behind the end of its log",
                    "wait if it has just been started; else give the machine more processor, or end what takes it",
                )  # fmt: skip
    if most <= BEHIND_MOST:
        yield ok("lag", f"no replica is more than {most:,} records behind")
