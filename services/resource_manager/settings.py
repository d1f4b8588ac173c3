"""Settings of a ResourceManager process."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from millrace.core.profile import ExtraCounts
from millrace.runtime.settings import BadSettings, ServiceSettings

from .core.state import Settings
from .providers import Provider, Standalone
from .providers.process import AWAY_S, ByAgents

DEFAULTS = Settings()
AGENTS_MOST = 64
ADDRESS = re.compile(r"https?://[^/?#\s@]+:[0-9]{1,5}/?")


class TenantLimits(BaseModel):
    """What a tenant may have."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    slots: int | None = Field(None, ge=0, le=1_000_000)
    weight: int = Field(1, ge=1, le=1000)


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

    slots_placement: Literal["warmest", "longest_free", "packed", "spread"] = Field(
        DEFAULTS.slots_placement,  # type: ignore[arg-type]  # one of them
        description="Which of the free slots of a size a job gets. warmest: the one whose JVM has finished most attempts since one failed, "
        "without such a one the one that is free for longest; longest_free: always that one; packed: one of the TaskManager of which most "
        "is in use, so that others are idle; spread: one of that of which least is.",
    )
    not_enough_resources_ms: int | None = Field(
        None,
        ge=1,
        description="A job that wants what the cluster cannot have (larger slots, more of them at once, more than its tenant may have) "
        "fails after so long; null: it waits until there is.",
    )
    job_master_silent_ms: int = Field(
        DEFAULTS.job_master_silent_ms,
        ge=3000,
        description="A JobMaster shard whose jobs want slots, and that has sent nothing for so long, is granted nothing until it is back.",
    )
    job_timeout_ms: int = Field(
        DEFAULTS.job_timeout_ms,
        ge=1000,
        description="After so long without its JobMaster what a job wants is forgotten until that is back, and slots that it holds "
        "without an attempt in them are freed.",
    )
    tenants: dict[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$")], TenantLimits] = Field(
        {},
        description="Tenant, as a job's `tenant` names it -> `slots`, which its jobs may hold together at most; and `weight`, its share "
        'while others wait (1 without it). "*" holds for each tenant that is not named, "" for jobs that name none.',
    )
    provider: str = Field(
        "standalone",
        pattern=r"^(standalone|process|[\w.]+:\w+)$",
        description="Who starts and stops TaskManagers. standalone: they are started by hand; process: an agent, as processes of its "
        "host; module:function: what makes a provider of your own. What follows counts only where one starts them.",
    )
    agents: list[str] = Field(
        [], max_length=AGENTS_MOST, description="Addresses of the agents, http://host:port, for the provider process: one for each host."
    )
    agent_token: SecretStr = Field(SecretStr(""), description="Token that the agents ask for.")
    agent_away_ms: int = Field(
        int(1000 * AWAY_S),
        ge=1000,
        description="What an agent has that does not answer counts for so long; then others are started in its place. Also for so long "
        "a new leader waits for one that it has never heard.",
    )
    task_managers_min: int = Field(DEFAULTS.task_managers_min, ge=0, le=1000, description="So many TaskManagers are kept, needed or not.")
    task_managers_max: int = Field(
        DEFAULTS.task_managers_max, ge=0, le=1000, description="TaskManagers at most, with those that were started by hand."
    )
    task_managers_spare: int = Field(
        DEFAULTS.task_managers_spare,
        ge=0,
        le=1000,
        description="While jobs run, the slots of so many TaskManagers are kept free: a lost one is replaced without a wait.",
    )
    slots_max: int | None = Field(None, ge=0, description="Slots of all TaskManagers together, at most.")
    cores_max: int | None = Field(None, ge=0, description="Cores of all TaskManagers, at most: of one started by hand those of its slots.")
    memory_mb_max: int | None = Field(None, ge=0, description="Memory of all slots together, at most.")
    worker_slots: int = Field(DEFAULTS.worker_slots, ge=1, le=1000, description="Slots of each TaskManager that the provider starts.")
    worker_cores: int = Field(DEFAULTS.worker_cores, ge=0, description="Cores of each, for cores_max.")
    worker_memory_mb: int = Field(DEFAULTS.worker_memory_mb, ge=1, description="Memory of each of its slots.")
    worker_slot_cores: int = Field(
        DEFAULTS.worker_slot_cores,
        ge=0,
        description="Cores of each of its slots; 0: not known, and none is started for a job that asks for cores.",
    )
    worker_slot_extras: ExtraCounts = Field(
        {}, description="What each of its slots has beside, as `slot_extras` of its TaskManagers."
    )
    worker_start_ms: int = Field(
        DEFAULTS.worker_start_ms, ge=100, description="One that has not registered within this time is stopped, and another one started."
    )
    worker_idle_ms: int = Field(
        DEFAULTS.worker_idle_ms,
        ge=100,
        description="One of which no slot was needed for so long is stopped, if it agrees and task_managers_min is reached without it.",
    )

    @field_validator("agents")
    @classmethod
    def _are_addresses(cls, agents: list[str]) -> list[str]:
        wrong = [each for each in agents if not ADDRESS.fullmatch(each)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no address of an agent: it is to be http://host:port")
        twice = [each for number, each in enumerate(agents) if each.rstrip("/") in [other.rstrip("/") for other in agents[:number]]]
        if twice:
            raise ValueError(f"{twice[0]} is named twice: each agent once")
        return agents

    def deciding(self) -> dict[str, Any]:
        """What the machine is given in its log."""
        decided = {each.name: getattr(self, each.name) for each in fields(Settings)}
        tenants = {name: limits.model_dump(exclude_none=True) for name, limits in self.tenants.items()}
        return {**decided, "tenants": tenants, "provider": "" if self.provider == "standalone" else self.provider}

    def make_provider(self) -> Provider:
        """Raises BadSettings."""
        if self.provider == "standalone":
            return Standalone()
        if self.task_managers_min > self.task_managers_max:
            least, most = self.task_managers_min, self.task_managers_max
            raise BadSettings([f"task_managers_min is {least}, and task_managers_max {most}: so many would never be kept"])
        if self.provider == "process":
            if not self.agents or not self.agent_token.get_secret_value():
                raise BadSettings(["the provider process needs an address in agents, and agent_token"])
            return ByAgents(self.agents, self.agent_token.get_secret_value(), away_s=self.agent_away_ms / 1000)
        module, _, name = self.provider.partition(":")
        try:
            made: Provider = getattr(import_module(module), name)(self)
        except (ImportError, AttributeError) as failure:
            raise BadSettings([f"provider {self.provider} cannot be loaded: {failure}"]) from None
        return made
