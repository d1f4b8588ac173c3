"""As much of the service's commands as Flink's API needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from millrace.client import Millrace

T = TypeVar("T")


class Commands(Protocol):
    """They are sent by Kafka, and fail with a MillraceError."""

    async def cancel(self, job: str) -> str:
        """Asks for a job's end: its status now."""

    async def call(self, request: Callable[[Millrace], T], wait_s: float) -> T:
        """The answer to any call of the client library."""
