"""The client library is installed alone: what is in a user's environment then, and what works there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import millrace
from tests.client.alone import ROOT, Alone, shared
from tests.deploy.test_packaging import declared, imports

pytestmark = pytest.mark.timeout(400)

IMPORTS_ALL = """
import importlib, importlib.util, json, pkgutil, sys
import millrace
absent = ["services", "deploy", "pyspark", "etcd3", "starlette", "structlog", "fsspec", "millrace.runtime", "millrace.io.etcd"]
found = [name for name in absent if importlib.util.find_spec(name) is not None]
modules = [each.name for each in pkgutil.walk_packages(millrace.__path__, "millrace.")]
for name in modules:
    importlib.import_module(name)
from importlib.metadata import distributions
print(json.dumps({
    "found": found, "modules": modules, "file": millrace.__file__, "distributions": {each.name: each.version for each in distributions()},
}))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    return shared(tmp_path_factory)


def asked_for() -> list[Requirement]:
    text = (ROOT / "shared" / "pyproject.toml").read_text()
    wanted = text[text.index("\ndependencies") : text.index("\n[project.scripts]")]
    return [Requirement(line) for line in re.findall(r'"([^"\n]+)"', wanted)]


def test_it_asks_for_what_the_whole_asks_for() -> None:
    assert asked_for() and {str(each) for each in asked_for()} < {str(each) for each in declared()}


def test_the_environment_holds_the_client_and_nothing_that_runs_a_cluster(alone: Alone) -> None:
    done = alone.run("python", "-c", IMPORTS_ALL)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["found"] == []
    assert Path(told["file"]).is_relative_to(alone.folder)
    assert {"millrace.client.api", "millrace.cli.submit", "millrace.edge.requests", "millrace.io.kafka.admin"} <= {*told["modules"]}
    assert told["distributions"]["millrace-client"] == millrace.__version__
    assert "millrace" not in told["distributions"]


def test_it_asks_for_what_it_imports_and_nothing_else(alone: Alone) -> None:
    [package] = (alone.folder / "lib").glob("python*/site-packages/millrace")
    imported = {name for file in package.rglob("*.py") for name in imports(file)} - sys.stdlib_module_names - {"millrace"}
    asked = {each.name.replace("-", "_").partition(".")[0] for each in asked_for()}
    assert imported - {"pydantic_core", "click"} == asked  # those two come with pydantic and typer


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["schema", "JobGraph"], ["validate", str(ROOT / "examples" / "hello.yaml")]])
def test_what_needs_no_cluster_works(alone: Alone, args: list[str]) -> None:
    done = alone.run("millrace", *args)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout
    if args[0] == "--help":
        jobs = {"submit", "list", "queue", "show", "result", "logs", "inspect", "files", "cancel", "events", "validate"}
        jobs |= {"taskmanagers", "slots", "services", "describe", "settings", "deregister", "shutdown", "schema", "audit"}
        jobs |= {"block", "unblock", "blocked"}
        jobs |= {"run-again", "repair", "backfill", "rescale", "schedule"}
        assert jobs == set(re.findall(r"^│ ([a-z][a-z-]+) ", shown, re.MULTILINE))
    elif args[0] == "schema":
        assert json.loads(shown)["title"] == "JobGraph"
    elif args[0] == "validate":
        assert shown.endswith("hello.yaml: a job graph: valid\n")
    else:
        assert shown == f"millrace {millrace.__version__}\n"


def test_it_says_how_a_cluster_is_named(alone: Alone) -> None:
    done = alone.run("millrace", "list")
    where = "it is not known where the cluster is: name its Kafka in MILLRACE_KAFKA_BOOTSTRAP, as host:port"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"millrace: {where}\n")
