"""As much of the service's commands as Flink's API needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from millrace.core.messages.requirements import RequirementsUpdated

from .. import asked


class Commands(asked.Commands, Protocol):
    """They are sent by Kafka, and fail with a MillraceError."""

    async def cancel(self, job: str) -> str:
        """Asks for a job's end: its status now."""

    async def rescale(self, job: str, parallelism: int | None, vertices: Mapping[str, int]) -> RequirementsUpdated:
        """Gives a job another parallelism: what it has now."""
