"""Places in the code that a document names in backticks: `core/fold.py:Fold._tick`, `test_chain.py:test_offer`, `deploy/provision.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PREFIXES = {
    **dict.fromkeys(("core", "runtime", "io", "edge", "client", "cli"), "shared/millrace"),
    **dict.fromkeys(("dispatcher", "resource_manager", "job_master", "task_manager", "replay", "web"), "services"),
}
_PLACE = re.compile(r"`([\w./-]+\.(?:py|ini|yml|yaml|md|txt))(?::([A-Za-z_][\w.]*))?`")


def named(text: str) -> Iterator[tuple[str, str]]:
    """(path as it is written, symbol or "") of every place that a text names. A bare `ranking.py` is just a word."""
    for path, symbol in _PLACE.findall(text):
        if symbol or "/" in path or path.startswith("test_"):
            yield path, symbol


def resolve(path: str) -> Path | None:
    """The file that a written path means; None: there is none, or more than one."""
    first = path.partition("/")[0]
    if path.startswith("test_"):
        found = list((ROOT / "tests").rglob(path))
        return found[0] if len(found) == 1 else None
    file = ROOT / PREFIXES.get(first, ".") / path
    return file if file.is_file() else None


@cache
def symbols(file: Path) -> frozenset[str]:
    """All that a module defines: functions, classes, their methods and fields, names assigned at the top."""
    return frozenset(_defined(ast.parse(file.read_text()).body, ""))


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def source(file: Path, symbol: str) -> str:
    """The lines that define a symbol, with the docstring or comment of a name; of "" the whole file."""
    text = file.read_text()
    lines, span = text.splitlines(), _span(ast.parse(text).body, "", symbol) if symbol else None
    if span is None:
        return text
    first, last = span
    while first > 1 and lines[first - 2].strip().startswith("#"):
        first -= 1
    return "\n".join(lines[first - 1 : last])


def _span(body: list[ast.stmt], prefix: str, symbol: str) -> tuple[int, int] | None:
    for node, behind in zip(body, [*body[1:], None], strict=True):
        last = node.end_lineno or node.lineno
        if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            last = behind.end_lineno or last
        if symbol in _defined([node], prefix):
            inner = _span(node.body, f"{prefix}{node.name}.", symbol) if isinstance(node, ast.ClassDef) else None
            return inner or (node.lineno, last)
    return None


def wrong(text: str) -> list[str]:
    """One line for each place that is not there."""
    lines = []
    for path, symbol in named(text):
        file = resolve(path)
        if file is None:
            lines.append(f"{path}: no such file")
        elif symbol and symbol not in symbols(file):
            lines.append(f"{path}: defines no {symbol}")
    return lines
