"""A core decides from what it is given, and from nothing else; services know each other by messages alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.purity import cores, problems

ROOT = Path(__file__).parents[2]
LAYERS = Path(__file__).with_name("layers.ini")
MODULES = cores(ROOT)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("shared.")


@pytest.mark.parametrize("path", MODULES, ids=[dotted(path) for path in MODULES])
def test_a_core_is_pure(path: Path) -> None:
    assert not list(problems(path.read_text(), dotted(path)))


def test_all_cores_are_found() -> None:
    found = {dotted(path).partition(".core.")[0] for path in MODULES}
    names = ("dispatcher", "resource_manager", "job_master", "task_manager", "replay", "web")
    services = {f"services.{name}" for name in names}
    assert found == {"millrace", *services}


BAD = [
    ("import time", "imports time"),
    ("def f():\n    import random", "imports random"),
    ("from os import path", "imports os"),
    ("import json, uuid", "imports uuid"),
    ("from datetime import datetime", "imports datetime"),
    ("import concurrent.futures", "imports concurrent.futures"),
    ("import structlog", "imports structlog"),
    ("from millrace.io.kafka.bus import KafkaBus", "imports millrace.io.kafka.bus"),
    ("from ..ports import ports", "imports services.a.ports"),
    ("from services.b.core import state", "imports services.b.core"),
    ("from . import state\nprint(state)", "calls print()"),
    ("x = open('f')", "calls open()"),
    ("def f(x):\n    return hash(x)", "calls hash()"),
    ("key = lambda x: id(x)", "calls id()"),
    ("N = 0\ndef f():\n    global N\n    N += 1", "changes a variable outside its function"),
    ("for x in {1, 2}:\n    pass", "the order of a set shows"),
    ("def f(a):\n    s = set(a)\n    return [x for x in s]", "the order of a set shows"),
    ("def f(a: set[str]):\n    return list(a)", "the order of a set shows"),
    ("def f(a, b):\n    return ','.join(a.keys() - b)", "the order of a set shows"),
    ("def f(a):\n    return dict.fromkeys(frozenset(a))", "the order of a set shows"),
    ("def f(a):\n    return (*set(a),)", "the order of a set shows"),
    ("def f(a):\n    s: set[int] = a\n    return s.pop()", "takes any element of a set"),
]


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_what_is_not_pure_is_found(text: str, problem: str) -> None:
    assert [each for each in problems(text, "services.a.core.machine") if problem in each]


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations\nimport json\nfrom collections.abc import Iterator\nfrom pydantic import Field",
        "from . import state\nfrom .state import State\nfrom millrace.core.topics import TOPICS",
        "def f(a):\n    return sorted(set(a)), len(set(a)), 1 in set(a), {x for x in set(a)}",
        "def f(a):\n    s = set(a)\n    return [x for x in a if x in s]",
        "def f(a: dict[str, None]):\n    return list(a)",
    ],
)
def test_what_is_pure_passes(text: str) -> None:
    assert not list(problems(text, "services.a.core.machine"))


def test_layers() -> None:
    """Every contract of layers.ini."""
    contracts = LAYERS.read_text().count("[importlinter:contract:")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run(
        [*command, "--config", str(LAYERS), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {contracts} kept, 0 broken." in done.stdout
