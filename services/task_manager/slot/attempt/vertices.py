"""The vertices of an attempt: from their inputs' DataFrames to their own.

A vertex makes a plan; nothing runs before the attempt's outputs ask for rows, except what a user's Python itself asks for.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..attempt_wire import AttemptSpec, InputSpec, SourceSpec, SparkAppSpec, VertexSpec
from . import carried, exchange, frames, shares
from .errors import PROGRESS, AttemptError
from .findings import Findings
from .own_time import SPENT

SUBSTITUTE = "spark.sql.variable.substitute"
"""Spark puts settings, and what is none is empty, in for each ${...} of a query; parameters are in already, and what still looks
like one is text."""


class Chain:
    """The vertices of one attempt, joined into one Spark plan; `frames` holds the DataFrame of each."""

    def __init__(self, spec: AttemptSpec, session: Any, modules: str, findings: Findings) -> None:
        self.spec, self.session, self.modules, self.findings = spec, session, modules, findings
        self.frames: dict[str, Any] = {}
        self.sessions = [session]
        # Of its own, before user code can register or set anything in the attempt's session.
        user_code = any(map(runs_user_code, spec["vertices"]))
        self.bare = frames.clone(session) if user_code else session
        self._one_query = not user_code and sum(bool(vertex.get("sql")) for vertex in spec["vertices"]) == 1
        if SUBSTITUTE not in spec["conf"]:
            self.bare.conf.set(SUBSTITUTE, "false")

    def add(self, vertex: VertexSpec) -> Any:
        """Builds a vertex whose inputs are built; returns its DataFrame (None for a spark_app)."""
        with PROGRESS.at(vertex["id"]):
            inputs = {alias: self._input(alias, edge) for alias, edge in vertex["inputs"].items()}
            if source := source_of(vertex):
                df = self._source(vertex, source)
            elif sql := vertex.get("sql"):
                df = self.sql(sql, inputs)
            elif python := vertex.get("python"):
                self.findings.of_known_settings = False
                with SPENT.at("compute"):  # it may run queries of its own
                    df = call(vertex["id"], python, inputs, self.session, self.spec["parameters"])
                check_declared(vertex, df)
            elif vertex.get("sink"):
                df = only_input(vertex, inputs)
            elif app := vertex.get("spark_app"):
                with SPENT.at("compute"):
                    run_script(app, self.modules)
                df = None
            else:
                raise AttemptError("UNKNOWN_VERTEX_KIND", f"Vertex {vertex['id']!r} is of no kind that this slot knows")
            self.frames[vertex["id"]] = df
            return df

    def own_session(self) -> Any:
        """A session with the attempt's settings and no views. The attempt's own if nobody else makes or sees views there: a clone takes
        as long as a tenth of a small query."""
        if self._one_query:
            return self.session
        session = frames.clone(self.bare)
        self.sessions.append(session)
        return session

    def sql(self, text: str, inputs: dict[str, Any]) -> Any:
        """A query over exactly these views."""
        session = self.own_session()
        for alias, df in inputs.items():
            frames.in_session(df, session).createOrReplaceTempView(frames.quoted(alias))
        return session.sql(text)

    def _input(self, alias: str, edge: InputSpec) -> Any:
        if edge["edge"] == "chained":
            df = self.frames[alias]
            if edge.get("shares", 0) > 1:
                df = frames.in_session(df, self.bare)  # see `exchange.write`
                return df.filter(exchange.is_of_share(df, edge, alias))
            if edge.get("keys"):
                exchange.key_types(df, edge["keys"], alias)  # a key that is wrong with two shares is wrong with one
            return df
        with SPENT.at("exchange"):
            return exchange.read(self.session, edge)

    def _source(self, vertex: VertexSpec, source: SourceSpec) -> Any:
        name, parallelism = vertex["id"], vertex["parallelism"]
        pinned = self.spec["pinned"].get(name)
        if pinned is None and (parallelism > 1 or vertex.get("copied")):
            message = f"Source {name!r} is read by several subtasks and no plan attempt pinned its files"
            raise AttemptError("SOURCE_NOT_PLANNED", message, kind="infrastructure")
        if pinned is None:
            return self.findings.open_source(self.session, source)
        if parallelism > 1:
            return shares.read_share(
                self.session, name, source, pinned, self.spec["subtask"], parallelism, self.columns(name), self._filter(name)
            )
        if vertex.get("copied"):
            return shares.read_whole(self.session, name, source, pinned)
        return shares.open_planned(self.session, source, pinned["schema"])

    def handed_on(self, vertex: VertexSpec) -> Any:
        """The DataFrame of what other attempts take of a vertex."""
        name = vertex["id"]
        df, columns, needed = self.frames[name], self.columns(name), self._filter(name)
        if needed is not None and not (vertex.get("source") and vertex["parallelism"] > 1):  # a share was read so
            df = df.filter(needed)
        columns = carried.chosen(df.sparkSession, frames.schema_json(df), columns) if columns == [] else columns
        return df if columns is None else df.select(*map(frames.quoted, columns))

    def columns(self, vertex: str) -> list[str] | None:
        """The columns of a vertex that anybody reads; None for all of them."""
        planned = self.spec["pinned"].get(vertex)
        return None if planned is None or self._is_shown(vertex) else planned.get("columns")

    def _filter(self, vertex: str) -> str | None:
        """SQL for the rows of a vertex that anybody takes; None for all of them, and where user code may have changed what it means."""
        planned = self.spec["pinned"].get(vertex)
        if planned is None or self._is_shown(vertex) or not self.findings.of_known_settings:
            return None
        return planned.get("filter")

    def _is_shown(self, vertex: str) -> bool:
        return any(o["vertex"] == vertex and o["edge"] in ("result", "sink") for o in self.spec["outputs"])


def runs_user_code(vertex: VertexSpec) -> bool:
    """Whether it is Python of the user's, which is given the attempt's session."""
    return bool(vertex.get("python") or vertex.get("spark_app"))


def source_of(vertex: VertexSpec) -> SourceSpec | None:
    """The source that a vertex is, with the columns that it declares; None: it is another kind."""
    source = vertex.get("source")
    if not source:
        return None
    return {**source, "schema": source.get("schema") or vertex.get("schema")}


def only_input(vertex: VertexSpec, inputs: dict[str, Any]) -> Any:
    """The one input of a sink."""
    if len(inputs) != 1:
        raise AttemptError("SINK_INPUTS", f"Sink {vertex['id']!r} has {len(inputs)} inputs and takes one")
    return next(iter(inputs.values()))


def load(python: str) -> Callable[..., Any]:
    """The function of a python vertex, by its "module:function"."""
    module_name, _, function_name = python.partition(":")
    module = importlib.import_module(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        known = sorted(n for n, v in vars(module).items() if inspect.isfunction(v) and not n.startswith("_"))
        raise AttemptError(
            "FUNCTION_NOT_FOUND",
            f"Module {module_name} has no function {function_name}; it has: {', '.join(known) or 'none'}",
        )
    return function  # type: ignore[no-any-return]  # it is callable


def call(vertex: str, python: str, inputs: dict[str, Any], session: Any, parameters: dict[str, str]) -> Any:
    """Calls the function `python` of a vertex.

    An input goes to the parameter of its name. A single input without such a parameter takes the one that is left. Several go to
    `*args` in the graph's order or to `**kwargs` by their names, never to other names by their order. Otherwise a renamed input would
    change the result without any message. `spark` and `parameters` are given to a function that names them. It must return a DataFrame.
    """
    from pyspark.sql import DataFrame

    function = load(python)
    inputs = {alias: frames.in_session(df, session) for alias, df in inputs.items()}
    bound = bind(vertex, python, function, inputs, {"spark": session, "parameters": dict(parameters)})
    result = function(*bound.args, **bound.kwargs)
    if not isinstance(result, DataFrame):
        kind = type(result)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        hint = "; spark.createDataFrame(...) makes one" if name.endswith("DataFrame") or name == "list" else ""
        raise AttemptError(
            "NOT_A_DATAFRAME",
            f"{python} returned {'nothing' if result is None else f'a {name}'}; it must return a Spark DataFrame{hint}",
            kind="user",
        )
    return result


def bind(
    vertex: str, python: str, function: Callable[..., Any], inputs: dict[str, Any], own: dict[str, Any]
) -> inspect.BoundArguments:
    """What goes to which parameter; `own` are the names that are no inputs. `edge/files.py:inputs_problem` tells as much without running
    anything. Raises AttemptError."""
    signature = inspect.signature(function)
    named = {n: p for n, p in signature.parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    given: dict[str, Any] = {name: value for name, value in own.items() if name in named and name not in inputs}
    given.update({alias: df for alias, df in inputs.items() if alias in named})
    rest = [alias for alias in inputs if alias not in named]
    several = [n for n, p in signature.parameters.items() if p.kind is p.VAR_POSITIONAL]
    others = [n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD]
    free = [n for n, p in named.items() if n not in given and p.kind is not p.KEYWORD_ONLY]
    if several or others:
        free = [n for n in free if named[n].default is inspect.Parameter.empty]
    alone = free and len(rest) == 1
    if alone:
        given[free[0]] = inputs[rest[0]]
    left = [] if alone else rest
    missing = [n for n, p in named.items() if n not in given and p.default is p.empty]
    if missing or (left and not several and not others):
        raise AttemptError(
            "WRONG_PARAMETERS",
            f"{python}{signature} cannot take the inputs of {vertex!r} ({', '.join(inputs) or 'none'}): "
            + (f"nothing for {', '.join(missing)}" if missing else f"no parameter for {', '.join(left)}")
            + ("; parameters are named as the inputs are" if len(left) > 1 else ""),
            kind="user",
        )
    if left and several:
        given[several[0]] = tuple(inputs[alias] for alias in left)
    elif left:
        given[others[0]] = {alias: inputs[alias] for alias in left}
    ordered = {name: given[name] for name in signature.parameters if name in given}
    return inspect.BoundArguments(signature, ordered)


def check_declared(vertex: VertexSpec, df: Any) -> None:
    """Raises AttemptError if a python vertex returned other columns than it declares: others were planned with those."""
    ddl = vertex.get("schema")
    if not ddl:
        return
    declared = frames.python_schema(frames.ddl_json(df.sparkSession, ddl))
    wanted = [f"{f.name} {f.dataType.simpleString()}" for f in declared.fields]
    found = [f"{f.name} {f.dataType.simpleString()}" for f in df.schema.fields]
    if wanted != found:
        raise AttemptError(
            "SCHEMA_NOT_AS_DECLARED",
            f"{vertex['python']} returned ({', '.join(found)}); {vertex['id']!r} declares ({', '.join(wanted)})",
            kind="user",
        )


def run_script(app: SparkAppSpec, modules: str) -> None:
    """Runs a script as spark-submit does: `__main__`, its arguments in `sys.argv`, its folder on `sys.path`.

    `sys.exit()` and `sys.exit(0)` are a good end; another code leaves as SystemExit.
    """
    path = str(Path(modules) / app["script"])
    if not Path(path).is_file():
        raise AttemptError(
            "SCRIPT_NOT_FOUND", f"The script {app['script']!r} is none of the job's modules", kind="user"
        )
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__)
    # Stays after the script: what it pickles by reference, and its threads, look for `__main__`.
    sys.modules["__main__"], sys.argv = main, [path, *(str(arg) for arg in app.get("args") or [])]
    try:
        exec(code, main.__dict__)  # noqa: S102 (the user's script is what this process is for)
    except SystemExit as exit_call:
        if exit_call.code not in (None, 0, False):
            raise
