"""What a Prometheus needs to scrape a local stack: its configuration, and where services answer. Their ports change with each start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .downloads import CHECKOUT

RULES = CHECKOUT / "deploy" / "monitoring" / "rules.yml"


class Target(NamedTuple):
    """A process that answers /metrics."""

    service: str
    instance: str
    port: int


def config_file(stack: Path) -> Path:
    """The configuration, in the stack's folder."""
    return stack / "prometheus" / "prometheus.yml"


def write(stack: Path, targets: Sequence[Target]) -> None:
    """Writes both files, if there is news: Prometheus looks at the targets whenever they change. Raises OSError."""
    found = [
        {"targets": [f"127.0.0.1:{target.port}"], "labels": {"job": target.service, "instance": target.instance}} for target in targets
    ]
    scraped = {"job_name": "millrace", "file_sd_configs": [{"files": ["targets.json"]}]}
    whole = {"global": {"scrape_interval": "5s", "evaluation_interval": "5s"}, "rule_files": [str(RULES)], "scrape_configs": [scraped]}
    config = config_file(stack)
    for file, content in ((config.with_name("targets.json"), found), (config, whole)):
        text = json.dumps(content, indent=1) + "\n"  # JSON is YAML
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(exist_ok=True)
            new = file.with_name(file.name + ".new")
            new.write_text(text)
            new.replace(file)
