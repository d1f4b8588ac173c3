"""What is ended so that a JVM may stay after an attempt, and what becomes of it where that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from services.task_manager.slot.common import procs
from services.task_manager.slot.control.main import Control
from tests.slot.lifecycle import wait_until


@pytest.mark.parametrize("forgets", [True, False])
def test_python_daemons_that_do_not_end_are_a_reason_for_a_new_jvm(forgets: bool) -> None:
    def forget() -> None:
        if not forgets:
            raise AttributeError("a Spark whose table of them has another name")

    control: Any = object.__new__(Control)
    control._baseline = SimpleNamespace(restore=lambda: None, local=True, forget_daemons=forget)
    control._workers = SimpleNamespace(not_to_be_kept=lambda had_variables: "a Python daemon has them", end=lambda: False)
    assert control._reset(True) == "a Python daemon has them"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing counts them")
def test_what_a_worker_calls_itself_does_not_matter() -> None:
    """Linux keeps 15 bytes of a name that a library gives its process: nobody says that they end with a character."""
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, 'обработка'.encode()); print(flush=True); time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None and worker.stdout.readline() == b"\n"
            assert wait_until(lambda: procs.HERE.switches(worker.pid), "it sleeps") > 0
            assert worker.pid in procs.below(os.getpid())
        finally:
            worker.kill()
