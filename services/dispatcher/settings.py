"""Settings of a Dispatcher process."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, SecretStr

from millrace.io.addresses import joined
from millrace.io.http.blobs import MOST_BYTES
from millrace.runtime.settings import ServiceSettings

from .core.state import Settings
from .housekeeping import ARCHIVES_MOST
from .staging import STORES

DEFAULTS = Settings()


class DispatcherSettings(ServiceSettings):
    """Takes submissions, stores accepted jobs in etcd, starts them on a shard, answers questions, serves blobs."""

    service: ClassVar[str] = "dispatcher"
    max_live_jobs: int = Field(DEFAULTS.max_live_jobs, ge=1, description="Jobs accepted and not ended; more are refused as busy.")
    max_live_graphs_mb: int = Field(DEFAULTS.max_live_graphs_mb, ge=1, description="Memory that the graphs of live jobs may take in all.")
    max_live_subtasks: int = Field(
        DEFAULTS.max_live_subtasks,
        ge=1,
        description="Subtasks of the vertices of live jobs; a JobMaster needs up to 1 KB for each, so 100 MB.",
    )
    min_free_mb: int = Field(
        512, ge=0, description="What must stay free on storage's disk: with less, submissions and uploads are refused as busy."
    )
    retained_jobs: int = Field(
        DEFAULTS.retained_jobs, ge=0, description="Ended jobs kept in memory for `list`; older ones are found in etcd by their id."
    )
    keep_hours: float = Field(
        168.0, gt=0, description="How long uploads, logs, results and archives are kept after their last change."
    )
    keep_archives: int = Field(
        ARCHIVES_MOST,
        ge=1,
        description="How many archives of ended jobs are kept, the newest, within keep_hours. An etcd that is restored from a backup "
        "knows by them which jobs ended since: keep more than end between two backups.",
    )
    keep_ended_hours: float = Field(
        0.0,
        ge=0,
        le=10 * 366 * 24,
        description="How long etcd keeps the names of ended jobs for `list --all` (300 bytes each), also behind their archives. They stay "
        "as long as client.commands may hold their submission in any case.",
    )
    sink_schemes: str = Field(
        ",".join(STORES),
        description="Schemes of sinks' URLs whose staged output is deleted, besides files and storage_url's; no other is opened.",
    )
    check_local_files: bool = Field(
        False, description="Refuse jobs whose local source files are not on this machine; for clusters on one machine."
    )
    blob_host: str = Field("127.0.0.1", min_length=1, description="Address that the BlobServer listens on.")
    blob_port: int = Field(0, ge=0, le=65535, description="Port of the BlobServer; 0 takes a free one.")
    blob_url: str = Field("", description="URL that clients are given for blobs; empty: http://<blob_host>:<port>.")
    blob_max_mb: int = Field(MOST_BYTES >> 20, ge=1, description="Largest upload.")
    blob_token: SecretStr = Field(min_length=1, description="Token that clients of the BlobServer present.")

    def deciding(self, port: int) -> dict[str, Any]:
        """What the machine is given in its log. `port`: of the BlobServer."""
        return {
            "max_live_jobs": self.max_live_jobs,
            "max_live_graphs_mb": self.max_live_graphs_mb,
            "max_live_subtasks": self.max_live_subtasks,
            "retained_jobs": self.retained_jobs,
            "blob_url": self.advertised_url(port),
            "blob_max_bytes": self.blob_max_mb << 20,
        }

    def advertised_url(self, port: int) -> str:
        """Where clients reach the BlobServer, which listens on `port`."""
        return self.blob_url or f"http://{joined(self.blob_host, port)}"

    def schemes(self) -> tuple[str, ...]:
        own = self.storage_url.partition("://")
        return ("file", *(each.strip() for each in self.sink_schemes.split(",")), *([own[0]] if own[1] else []))
