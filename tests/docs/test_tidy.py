"""The code's own style where a linter has no rule for it: sizes of files and functions, reasons beside exceptions."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(file for top in ("shared", "services", "deploy", "tests", "examples") for file in (ROOT / top).rglob("*.py"))
FILE_LINES, FUNCTION_LINES = 500, 70

IGNORED = re.compile(r"#\s*type:\s*ignore(\[[a-z-]+(, ?[a-z-]+)*\])?\s*(.*)")


def names(files: list[Path]) -> list[str]:
    return [str(file.relative_to(ROOT)) for file in files]


@cache
def text(file: Path) -> str:
    return file.read_text()


def tokens(file: Path) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text(file)).readline)


def test_files_are_short() -> None:
    long = {name: lines for name, file in zip(names(FILES), FILES, strict=True) if (lines := text(file).count("\n")) > FILE_LINES}
    assert long == {}


def test_functions_are_short() -> None:
    long = {}
    for name, file in zip(names(FILES), FILES, strict=True):
        for node in ast.walk(ast.parse(text(file))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long[f"{name}:{node.name}"] = lines
    assert long == {}


def test_what_a_type_checker_is_to_pass_over_has_a_reason() -> None:
    """`# type: ignore[code]  # reason`."""
    bare = []
    for name, file in zip(names(FILES), FILES, strict=True):
        for token in tokens(file) if "type: ignore" in text(file) else ():
            found = IGNORED.search(token.string) if token.type == tokenize.COMMENT else None
            if found is not None and not (found.group(1) and found.group(3).startswith("# ")):
                bare.append(f"{name}:{token.start[0]}")
    assert bare == []
