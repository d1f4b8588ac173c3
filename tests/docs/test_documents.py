"""The documents say what the code is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .generate import COMMAND, DOCUMENTS, ROOT, SCHEMAS, TABLES, documents, filled, paths, places, stale
from .references import named, resolve, wrong

REFERENCE_TEXT = (ROOT / "docs" / "reference.md").read_text()
COMPONENTS = """
ClusterEntrypoint DispatcherResourceManagerComponent DispatcherRunner DispatcherLeaderProcess DispatcherGatewayService
Dispatcher JobGraphStore JobGraphWriter RecoveredJobs RunningJobsRegistry JobManagerRunner JobManagerSharedServices JobMaster
ExecutionGraph SchedulerNG SlotPool ResourceManager SlotManager JobLeaderIdService HighAvailabilityServices LeaderElectionService
LeaderRetrievalService BlobServer HeartbeatServices MetricRegistry MetricFetcher ArchivedExecutionGraphStore HistoryServerArchivist
WebMonitorEndpoint FatalErrorHandler SecurityContext PluginManager TaskManagerRunner TaskExecutor TaskSlotTable JobLeaderService
ShuffleEnvironment KvState YARN Mesos Kubernetes
"""


@pytest.mark.parametrize("path", [path.relative_to(ROOT).as_posix() for path in paths()])
def test_what_is_made_from_the_code_is_as_the_code_is(path: str) -> None:
    file = ROOT / path
    assert file.exists(), f"{path} is missing: `{COMMAND}` writes it"
    assert file.read_text() == documents()[file], f"{path} is older than the code: `{COMMAND}` rewrites it"


def test_all_that_is_made_is_looked_at() -> None:
    assert paths() == list(documents())


def test_no_schema_is_left_of_a_message_that_is_gone() -> None:
    assert stale() == [], f"`{COMMAND}` deletes them"
    assert len(list(SCHEMAS.rglob("*.json"))) > 20


def test_every_table_has_its_place() -> None:
    assert sorted(name for file in DOCUMENTS for name in places(file.read_text())) == sorted(TABLES)


def test_a_table_that_differs_is_made_anew() -> None:
    text = "a\n<!-- table: local facts -->\n\nold\n\n<!-- end -->\nb\n"
    assert filled(text) == f"a\n<!-- table: local facts -->\n\n{TABLES['local facts']()}\n\n<!-- end -->\nb\n"
    with pytest.raises(KeyError):
        filled("<!-- table: nothing -->\n<!-- end -->")


@pytest.mark.parametrize("file", [each for each in DOCUMENTS if each.exists()], ids=lambda each: each.name)
def test_every_place_that_a_document_names_is_there(file: Path) -> None:
    assert wrong(file.read_text()) == []


def test_a_place_that_is_not_there_is_found() -> None:
    text = (
        "`core/fold.py:Fold._tick` `core/fold.py:Fold.nothing` `core/gone.py` `test_chain.py:test_offer` `test_gone.py`"
    )
    assert wrong(text) == [
        "core/fold.py: defines no Fold.nothing",
        "core/gone.py: no such file",
        "test_gone.py: no such file",
    ]


@pytest.mark.parametrize("file", [each for each in DOCUMENTS if each.exists()], ids=lambda each: each.name)
def test_every_link_leads_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = file.parent / path if path else file
        assert there.exists(), f"{file.name} links to {target}"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}, target


OF_REPORT_NOW = re.compile(r"\b(ReportNow|ReportStartedJob|JobReported|ReportOrder|report_now|Inspection|inspect_job)\b")


def test_a_request_touches_the_files_that_are_listed() -> None:
    """CONTRIBUTING promises at most 15; what is not listed is what the next request is forgotten in."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (?:1|2, 3|4|5) \| (.+) \|$", text, re.MULTILINE)
    listed = {file.removeprefix("shared/millrace/") for row in rows for file in re.findall(r"`(\S+\.py)`", row)}
    files = [file for top in ("shared", "services", "deploy") for file in (ROOT / top).rglob("*.py")]
    named = {str(file.relative_to(ROOT)) for file in files if OF_REPORT_NOW.search(file.read_text())}
    in_slots = {name for name in listed if name.startswith("task_manager/slot/")}  # these know the order by its word alone
    assert {name.removeprefix("shared/millrace/").removeprefix("services/") for name in named} == listed - in_slots
    assert len(listed) <= 15 and in_slots


# ---- faults


def rows_of(path: str, head: str) -> list[list[str]]:
    """The cells of a table, row by row, without its two first lines."""
    text = (ROOT / path).read_text()
    section = text[text.index(f"## {head}") :].partition("\n## ")[0]
    return [line.strip().strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]


def is_test(path: str, symbol: str) -> bool:
    return symbol.startswith("test_") or path.startswith("tests/transcripts/")


def test_every_fault_has_what_holds_and_a_test() -> None:
    rows = rows_of("docs/faults.md", "Faults")
    assert [row[0].strip() for row in rows] == [f"F{number}" for number in range(1, 28)]
    for name, fault, holds, tests in rows:
        assert fault.strip() and holds.strip() and any(is_test(*each) for each in named(tests)), name


# ---- completeness


def test_every_component_of_flinks_master_has_a_place_or_a_reason() -> None:
    table = REFERENCE_TEXT[REFERENCE_TEXT.index("## Coming from Flink") :]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 40
    for flink, here in rows:
        assert any(resolve(path) for path, _ in named(here)) or here.startswith(("none", "not there yet")), flink
    named_there = " ".join(flink for flink, _ in rows)
    assert [name for name in COMPONENTS.split() if name not in named_there] == []
