"""What is ended so that a JVM may stay after an attempt, and what becomes of it where that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.task_manager.slot.control.main import Control


@pytest.mark.parametrize("forgets", [True, False])
def test_python_daemons_that_do_not_end_are_a_reason_for_a_new_jvm(forgets: bool) -> None:
    def forget() -> None:
        if not forgets:
            raise AttributeError("a Spark whose table of them has another name")

    control: Any = object.__new__(Control)
    control._baseline = SimpleNamespace(restore=lambda: None, local=True, forget_daemons=forget)
    control._workers = SimpleNamespace(not_to_be_kept=lambda had_variables: "a Python daemon has them", end=lambda: False)
    assert control._reset(True) == "a Python daemon has them"
