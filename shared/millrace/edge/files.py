"""Files that a graph names: sources that must be there, modules that go with the job."""

from __future__ import annotations

import ast
import errno
import glob
import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from millrace.core.jobgraph.model import READ_FORMATS, JobGraph, Module
from millrace.core.jobgraph.problems import Problem, did_you_mean

_FILE_FORMATS = tuple(name.lower() for name in READ_FORMATS)
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_COMPARED_MOST = 1000  # names in a folder
_BRACKET = "Spark takes [ for the beginning of a pattern; for the character itself write \\["
_IMPORTABLE = (".py", ".zip", ".whl", ".egg")


def local_path(path: str) -> str | None:
    """The path on this machine that a source's or sink's path means; None for other storage."""
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) else path


def check_files(graph: JobGraph) -> list[Problem]:
    """Sources whose local path (or glob) names nothing on this machine; as a warning, a path that is there and as a glob names nothing."""
    problems = []
    for name, vertex in graph.vertices.items():
        named = vertex.source.path if vertex.source and vertex.source.format.lower() in _FILE_FORMATS else None
        local = local_path(named) if named else None
        if local is None or any(each in local for each in ("{", "[^", "\\")):  # Python's globs know none of these, Hadoop's do
            continue
        path, place = Path(local), ("vertices", name, "source", "path")
        if _matches(path) or ("[" not in local and _is_there(path)):
            continue
        if _is_there(path):
            problems.append(Problem(place, f"no file matches the pattern {local}", _BRACKET, warning=True))
            continue
        first = next((str(parent) for parent in reversed(path.parents) if not _is_there(parent)), None)
        hint = near_file(path) or (f"there is no folder {first}" if first else _BRACKET if "[" in local else None)
        problems.append(Problem(place, f"no such file: {local}", hint))
    return problems


def check_relative(graph: JobGraph) -> list[Problem]:
    """Relative paths of a graph that comes without a file, in whose folder they could start. They would mean a folder of the
    process that runs the vertex, where nobody looks. A source may read a file that goes with the job."""
    with_files = any(module.kind in ("file", "archive") for module in graph.modules)
    problems = []
    for name, vertex in graph.vertices.items():
        for kind, part in (("source", None if with_files else vertex.source), ("sink", vertex.sink)):
            path = part.path if part and part.format.lower() in _FILE_FORMATS else None
            local = local_path(path) if path else None
            if local is not None and not local.startswith("/"):
                hint = "write all of it; only millrace submit puts the folder of a graph's file before it"
                problems.append(Problem(("vertices", name, kind, "path"), f"{path} is relative", hint))
    return problems


def _matches(path: Path) -> bool:
    """Whether a glob names something. Of one with wildcards in several folders only the first folders are looked at: it could walk
    through a whole disk."""
    wild = [index for index, part in enumerate(path.parts) if re.search(r"[*?\[]", part)]
    if len(wild) > 1:
        return _is_there(Path(*path.parts[: wild[0]]))
    return bool(wild) and any(glob.iglob(str(path)))  # noqa: PTH207 (absolute)


def _is_there(path: Path) -> bool:
    """Whether there is such a file; also where that cannot be told, because a folder may not be looked into."""
    try:
        return path.exists()
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG


def near_file(path: Path) -> str | None:
    """A hint for a file that is not there: one beside it with nearly its name."""
    with suppress(OSError):
        return did_you_mean(path.name, sorted(each.name for each in islice(path.parent.iterdir(), _COMPARED_MOST)))
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
    names = dict.fromkeys(name for node in _top_level(tree) for name in _bound(node))
    if function in names or "*" in names or "__getattr__" in names:
        return None
    hint = did_you_mean(function, names)
    return f"{path.name} has no function {function}" + (f" ({hint})" if hint else "")


def inputs_problem(path: Path, function: str, inputs: Sequence[str]) -> str | None:
    """Why `function` of a module's file surely cannot take a vertex's inputs; None if it can, or if that cannot be told. Runs nothing.

    The rules are those by which a slot calls it (task_manager/slot/attempt/vertices.py). `spark`, `parameters` and inputs go to
    parameters of their names. One input may go to the parameter that is left, more of them only to `*args` or `**kwargs`.
    """
    with suppress(SyntaxError, ValueError, RecursionError):
        tree = ast.parse(path.read_bytes())
        match [node for node in _top_level(tree) if {function, "*"} & _bound(node).keys()]:
            case [ast.FunctionDef(decorator_list=[]) as only]:
                return _misfit(only.args, function, inputs)
    return None


def _misfit(args: ast.arguments, function: str, inputs: Sequence[str]) -> str | None:
    placed = [each.arg for each in (*args.posonlyargs, *args.args)]
    optional = {*placed[len(placed) - len(args.defaults) :]} if args.defaults else set()
    optional |= {each.arg for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default is not None}
    names = [*placed, *(each.arg for each in args.kwonlyargs)]
    rest = [name for name in inputs if name not in names]
    left = [name for name in names if name not in inputs and name not in ("spark", "parameters")]
    free = [name for name in left if name in placed and not (name in optional and (args.vararg or args.kwarg))]
    if len(rest) == 1 and free:
        left.remove(free[0])
        rest = []
    missing = [name for name in left if name not in optional]
    if not missing and (not rest or args.vararg or args.kwarg):
        return None
    what = f"nothing for {', '.join(missing)}" if missing else f"no parameter for {', '.join(rest)}"
    signature = f"{function}({ast.unparse(args)})"
    return f"{signature} cannot take the inputs ({', '.join(inputs) or 'none'}): {what}; parameters are named as the inputs are"


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


def _bound(node: ast.stmt) -> dict[str, None]:
    """The names that a statement of a module gives a value, "*" for those of a whole other module."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name: None}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return dict.fromkeys((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return dict.fromkeys(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))


def _inner(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
