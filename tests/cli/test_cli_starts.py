"""A command loads what it needs and no more: what a shell waits for before anything is sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "asyncio", "confluent_kafka", "etcd3", "fsspec", "grpc", "httpx", "numpy", "pandas", "psutil", "pyarrow", "pydantic",
    "pyspark", "rich", "ruamel", "services", "sqlglot", "starlette", "structlog", "tenacity", "uvicorn",
}  # fmt: skip
INBOXES = {"contracts", "effects", "jobs", "records", "slots"}
"""Modules of `millrace.core.messages` that no client needs: each message takes about a millisecond to build."""

RUN = """
import sys
import millrace.client.link as link
from millrace.client import Unavailable

def nobody(*_, **__):
    raise Unavailable("nobody")

link.Link.__init__ = nobody
"""
PROGRAM = """
import sys
from {program} import app
code = app.guarded(lambda: app.app(sys.argv[1:], prog_name="millrace"))
print("loaded", code, *sys.modules, file=sys.stderr)
"""


def loaded(program: str, *args: str) -> tuple[int, set[str]]:
    """The exit code, and the modules that the command has loaded when it has connected, or ended."""
    env = {"MILLRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1", "MILLRACE_TOKEN": "t", "PATH": "/usr/bin:/bin"}
    connects = args[-1] != "--help" and args[0] not in ("schema", "status")
    command = [sys.executable, "-c", (RUN if connects else "") + PROGRAM.format(program=program), *args]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    told = ended.stderr.splitlines()[-1].split()
    assert told[0] == "loaded", ended.stderr
    return int(told[1].removeprefix("Exit.")), set(told[2:])


CLIENT = {"asyncio", "confluent_kafka", "pydantic"}  # Kafka's client brings asyncio


@pytest.mark.parametrize(("args", "code", "needs"), [
    (["submit", "examples/hello.yaml"], 3, {*CLIENT, "ruamel"}),
    (["submit", "--wait", "examples/wordcount.py", "x"], 3, {*CLIENT, "ruamel"}),
    (["list"], 3, CLIENT),
    (["show", "j"], 3, CLIENT),
    (["cancel", "j"], 3, CLIENT),
    (["--help"], 0, {"rich", "pydantic"}),
    (["submit", "--help"], 0, {"rich", "pydantic"}),  # which typer asks for
])  # fmt: skip
@pytest.mark.parametrize("program", ["millrace.cli", "deploy.cli"])
def test_a_command_loads_what_it_needs(program: str, args: list[str], code: int, needs: set[str]) -> None:
    ended, modules = loaded(program, *args)
    assert ended == code
    assert {name.partition(".")[0] for name in modules} & HEAVY <= needs
    assert {name for name in INBOXES if f"millrace.core.messages.{name}" in modules} == set()
    assert not [name for name in modules if name.startswith("millrace.io.")]
    ours = {name for name in modules if name.startswith("deploy.") and not name.startswith("deploy.cli")}
    assert not ours and ("deploy" in modules) == (program == "deploy.cli")
