"""docs/files.md: its settings are settings, and its figures are those that there are."""

from __future__ import annotations

import re

import pytest
import yaml

from millrace.runtime.metrics import TABLE
from services.task_manager.settings import TaskManagerSettings

from .references import ROOT

TEXT = (ROOT / "docs" / "files.md").read_text()
SETTINGS = {"task_manager": TaskManagerSettings}
FILES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("content", FILES)
def test_the_settings_are_read_and_are_the_defaults(content: str) -> None:
    for service, given in yaml.safe_load(content).items():
        fields = SETTINGS[service].model_fields
        assert {name: fields[name].default for name in given} == given


def test_the_figures_are_those_that_a_task_manager_shows() -> None:
    shown = {name.removesuffix("_total") for name in re.findall(r"^(millrace_blob_cache_\w+)", TEXT, re.MULTILINE)}
    assert shown == {metric.name.removesuffix("_total") for metric in TABLE if "blob_cache" in metric.name}
