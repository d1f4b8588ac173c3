"""docs/files.md: its settings are settings, and its figures are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from millrace.runtime.metrics import TABLE
from services.dispatcher.settings import DispatcherSettings
from services.task_manager.settings import TaskManagerSettings
from tests.web.access.certificates import certify

from .references import ROOT

TEXT = (ROOT / "docs" / "files.md").read_text()
FILES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


def test_the_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    certify(tmp_path / "tls", "blobs")
    for name in ("crt", "key"):
        (tmp_path / "tls" / f"tls.{name}").rename(tmp_path / "tls" / f"blobs.{name}")
    server, cache = (yaml.safe_load(content) for content in FILES)
    found = DispatcherSettings(**server["dispatcher"], blob_token=SecretStr("t"))
    assert (found.blob_ports[0], len(found.blob_ports), found.keep_uploads_ms) == (50100, 11, 7_200_000)
    fields = TaskManagerSettings.model_fields
    assert {name: fields[name].default for name in cache["task_manager"]} == cache["task_manager"], "they are the defaults"


def test_the_place_of_the_archives_is_that_of_the_history() -> None:
    text = (ROOT / "docs" / "history.md").read_text()
    [content] = re.findall(r"```yaml\n(dispatcher:\n  archive_url.*?)```", text, re.DOTALL)
    given = yaml.safe_load(content)["dispatcher"]
    found = DispatcherSettings(**given, blob_token=SecretStr("t"))
    assert found.archive_hours == DispatcherSettings.model_fields["archive_hours"].default
    assert f"millrace history --storage {found.archive_url}\n" in text


def test_the_figures_are_those_that_a_task_manager_shows() -> None:
    shown = {name.removesuffix("_total") for name in re.findall(r"^(millrace_blob_cache_\w+)", TEXT, re.MULTILINE)}
    assert shown == {metric.name.removesuffix("_total") for metric in TABLE if "blob_cache" in metric.name}
