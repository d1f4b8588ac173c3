"""What a how-to has to be copied is taken: settings by their services, graphs by the checks of a submission."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.validate import validate
from millrace.runtime.settings import SERVICES, ServiceSettings
from services.dispatcher.settings import DispatcherSettings
from services.job_master.settings import JobMasterSettings
from services.resource_manager.settings import ResourceManagerSettings
from services.task_manager.settings import TaskManagerSettings
from services.web.settings import WebSettings
from tests.web.access.certificates import certify

from .references import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODELS: dict[str, type[ServiceSettings]] = {
    each.service: each for each in (DispatcherSettings, ResourceManagerSettings, JobMasterSettings, TaskManagerSettings, WebSettings)
}
FENCED = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(rf"^    (?:{'|'.join(SERVICES)}):\n(?:     +\S.*\n)+", re.MULTILINE)
ACCESS = re.compile(r"^      access:\n(?:       +\S.*\n)+", re.MULTILINE)  # a part of the section web, by itself
UPLOADED = {"sha256": "0" * 64}


def _blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    """(page and line, content) of all that is written as YAML."""
    for page in PAGES:
        text = page.read_text()
        whole = [(found.start(), found[1]) for found in FENCED.finditer(text)]
        whole += [(found.start(), textwrap.dedent(found[0])) for found in INDENTED.finditer(text)]
        inside = [range(*found.span()) for found in INDENTED.finditer(text)]
        parts = [found for found in ACCESS.finditer(text) if not any(found.start() in each for each in inside)]
        whole += [(found.start(), f"web:\n{found[0]}") for found in parts]
        for start, content in whole:
            yield f"{page.name}:{text.count(chr(10), 0, start) + 1}", yaml.safe_load(content)


BLOCKS = dict(_blocks())
GRAPHS = {where: block for where, block in BLOCKS.items() if "vertices" in block}
SETTINGS = {where: block for where, block in BLOCKS.items() if not block.keys().isdisjoint(MODELS)}


@pytest.mark.parametrize("where", GRAPHS)
def test_a_graph_on_a_page_is_one(where: str) -> None:
    block = GRAPHS[where]
    modules = [dict(UPLOADED, name=name) for name in block.get("modules", ())]  # `millrace submit` uploads them
    found = validate({**block, **({"modules": modules} if modules else {})})
    assert isinstance(found, JobGraph), found


@pytest.mark.parametrize("where", SETTINGS)
def test_settings_on_a_page_are_taken(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for made in certify(tmp_path / "tls", "blobs"):
        made.rename(made.with_stem("blobs"))
    certify(tmp_path, "web")
    (tmp_path / "tokens.json").touch()
    block = yaml.safe_load(yaml.safe_dump(SETTINGS[where]).replace("/etc/millrace/", f"{tmp_path}/"))
    common = {name: value for name, value in block.items() if name not in MODELS}
    for service, section in block.items():
        if service in MODELS:
            given = {"blob_token": SecretStr("t")} if service == DispatcherSettings.service else {}
            MODELS[service](**{**common, **given, **section})


def test_what_is_to_be_copied_is_found() -> None:
    pages = {"growing.md", "queue.md", "history.md", "files.md", "access.md", "operate.md"}
    assert {where.partition(":")[0] for where in SETTINGS} >= pages
    assert {where.partition(":")[0] for where in GRAPHS} >= {"README.md", "restarts.md", "queue.md", "schedules.md", "submitting.md"}
