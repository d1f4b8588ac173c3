"""Settings of a JobMaster process."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from millrace.runtime.settings import ServiceSettings

from .core.state import Settings

DEFAULTS = Settings()
OF_HADOOP = {"s3": "s3a", "gcs": "gs"}
"""Schemes that fsspec has for storage -> those that Spark reads and writes the same places by."""


class JobMasterSettings(ServiceSettings):
    """Runs jobs: turns each JobGraph into tasks, wants slots, deploys attempts, restarts what failed, publishes what finished."""

    service: ClassVar[str] = "job_master"
    shards: list[int] = Field(
        [], description="JobMaster shards that this process hosts; none given: all of the cluster."
    )
    moves_most: int = Field(
        DEFAULTS.moves_most,
        ge=0,
        description="How often a subtask may lose its TaskManager before its job fails: it may be what ends them.",
    )

    heartbeat_ms: int = Field(
        2_000,
        ge=500,
        le=60_000,
        description="How often a shard whose jobs want slots sends a heartbeat to the ResourceManager, with what it holds. Well below "
        "job_master_silent_ms there.",
    )

    def deciding(self) -> dict[str, Any]:
        """What the machine is given in its log."""
        scheme, there, place = self.storage_url.rstrip("/").partition("://")
        exchange = f"{OF_HADOOP.get(scheme, scheme)}{there}{place}/exchange"
        return {"exchange_url": exchange, "moves_most": self.moves_most, "heartbeat_ms": self.heartbeat_ms}
