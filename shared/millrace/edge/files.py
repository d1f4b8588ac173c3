"""Files that a graph names: sources that must be there, modules that go with the job."""

from __future__ import annotations

import ast
import glob
import hashlib
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from millrace.core.jobgraph.model import READ_FORMATS, JobGraph, Module
from millrace.core.jobgraph.problems import Problem, did_you_mean

_FILE_FORMATS = tuple(name.lower() for name in READ_FORMATS)
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_IMPORTABLE = (".py", ".zip", ".whl", ".egg")


def local_path(path: str) -> str | None:
    """The path on this machine that a source's or sink's path means; None for other storage."""
    if path.startswith("file:"):
        return urlsplit(path.replace("?", "%3F").replace("#", "%23")).path.replace("%3F", "?").replace("%23", "#")
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path


def check_files(graph: JobGraph) -> list[Problem]:
    """Sources whose local path (or glob) names nothing on this machine."""
    problems = []
    for name, vertex in graph.vertices.items():
        named = vertex.source.path if vertex.source and vertex.source.format.lower() in _FILE_FORMATS else None
        local = local_path(named) if named else None
        if local is None or "{" in local:  # Hadoop's globs know alternatives, Python's do not
            continue
        path = Path(local)
        if not path.exists() and not (re.search(r"[*?\[]", local) and any(glob.iglob(local))):  # noqa: PTH207 (absolute)
            first = next((str(parent) for parent in reversed(path.parents) if not parent.exists()), None)
            hint = near_file(path) or (f"there is no folder {first}" if first else None)
            problems.append(Problem(("vertices", name, "source", "path"), f"no such file: {local}", hint))
    return problems


def check_relative(graph: JobGraph) -> list[Problem]:
    """Relative paths of a graph that comes without a file, in whose folder they could start. They would mean a folder of the
    process that runs the vertex, where nobody looks. A source may read a file that goes with the job."""
    with_files = any(module.kind in ("file", "archive") for module in graph.modules)
    problems = []
    for name, vertex in graph.vertices.items():
        for kind, part in (("source", None if with_files else vertex.source), ("sink", vertex.sink)):
            local = local_path(part.path) if part and part.path and part.format.lower() in _FILE_FORMATS else None
            if local is not None and not local.startswith("/"):
                hint = "write all of it; only millrace submit puts the folder of a graph's file before it"
                problems.append(Problem(("vertices", name, kind, "path"), f"{part.path} is relative", hint))
    return problems


def near_file(path: Path) -> str | None:
    """A hint for a file that is not there: one beside it with nearly its name."""
    with suppress(OSError):
        return did_you_mean(path.name, sorted(each.name for each in path.parent.iterdir()))
    return None


def module_kind(name: str) -> str:
    """How a file goes with a job, by its name: py, jar, archive or file."""
    if name.endswith(_IMPORTABLE):
        return "py"
    return "jar" if name.endswith(".jar") else "archive" if name.endswith(_ARCHIVES) else "file"


def module_of(path: Path, kind: str | None = None) -> Module:
    """The module that a local file is. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return Module.model_validate(
        {"name": path.name, "sha256": digest.hexdigest(), "kind": kind or module_kind(path.name)}
    )


def target_problem(path: Path, function: str) -> str | None:
    """Why `function` is surely no name in a module's file; None if it is, or if that cannot be told. Runs nothing."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return None  # this Python may be older than the one that runs it
    names: dict[str, None] = {}
    for node in _top_level(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = None
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(dict.fromkeys((alias.asname or alias.name).partition(".")[0] for alias in node.names))
        names.update(dict.fromkeys(each.id for each in ast.walk(node) if _stored(each) and not _inner(node)))
    if function in names or "*" in names or "__getattr__" in names:
        return None
    hint = did_you_mean(function, names)
    return f"{path.name} has no function {function}" + (f" ({hint})" if hint else "")


def _top_level(tree: ast.Module) -> list[ast.stmt]:
    """The statements that run when the module is imported, also those under if, try, with and loops."""
    found: list[ast.stmt] = []
    stack: list[ast.AST] = list(reversed(tree.body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            found.append(node)
        if not _inner(node):
            stack += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]
    return found


def _inner(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
