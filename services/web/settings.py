"""Settings of a web process."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from millrace.runtime.settings import ServiceSettings


class WebSettings(ServiceSettings):
    """Shows jobs, TaskManagers, slots and leaders as JSON, from what is said on job.events and cluster.events."""

    service: ClassVar[str] = "web"
    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on. It asks for no password: another than loopback is for containers."
    )
    allowed_hosts: list[str] = Field(
        [], description="Names that it answers to (`Host`); empty: on loopback those of loopback, elsewhere all."
    )
    port: int = Field(0, ge=0, le=65535, description="Port for the JSON; 0 takes a free one.")
    retained_jobs: int = Field(10_000, ge=0, description="Ended jobs that are shown, the newest.")
