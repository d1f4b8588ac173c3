"""Settings of a JobMaster process."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from millrace.runtime.settings import ServiceSettings


class JobMasterSettings(ServiceSettings):
    """Runs jobs: turns each JobGraph into tasks, wants slots, deploys attempts, restarts what failed, publishes what finished."""

    service: ClassVar[str] = "job_master"
    shards: list[int] = Field(
        [], description="JobMaster shards that this process hosts; none given: all of the cluster."
    )
    moves_most: int = Field(
        20,
        ge=0,
        description="How often a subtask may lose its TaskManager before its job fails: it may be what ends them.",
    )
