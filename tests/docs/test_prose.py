"""The documents stay short, and their sentences, too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.core.messages import records

from .generate import DOCUMENTS, ROOT
from .sentences import prose_of, sentences, too_long, words
from .tables import RECORDS

ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PAGES = [*DOCUMENTS, *sorted((ROOT / "examples").rglob("*.md"))]
BYTES_MOST = {"README.md": 9 * 1024, "ARCHITECTURE.md": 25 * 1024}
TERMS_MOST = 25


@pytest.mark.parametrize(("name", "most"), BYTES_MOST.items())
def test_a_page_that_everybody_reads_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_bytes()) <= most


def test_the_glossary_is_short_and_in_order() -> None:
    section = ARCHITECTURE[ARCHITECTURE.index("## Glossary") :].partition("\n## ")[0]
    terms = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[2:]
    assert terms == sorted(terms)
    assert 10 < len(", ".join(terms).split(", ")) <= TERMS_MOST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_of_a_page_is_too_long(page: Path) -> None:
    assert too_long(page.read_text()) == []


@pytest.mark.parametrize("folder", ["shared", "services", "deploy"])
def test_no_sentence_of_a_docstring_or_comment_is_too_long(folder: str) -> None:
    found = [f"{file.relative_to(ROOT)}: {each}" for file in sorted((ROOT / folder).rglob("*.py")) for each in too_long(prose_of(file))]
    assert found == []


def test_sentences_are_found() -> None:
    text = """# A heading that is no sentence

    code. Is none.

A first one, e.g. this. And a `name.of.code`; a second one! (A third one?)
It goes on
over a line's end. etcd begins small. name: what a parameter is. [A link](somewhere.md) is its words, `a`, `b` and `c` one word.

| a table. | has phrases; and more. |

- an item without an end
- another one
"""
    assert list(sentences(text)) == [
        "A first one, eg this",
        "And a NAME; a second one",
        "(A third one",
        "It goes on over a line's end",
        "etcd begins small",
        "name: what a parameter is",
        "A link is its words, NAME one word",
        "a table",
        "has phrases",
        "and more",
        "an item without an end",
        "another one",
    ]
    assert words("A link is its words, NAME one word - (and) 2 more") == 11


def test_a_long_sentence_is_found_in_docstrings_and_comments(tmp_path: Path) -> None:
    long = " ".join(["word"] * 36)
    module = tmp_path / "module.py"
    module.write_text(f'"""Short.\n\n{long}."""\n\n# {long[:80]}\n# {long[80:]}\nX = 1\n"""Short."""\n')
    assert [each.partition(":")[0] for each in too_long(prose_of(module))] == ["36 words", "36 words"]


def test_one_real_record_of_each_kind_is_shown() -> None:
    """Each line is read as strictly as a record of an inbox is."""
    shown = [records.decode(line.encode()) for line in re.findall(r'^\{"record":.*$', ARCHITECTURE, re.MULTILINE)]
    assert [type(each) for each in shown] == list(RECORDS)
