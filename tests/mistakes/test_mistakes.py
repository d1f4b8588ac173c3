"""What a user sees of each typical mistake is what its file has. Those that need a stack are in `tests/end_to_end/test_mistakes.py`.

`pytest tests/mistakes tests/end_to_end/test_mistakes.py --rewrite` writes what it is now: read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.scene import FILES, ON_A_STACK, play


@pytest.mark.parametrize("file", [file for file in FILES if file not in ON_A_STACK], ids=lambda file: file.stem)
def test_a_mistake_is_told_as_it_is_written(file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    play(file, tmp_path, {"MILLRACE_HOME": str(tmp_path / "none")}, request)


def test_there_are_thirty_typical_mistakes() -> None:
    assert len(FILES) >= 30
