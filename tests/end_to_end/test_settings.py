"""A stack that cannot start says so in a sentence, and leaves nothing running."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deploy.local.errors import LocalError
from deploy.local.stack import Options, Stack
from services.task_manager.settings import PYSPARK
from tests.end_to_end.running import processes_of


@pytest.mark.long
def test_a_python_without_pyspark(stacks_home: Path, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    stack = Stack("wrong-python")
    with pytest.raises(LocalError) as refused:
        stack.up(Options(slots=1, python=str(bare)), lambda step: None)
    assert str(refused.value) == (
        f"task-manager-1 does not start: task-manager: The Python {bare} has no PySpark. "
        f"Name a Python of at least 3.10 with PySpark {PYSPARK} in the setting python."
    )
    assert processes_of(stack.folder) == []
