"""Each rule of the design has its reason, its places and its tests, and is found in the code by its tag."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from .generate import ROOT
from .references import named, resolve, source

RULES = range(1, 39)
RULES_TEXT = (ROOT / "docs" / "rules.md").read_text()
_RULE = re.compile(r"^## \[R(\d+)\] (.+?)(?=^## )", re.MULTILINE | re.DOTALL)


def rules() -> dict[int, str]:
    return {int(number): text for number, text in _RULE.findall(RULES_TEXT)}


def test_the_rules_are_all_there_in_order() -> None:
    assert [int(number) for number, _ in _RULE.findall(RULES_TEXT)] == list(RULES)


@pytest.mark.parametrize("number", RULES)
def test_a_rule_has_a_reason_a_place_and_a_test(number: int) -> None:
    text = rules()[number]
    reason, table = text.find("**Without it:**"), text.find("| place | ")
    assert -1 < reason < table
    assert re.search(r"\n1\. .+\n2\. .+\n3\. ", text[reason:table]), "a run of events, step by step"
    product = [path for row in _rows(text, "place") for path, _ in named(row)]
    tests = [each for row in _rows(text, "test") for each in named(row)]
    assert product and not any(path.startswith("test_") for path in product)
    assert tests and all(path.startswith("test_") and symbol.startswith("test_") for path, symbol in tests)


def _rows(text: str, kind: str) -> list[str]:
    return re.findall(rf"^\| {kind} \| (.+) \|$", text, re.MULTILINE)


def test_the_code_names_rules_that_there_are_and_each_of_them_somewhere() -> None:
    """`[R7]` in a comment or docstring of a core or a shell is a rule of docs/rules.md."""
    found: dict[int, str] = {}
    for top in ("shared", "services"):
        for file in sorted((ROOT / top).rglob("*.py")):
            for number in re.findall(r"\[R(\d+)\]", _prose(file.read_text())):
                found.setdefault(int(number), file.name)
    assert sorted(found) == list(RULES), {n: file for n, file in found.items() if n not in RULES}


@pytest.mark.parametrize("number", RULES)
def test_each_place_of_a_rule_has_its_tag(number: int) -> None:
    """So that `grep -rnF '[R7]'` finds all of them, as docs/rules.md promises."""
    bare = [
        f"{path}:{symbol}"
        for row in _rows(rules()[number], "place")
        for path, symbol in named(row)
        if path.endswith(".py") and f"[R{number}]" not in source(resolve(path) or Path(path), symbol)
    ]
    assert bare == []


def test_the_lines_of_a_place_are_its_own() -> None:
    fold = resolve("core/fold.py")
    assert fold is not None
    assert source(fold, "Fold._tick").startswith("    def _tick(self") and "def _elected" not in source(fold, "Fold._tick")
    assert source(fold, "TICK_MS") == "TICK_MS = 100"


def _prose(text: str) -> str:
    """Comments and docstrings of a module."""
    comments = [t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT]
    strings = [
        node.value.value for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]  # fmt: skip
    return "\n".join([*comments, *strings])
