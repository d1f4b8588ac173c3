"""What docs/restarts.md says of the strategies is what they do."""

from __future__ import annotations

import re

import pytest
import yaml

from millrace.core.clocks import NowMs
from millrace.core.faults import CLASSES
from millrace.core.jobgraph.model import JobGraph, Restart
from millrace.core.jobgraph.restarts import FIELDS, MEMORY_ATTEMPTS
from millrace.core.jobgraph.validate import validate
from services.job_master.core.restarts import STRATEGIES
from services.job_master.core.state import Job

from .generate import ROOT
from .test_documents import rows_of

TEXT = (ROOT / "docs" / "restarts.md").read_text()


def test_its_example_is_a_graph_and_waits_as_it_says() -> None:
    found = re.search(r"```yaml\n(.+?)```", TEXT, re.DOTALL)
    assert found is not None
    graph = validate({**yaml.safe_load(found[1]), "modules": []})  # `millrace submit` uploads them
    assert isinstance(graph, JobGraph)
    job, now_ms, delays = Job("j", "1.1", "1", {}, 0), 0, []
    while (delay_ms := STRATEGIES[graph.restart.strategy](graph.restart, job, NowMs(now_ms)).delay_ms) is not None:
        delays.append(delay_ms / 1000)
        now_ms += delay_ms + 1
    told = re.search(r"waits (\d+) seconds after its first failure, then ([\d, ]+) and (\d+)\.", TEXT)
    assert told is not None and ", ".join((told[1], told[2], told[3])) == ", ".join(f"{each:g}" for each in delays)


def test_its_table_has_each_field_of_each_strategy_with_its_default() -> None:
    table: dict[str, dict[str, str]] = {}
    strategy = ""
    for first, field, default, _ in rows_of("docs/restarts.md", "The strategies"):
        strategy = first.strip(" `") or strategy
        its = table.setdefault(strategy, {})
        if field.strip():
            its[field.strip(" `")] = default.strip()
    defaults = {name: "no limit" if value is None else str(value) for name, value in Restart().model_dump().items()}
    assert table.pop("these three") == {MEMORY_ATTEMPTS: defaults[MEMORY_ATTEMPTS]}
    assert table == {name: {field: defaults[field] for field in fields if field != MEMORY_ATTEMPTS} for name, fields in FIELDS.items()}
    assert set(table) == set(STRATEGIES)


def test_its_classes_and_budgets_are_those_of_the_code() -> None:
    rows = [[cell.strip() for cell in row] for row in rows_of("docs/restarts.md", "Which failures count")]
    assert rows == [[name, *its] for name, its in CLASSES.items()]


@pytest.mark.parametrize("strategy", FIELDS)
def test_each_field_belongs_to_a_strategy(strategy: str) -> None:
    assert set(FIELDS[strategy]) <= set(Restart.model_fields)
    assert set(Restart.model_fields) == {"strategy", "scope", *(field for fields in FIELDS.values() for field in fields)}
