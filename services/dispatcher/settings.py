"""Settings of a Dispatcher process."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import Field, FilePath, SecretStr, field_validator, model_validator

from millrace.io.addresses import joined
from millrace.io.http.blobs import MOST_BYTES, MOST_REQUESTS
from millrace.io.http.server import BACKLOG
from millrace.runtime.settings import ServiceSettings

from .core.state import Settings
from .housekeeping import ARCHIVES_MOST
from .staging import STORES

DEFAULTS = Settings()
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LISTED = re.compile(rf"{_PORTS.pattern}(?:,{_PORTS.pattern})*")


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
    keep_uploads_hours: float | None = Field(
        None,
        ge=1,
        description="How long uploads are kept after their last use, if not keep_hours. What accepted jobs use has copies of its own.",
    )
    keep_archives: int = Field(
        ARCHIVES_MOST,
        ge=1,
        description="How many archives of ended jobs are kept, the newest, within keep_hours. An etcd that is restored from a backup "
        "knows by them which jobs ended since: keep more than end between two backups.",
    )
    archive_url: str = Field(
        "", description="A folder or fsspec URL beside storage_url, to which archives are copied, too: for `millrace history`. Empty: none."
    )
    archive_hours: float = Field(
        8760.0, gt=0, description="How long copies stay in archive_url. Where several clusters copy to, the shortest of theirs holds."
    )
    keep_ended_hours: float = Field(
        0.0,
        ge=0,
        le=10 * 366 * 24,
        description="How long etcd keeps the names of ended jobs for `list --all` (300 bytes each), also behind their archives. They stay "
        "as long as client.commands may hold their submission in any case.",
    )
    keep_for_repair_hours: float = Field(
        DEFAULTS.keep_for_repair_ms / 3_600_000,
        ge=0,
        le=10 * 366 * 24,
        description="How long exchange data of jobs that FAILED or were CANCELED stay after their end, so that `millrace repair` need not "
        "run again what had finished; 0: they are deleted at once.",
    )
    keep_for_repair_mb: int = Field(
        DEFAULTS.keep_for_repair_mb,
        ge=0,
        description="What these data may take together. The oldest go first, within an hour; a job that alone has more keeps none. While a "
        "job that repairs another one lives, the data that it reads stay all the same.",
    )
    sink_schemes: str = Field(
        ",".join(STORES),
        description="Schemes of sinks' URLs whose staged output is deleted, besides files and storage_url's; no other is opened.",
    )
    check_local_files: bool = Field(
        False, description="Refuse jobs whose local source files are not on this machine; for clusters on one machine."
    )
    blob_host: str = Field("127.0.0.1", min_length=1, description="Address that the BlobServer listens on.")
    blob_port: str = Field(
        "0",
        max_length=1000,
        description="Port of the BlobServer; 0 takes a free one. Of a list and ranges, as 50100,50200-50210, the first that is free.",
    )
    blob_url: str = Field("", description="URL that clients are given for blobs; empty: http(s)://<blob_host>:<port>.")
    blob_max_mb: int = Field(MOST_BYTES >> 20, ge=1, description="Largest upload.")
    blob_requests_most: int = Field(
        MOST_REQUESTS, ge=1, le=10_000, description="Requests that the BlobServer answers at once; who comes then is asked to come again."
    )
    blob_backlog: int = Field(BACKLOG, ge=1, le=65535, description="Connections to the BlobServer that may wait until they are taken.")
    blob_certificate: FilePath | None = Field(
        None, description="The BlobServer's certificate, a PEM file, with what is between it and a known authority; with it, it speaks TLS."
    )
    blob_key: FilePath | None = Field(None, description="Key of that certificate, a PEM file without a password.")
    blob_token: SecretStr = Field(min_length=1, description="Token that clients of the BlobServer present.")

    def deciding(self, port: int) -> dict[str, Any]:
        """What the machine is given in its log. `port`: of the BlobServer."""
        return {
            "max_live_jobs": self.max_live_jobs,
            "max_live_graphs_mb": self.max_live_graphs_mb,
            "max_live_subtasks": self.max_live_subtasks,
            "retained_jobs": self.retained_jobs,
            "keep_for_repair_ms": int(self.keep_for_repair_hours * 3_600_000),
            "keep_for_repair_mb": self.keep_for_repair_mb,
            "blob_url": self.advertised_url(port),
            "blob_max_bytes": self.blob_max_mb << 20,
        }

    def advertised_url(self, port: int) -> str:
        """Where clients reach the BlobServer, which listens on `port`."""
        return self.blob_url or f"http{'s' if self.blob_certificate else ''}://{joined(self.blob_host, port)}"

    @property
    def blob_ports(self) -> list[int]:
        """Those that the BlobServer may listen on, in this order."""
        ranges = ((int(low), int(high or low)) for low, high in _PORTS.findall(self.blob_port))
        return [port for low, high in ranges for port in range(low, high + 1)]

    @property
    def archive_ms(self) -> int:
        return int(self.archive_hours * 3_600_000)

    @property
    def keep_ms(self) -> int:
        return int(self.keep_hours * 3_600_000)

    @property
    def keep_uploads_ms(self) -> int:
        return self.keep_ms if self.keep_uploads_hours is None else int(self.keep_uploads_hours * 3_600_000)

    @field_validator("archive_url")
    @classmethod
    def _absolute_too(cls, url: str) -> str:
        """As storage_url."""
        return cls._absolute(url) if url else url

    @field_validator("blob_port", mode="before")
    @classmethod
    def _ports(cls, given: Any) -> Any:
        """A number, too. Raises ValueError."""
        text = str(given).replace(" ", "") if isinstance(given, (int, str)) and not isinstance(given, bool) else ""
        ranges = [(int(low), int(high or low)) for low, high in _PORTS.findall(text)] if _LISTED.fullmatch(text) else []
        if not ranges or any(low > high or high > 65535 for low, high in ranges):
            raise ValueError("must be a port up to 65535, a range such as 50100-50200, or a list of these with commas")
        return text

    @model_validator(mode="after")
    def _another_place(self) -> DispatcherSettings:
        if self.archive_url and self.archive_url.rstrip("/") == self.storage_url.rstrip("/"):
            raise ValueError("archive_url is storage_url, where the archives are in any case: name another place, or leave it out")
        return self

    @model_validator(mode="after")
    def _with_its_key(self) -> DispatcherSettings:
        if (self.blob_certificate is None) != (self.blob_key is None):
            raise ValueError("blob_certificate and blob_key belong together: give both, or neither")
        return self

    def schemes(self) -> tuple[str, ...]:
        own = self.storage_url.partition("://")
        return ("file", *(each.strip() for each in self.sink_schemes.split(",")), *([own[0]] if own[1] else []))
