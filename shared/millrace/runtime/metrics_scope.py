"""What a process is named by in the log of its metrics: Flink's scope formats, of processes alone."""

from __future__ import annotations

import re
import socket
from typing import Annotated

from pydantic import AfterValidator

VARIABLES = ("host", "service", "instance", "cluster", "tm_id")


def _of_a_process(scope: str) -> str:
    unknown = [name for name in re.findall(r"<[^<>]*>", scope) if name[1:-1] not in VARIABLES]
    if unknown:
        known = ", ".join(f"<{name}>" for name in VARIABLES)
        raise ValueError(f"there is no variable {unknown[0]}: a scope names a process, by {known}; what a job does is in its progress")
    return scope


def _not_too_often(interval_ms: int) -> int:
    if 0 < interval_ms < 1000:
        raise ValueError("must be 1000 or more, or 0: each line reads all metrics")
    return interval_ms


MetricsScope = Annotated[str, AfterValidator(_of_a_process)]
LogInterval = Annotated[int, AfterValidator(_not_too_often)]


def filled(scope: str, service: str, instance: str, cluster: str, tm_id: str) -> str:
    """A scope with its variables put in; the host is this one."""
    values = {"host": socket.gethostname(), "service": service, "instance": instance, "cluster": cluster, "tm_id": tm_id}
    return re.sub(r"<([a-z_]+)>", lambda found: values[found[1]], scope)
