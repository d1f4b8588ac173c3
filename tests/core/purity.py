"""Finds in a module's text what a core must not do: import what is not pure, call what is not a function of its arguments,
iterate a set. For reading, not for proving: a determined writer gets past it, an absent-minded one does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

STANDARD_LIBRARY = frozenset({
    "__future__", "abc", "base64", "bisect", "collections", "copy", "dataclasses", "difflib", "enum", "functools", "hashlib",
    "heapq", "itertools", "json", "math", "operator", "posixpath", "re", "string", "textwrap", "types", "typing", "zlib",
})  # fmt: skip
"""What of it a core may import: functions of their arguments, and nothing that looks outside."""

IMPURE_CALLS = frozenset({
    "open", "print", "input", "breakpoint", "exec", "eval", "compile", "__import__", "globals", "locals", "vars",
    "id",  # an address
    "hash",  # of a str another one in each process
    "object",  # its repr has its address
})  # fmt: skip

ORDERS = frozenset(
    {"list", "tuple", "iter", "enumerate", "next", "zip", "map", "filter", "reversed", "dict", "fromkeys", "join"}
)
"""Calls that make an order of what they are given; sorted, sum, len, min, max, any and all do not show one."""

SETS = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})


def cores(root: Path) -> list[Path]:
    """All modules below a folder called `core`, of the product."""
    tops = [root / top for top in ("shared", "services", "deploy")]
    return sorted(path for top in tops for path in top.rglob("*.py") if "core" in path.relative_to(top).parts[:-1])


def problems(text: str, module: str) -> Iterator[str]:
    """One line for each thing that is wrong. module: its dotted name; its package is a core or below one."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in _imported(node, module):
            if not _allowed(name, module):
                yield f"line {node.lineno}: imports {name}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"line {node.lineno}: calls {node.func.id}()"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield f"line {node.lineno}: changes a variable outside its function"
    for scope in [
        tree,
        *(n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))),
    ]:
        yield from _sets(scope)


def _imported(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module.split(".")[: -node.level] if node.level else []
        yield ".".join([*package, *([node.module] if node.module else [])])


def _allowed(name: str, module: str) -> bool:
    first, *rest = name.split(".")
    if first in STANDARD_LIBRARY or first in ("pydantic", "pydantic_core"):
        return True
    own = module.split(".")[: module.split(".").index("core") + 1]
    return [first, *rest][: len(own)] == own or [first, *rest][:2] == ["millrace", "core"]


# ---- sets whose order shows


def _sets(scope: ast.AST) -> Iterator[str]:
    """Places of one function (or a module's top) where a set is iterated."""
    nodes = list(_of_scope(scope))
    names = {name for node in nodes for name in _set_names(node)}
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
        names |= {each.arg for each in arguments if each.annotation is not None and _is_set_type(each.annotation)}
    for node in nodes:
        for iterated in _iterated(node):
            if _is_set(iterated, names):
                yield f"line {iterated.lineno}: the order of a set shows; sort it, or use a dict"
        if _is_bare_pop(node) and _is_set(node.func.value, names):
            yield f"line {node.lineno}: takes any element of a set"


def _of_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _of_scope(child)


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.iter
    elif isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp)):
        # what a set comprehension makes has no order to show
        yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in ORDERS:
            yield from node.args


def _is_bare_pop(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "pop"
        and not node.args
    )


def _set_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Assign) and _is_set(node.value, set()):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_set_type(node.annotation):
        yield node.target.id


def _is_set_type(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Subscript):
        return _is_set_type(annotation.value)
    if isinstance(annotation, ast.BinOp):
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    return isinstance(annotation, ast.Name) and annotation.id in SETS


def _is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)):
        return True
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in ("set", "frozenset")
        known = ("union", "intersection", "difference", "symmetric_difference", "copy")
        return isinstance(node.func, ast.Attribute) and node.func.attr in known and _is_set(node.func.value, names)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
        return _is_set(node.left, names) or _is_set(node.right, names) or _is_keys(node.left) or _is_keys(node.right)
    return False


def _is_keys(node: ast.expr) -> bool:
    """`.keys()`: with | & - ^ it makes a set."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "items")
