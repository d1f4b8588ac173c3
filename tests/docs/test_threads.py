"""ARCHITECTURE's table of threads is that of the code: who looks at a running process finds each of them there."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from .references import ROOT, named, resolve

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
TABLE = TEXT[TEXT.index("\n## Threads\n") :].partition("\n## A slot")[0]
STARTS = ("Thread", "Timer", "ThreadPoolExecutor")
Place = tuple[Path, str]


def table() -> Iterator[tuple[str, set[Place]]]:
    """(the names, the places) of each row."""
    for row in re.findall(r"^\| [^|]*\| ([^|]+)\| [^|]*\|([^|]*)\|[^|]*\|$", TABLE, re.MULTILINE):
        files = {(resolve(path), symbol) for path, symbol in named(row[1])}
        yield row[0], {(file, symbol) for file, symbol in files if file is not None}


def started(file: Path) -> Iterator[tuple[Place, str | None]]:
    """(place, name) of each start of a thread; the name with `<>` for what is made at run time, None: none is given."""
    for symbol, node in _calls(ast.parse(file.read_text()), ""):
        word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if word in STARTS:
            given = {each.arg: each.value for each in node.keywords}
            value = given.get("name") or given.get("thread_name_prefix")
            yield (file, symbol), "<>" if word == "Timer" else None if value is None else _text(value)


def _calls(node: ast.AST, symbol: str) -> Iterator[tuple[str, ast.Call]]:
    """Each call with the class, function or method that it stands in; a class alone for what its `__init__` does, or what it extends."""
    for child in ast.iter_child_nodes(node):
        inner = symbol
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            outer = isinstance(node, (ast.Module, ast.ClassDef)) and getattr(child, "name", "") != "__init__"
            inner = ".".join(filter(None, (symbol, child.name))) if outer else symbol
        if isinstance(child, ast.ClassDef):
            for base in child.bases:
                if getattr(base, "attr", "") == "Thread":
                    yield inner, _initialised(child, base)
        if isinstance(child, ast.Call):
            yield symbol, child
        yield from _calls(child, inner)


def _initialised(child: ast.ClassDef, base: ast.expr) -> ast.Call:
    """How a class that extends Thread names itself."""
    calls = [node for node in ast.walk(child) if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"]
    return ast.Call(base, [], [keyword for call in calls for keyword in call.keywords])


def _text(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    parts = value.values if isinstance(value, ast.JoinedStr) else [value]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "<>" for part in parts)


PRODUCT = ("shared/millrace", "services", "deploy")


@functools.cache
def all_started() -> list[tuple[Place, str | None]]:
    return [each for top in PRODUCT for file in sorted((ROOT / top).rglob("*.py")) for each in started(file)]


def test_each_thread_is_in_the_table() -> None:
    for place, name in all_started():
        said = f"{place[0].relative_to(ROOT)}:{place[1]} starts {name}"
        assert name is not None, f"{said}, a thread without a name: nobody knows it in a stack trace"
        rows = [names for names, places in table() if place in places]
        assert rows, f"{said}, which is in no row"
        pattern = re.escape(name).replace("<>", "[^`]+")
        found = [each for names in rows for each in re.findall(r"`([^`]+)`", names)]
        assert any(re.fullmatch(pattern, each) for each in found), f"{said}, and that is none of {found}"


def test_each_place_of_the_table_starts_a_thread() -> None:
    there = {place for place, _ in all_started()}
    assert {place for _, places in table() for place in places} == there
    assert len(there) > 20
