"""The walks through recorded incidents: every command prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.replay.page import PAGES, rewritten


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_prints_what_it_says(page: Path) -> None:
    text = page.read_text()
    assert text.count("```console\n$ millrace replay ") >= 5
    assert re.search(r"```console\n[^\n]*\n```", text) is None, "a command without output has failed"
    assert text == rewritten(page), "`python -m tests.replay.page` writes what the commands print now; read it again then"


def test_there_is_a_page() -> None:
    assert PAGES
