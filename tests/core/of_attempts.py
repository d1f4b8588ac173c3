"""What an attempt is given, of which a test cares for a little."""

from __future__ import annotations

from typing import Any

from millrace.core.messages.attempts import AttemptSpec


def spec_of(**given: Any) -> AttemptSpec:
    """A spec with these fields; the others are of a subtask that does nothing."""
    nothing = {"job": "j", "task": "t", "subtask": 0, "parallelism": 1, "attempt": 1, "kind": "run", "vertices": [], "outputs": []}
    return AttemptSpec.model_validate({**nothing, "pinned": {}, "conf": {}, "modules": [], "parameters": {}, **given})
