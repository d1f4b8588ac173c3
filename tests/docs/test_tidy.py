"""The code's own style where a linter has no rule for it: sizes of files and functions, reasons beside exceptions."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
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


def modules() -> dict[str, Path]:
    """The product's and its tests': dotted name -> file."""
    found = {}
    for name, file in zip(names(FILES), FILES, strict=True):
        if not name.startswith("examples/"):
            parts = name.removesuffix(".py").removesuffix("/__init__").removeprefix("shared/").split("/")
            found[".".join(parts)] = file
    return found


def imported(module: str, known: dict[str, Path]) -> Iterator[str]:
    """What a module imports of these, at its top or within a function, to run it or for its types."""
    package = module.split(".")[: None if known[module].name == "__init__.py" else -1]
    for node in ast.walk(ast.parse(text(known[module]))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                yield from [name for name in (f"{source}.{each.name}", source) if name in known][:1]


def test_no_imports_go_in_a_circle() -> None:
    known = modules()
    TopologicalSorter({module: set(imported(module, known)) - {module} for module in known}).prepare()  # else a CycleError shows it


def test_a_name_is_imported_from_the_file_that_has_it() -> None:
    """`import X as X` offers a name a second time, in a list that somebody has to keep."""
    offered = [f"{name}:{node.lineno}" for name, file in zip(names(FILES), FILES, strict=True) for node in ast.walk(ast.parse(text(file)))
               if isinstance(node, ast.Import | ast.ImportFrom) and any(each.name == each.asname for each in node.names)]  # fmt: skip
    assert offered == []


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
