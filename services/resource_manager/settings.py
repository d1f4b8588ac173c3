"""Settings of a ResourceManager process."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from pydantic import Field

from millrace.runtime.settings import ServiceSettings

from .core.state import Settings

DEFAULTS = Settings()


class ResourceManagerSettings(ServiceSettings):
    """Knows all TaskManagers, notices when one dies, and gives their slots to jobs."""

    service: ClassVar[str] = "resource_manager"
    heartbeat_interval_ms: int = Field(
        DEFAULTS.heartbeat_interval_ms,
        ge=10,
        description="How often a TaskManager sends a heartbeat; less often where there are very many.",
    )
    beats_per_s_max: int = Field(
        DEFAULTS.beats_per_s_max, ge=10, description="Heartbeats a second of all TaskManagers together, at most."
    )
    lost_after_ms: int = Field(
        DEFAULTS.lost_after_ms,
        ge=200,
        description="A TaskManager without a heartbeat for so long, or up to a tick (100 ms) less, is declared lost, and its tasks "
        "run elsewhere.",
    )
    ageing_ms: int = Field(
        DEFAULTS.ageing_ms, ge=1, description="So much waiting for slots outweighs one step of priority: no job waits for ever."
    )

    def deciding(self) -> dict[str, Any]:
        """What the machine is given in its log."""
        return {each.name: getattr(self, each.name) for each in fields(Settings)}
