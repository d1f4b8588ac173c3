"""Settings of a web process."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import DirectoryPath, Field, SecretStr, ValidationInfo, field_validator

from millrace.io.addresses import is_loopback
from millrace.runtime.settings import ServiceSettings

from .access.settings import Access


class WebSettings(ServiceSettings):
    """Shows jobs, TaskManagers, slots and leaders as JSON and as a page, and takes commands over HTTP."""

    service: ClassVar[str] = "web"
    access: Access = Field(default_factory=Access.usual, description="Logins, TLS and limits.")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on; off loopback only with TLS and a login.")
    allowed_hosts: list[str] = Field(
        [], description="Names that it answers to (`Host`); empty: on loopback those of loopback. Needed in a container."
    )
    port: int = Field(0, ge=0, le=65535, description="Port for JSON and page; 0 takes a free one.")
    blob_token: SecretStr = Field(SecretStr(""), description="Token of the BlobServer; without it no modules and scripts are taken.")
    flink_dashboard: DirectoryPath | None = Field(
        None, description="Folder with the files of Flink's dashboard, which is then at /flink/; docs/flink.md says where they are."
    )
    stack: str = Field(
        "", pattern=r"^[A-Za-z0-9_.-]{0,100}$", description="Name of the local stack, for the commands that the page shows; empty: none."
    )
    spark_history: str = Field(
        "", pattern=r"^(https?://[!-~]{1,1000})?$", description="URL of a Spark history server; pages of jobs link their event logs there."
    )
    metrics_fetch_interval_ms: int = Field(
        10_000, ge=0, le=3_600_000,
        description="For Flink's metrics a process is asked how it is at most so often, and only while somebody looks; 0: never.",
    )
    retained_jobs: int = Field(10_000, ge=0, description="Ended jobs that are shown, the newest.")

    @field_validator("host")
    @classmethod
    def _reached_by_nobody_else(cls, host: str, others: ValidationInfo) -> str:
        if is_loopback(host) or others.data.get("published_on_loopback") or "access" not in others.data:
            return host
        access: Access = others.data["access"]
        lacks = [] if access.certificate else ["TLS (access.certificate and access.key)"]
        lacks += [] if access.has_login else ["a login (access.tokens or access.oidc.issuer)"]
        if lacks:
            raise ValueError(
                f"{host} is not loopback, and whoever reaches it could submit and cancel jobs: it needs {' and '.join(lacks)}; "
                "docs/access.md has an example. In a container that is published on loopback alone, set published_on_loopback"
            )
        return host

    @field_validator("allowed_hosts")
    @classmethod
    def _named_in_a_container(cls, names: list[str], others: ValidationInfo) -> list[str]:
        if not names and not is_loopback(others.data.get("host", "127.0.0.1")):
            raise ValueError(
                "must have the names it is reached by, such as millrace.example.com, or 127.0.0.1,localhost: else a page in a browser "
                "could use it"
            )
        return names

    @field_validator("flink_dashboard")
    @classmethod
    def _has_its_page(cls, folder: Path | None) -> Path | None:
        if folder is not None and not (folder / "index.html").is_file():
            raise ValueError("there is no index.html in it: it must be the folder `web` of Flink's flink-dist jar, unpacked")
        return folder
