"""The dashboard, by Grafana's own schema (its SDK's classes are made of it), and its questions, by Prometheus' own parser."""

from __future__ import annotations

import enum
import json
import subprocess
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from tests.deploy.test_monitoring import FOLDER, PROMTOOL, expressions

cog = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason="Grafana's SDK wants Python 3.11")
INTERVALS = {"$__rate_interval": "5m"}
"""What Grafana puts in."""


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "grafana" / "millrace.json").read_text())
    return found


def wrong_in_dashboard(raw: dict[str, Any]) -> list[str]:
    """Fields that the schema has not, and values that are none of their kind."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import Dashboard

    cog.register_default_plugins()  # the options of a panel are those of its type, its questions are Prometheus'
    read = Dashboard.from_json(raw)
    back = json.loads(json.dumps(read.to_json(), cls=JSONEncoder))
    return [*missing(raw, back, ""), *of_another_kind(read, type(read), "")]


def missing(raw: Any, back: Any, place: str) -> Iterator[str]:
    """What was read of it is all of it: the classes leave out what they do not know."""
    if isinstance(raw, dict) and isinstance(back, dict):
        for name, part in raw.items():
            yield from missing(part, back[name], f"{place}.{name}") if name in back else [f"{place}.{name} is unknown"]
    elif isinstance(raw, list) and isinstance(back, list) and len(raw) == len(back):
        for number, (one, other) in enumerate(zip(raw, back, strict=True)):
            yield from missing(one, other, f"{place}[{number}]")
    elif raw != back:
        yield f"{place} was read as {back!r}"


def of_another_kind(value: Any, hint: Any, place: str) -> Iterator[str]:
    if get_origin(hint) in (Union, types.UnionType):
        if all(list(of_another_kind(value, each, place)) for each in get_args(hint)):
            yield f"{place} is {value!r}"
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        if value not in [each.value for each in hint]:
            yield f"{place} is {value!r}, and not one of {[each.value for each in hint]}"
    elif get_origin(hint) is list and isinstance(value, list):
        for number, each in enumerate(value):
            yield from of_another_kind(each, get_args(hint)[0], f"{place}[{number}]")
    elif hint in (str, int, float, bool, type(None)) and type(value) not in ((int, float) if hint is float else (hint,)):
        yield f"{place} is {value!r}"
    if type(value).__module__.startswith("grafana_foundation_sdk.models"):
        for name, each in get_type_hints(type(value)).items():
            yield from of_another_kind(getattr(value, name), each, f"{place}.{name}")


def test_grafana_knows_every_field_of_the_dashboard_and_takes_every_value() -> None:
    assert wrong_in_dashboard(dashboard()) == []


@pytest.mark.parametrize(("part", "name", "value"), [
    ("gridPos", "w", "8"), ("gridPos", "width", 8), ("options", "colorMode", "loud"), ("options", "colour", "red"),
    ("fieldConfig", "default", {}),
])  # fmt: skip
def test_what_grafana_does_not_know_is_found(part: str, name: str, value: object) -> None:
    raw = dashboard()
    next(panel for panel in raw["panels"] if panel["type"] == "stat")[part][name] = value
    assert len(wrong_in_dashboard(raw)) == 1


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool on PATH (Debian's package prometheus has it)")
def test_prometheus_parses_all_that_is_asked(tmp_path: Path) -> None:
    asked = []
    for number, (_, promql) in enumerate(expressions()):
        for name, interval in INTERVALS.items():
            promql = promql.replace(name, interval)
        assert "$" not in promql
        asked.append({"record": f"asked:{number}", "expr": promql})
    file = tmp_path / "asked.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "asked", "rules": asked}]}))
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done.stdout + done.stderr
