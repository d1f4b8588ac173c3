"""Validates a raw graph once, at the edge: every mistake at once, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic import ValidationError

from .model import (
    DEFAULT_LIMITS,
    ENV_RESERVED,
    ENV_RULE,
    KINDS,
    READ_FORMATS,
    Edge,
    JobGraph,
    Limits,
    Source,
    Vertex,
    as_count,
    as_text,
    is_env_name,
    without_dots,
)
from .parameters import Substitution
from .parse import measure
from .problems import HINTED_MOST, Place, Problem, bounded, did_you_mean, found, kinds_of, nearest, structure_problems
from .restarts import restart_problems

_FIELDS = [field.alias or name for name, field in Vertex.model_fields.items()]
_NO_SINK_OPTIONS = {
    **dict.fromkeys(
        ("partitionby", "bucketby", "sortby", "clusterby"), "a sink writes one folder without partitions; several may share the rows"
    ),
    "mode": "write it beside options",
}
"""What Spark's writer is told by its methods alone: as options, which Spark takes in any case of letters, they would do nothing."""


@dataclass(frozen=True)
class Seen:
    """What can be known of a raw vertex, even if parts of it are wrong: those are None or left out."""

    id: str
    kinds: list[str]
    parallelism: int | None
    edges: dict[str, Edge | None]
    raw: dict[str, Any]

    def part(self, kind: str) -> dict[str, Any]:
        value = self.raw.get(kind)
        return value if isinstance(value, dict) else {}


def validate(
    raw: object, limits: Limits = DEFAULT_LIMITS, parameters: Mapping[str, str] | None = None
) -> JobGraph | list[Problem]:
    """The graph with its parameters put in, or all that is wrong with it (never an empty list).

    raw: what a client wrote (dicts, lists, scalars). parameters: values that override the declared ones. What comes out
    is for services: they store it with `dump` and read it with `JobGraph.model_validate`; validating it again would put
    parameters in twice.
    """
    if not isinstance(raw, dict):
        return [Problem((), f"a job graph is a mapping with name and vertices, not {found(raw)}")]
    reason = measure(raw, limits)
    if reason is not None:
        return [Problem((), f"the graph is {reason}" if reason[0] in "nl" else reason)]
    too_many = list(_too_many(raw, limits))
    if too_many:
        return too_many  # looking further could cost any amount of time
    values, problems = _values(raw.get("parameters"), parameters or {})
    resolved, unresolved = _resolve(raw, values, limits)
    graph = None
    try:
        graph = JobGraph.model_validate(resolved)
    except ValidationError as error:
        problems += structure_problems(error)
    seen = see(resolved.get("vertices"))
    problems = bounded(chain(problems, unresolved, _rules(resolved, seen, limits)))
    return problems if graph is None or problems else graph


def readable(
    raw: object, problems: list[Problem], limits: Limits = DEFAULT_LIMITS, parameters: Mapping[str, str] | None = None
) -> JobGraph:
    """Of a graph that `validate` found these problems in, what can be looked at further all the same, so that a reader hears of every
    mistake at once: queries, sources and settings. Never to be stored or run: vertices have nothing else, and `inputs` None where it
    cannot be known what they are."""
    whole = isinstance(raw, dict) and measure(raw, limits) is None and not any(_too_many(raw, limits))
    places = [problem.place for problem in problems]
    vertices: dict[str, Vertex] = {}
    conf: dict[str, str] = {}
    if isinstance(raw, dict) and whole:
        values, _ = _values(raw.get("parameters"), parameters or {})
        resolved, _ = _resolve(raw, values, limits)
        vertices = {each.id: _readable(each, places) for each in see(resolved.get("vertices")).values()}
        given = resolved.get("conf")
        conf = {str(key): str(as_text(value)) for key, value in given.items()} if isinstance(given, dict) else {}
    master = raw.get("master") if isinstance(raw, dict) else None
    return JobGraph.model_construct(vertices=vertices, conf=conf, master=master if isinstance(master, str) else None)


def _readable(vertex: Seen, places: list[Place]) -> Vertex:
    place: Place = ("vertices", vertex.id)
    sql, inputs = vertex.raw.get("sql"), vertex.raw.get("inputs", {})
    try:
        source = Source.model_validate(vertex.part("source"))
    except ValidationError:
        source = None
    misnamed = "inputs" not in vertex.raw and any(field not in _FIELDS for field in vertex.raw)
    return Vertex.model_construct(
        sql=sql if isinstance(sql, str) and (*place, "sql") not in places else None,
        source=source if not any(each[:3] == (*place, "source") for each in places) else None,
        inputs=inputs if isinstance(inputs, dict) and not misnamed else None,
    )


def _resolve(raw: dict[str, Any], values: dict[str, str], limits: Limits) -> tuple[dict[str, Any], list[Problem]]:
    """The raw graph with `values` as its parameters and in its vertices."""
    substitution = Substitution(values, limits)
    resolved = {**raw}
    if isinstance(raw.get("parameters"), dict):
        resolved["parameters"] = {
            name: values[name] if isinstance(as_text(value), str) else value
            for name, value in raw["parameters"].items()
        }
    if isinstance(raw.get("vertices"), dict):
        resolved["vertices"] = substitution.put(raw["vertices"], ("vertices",))
    return resolved, substitution.problems


def _rules(raw: dict[str, Any], seen: dict[str, Seen], limits: Limits) -> Iterator[Problem]:
    """What types alone do not say."""
    yield from _ids(seen)
    for vertex in seen.values():
        yield from vertex_problems(vertex, limits)
    yield from _edges(seen)
    yield from _cycles(seen)
    yield from _sinks(seen)
    yield from restart_problems(raw.get("restart"))
    yield from _modules(raw.get("modules"), seen)
    yield from environment_problems(raw.get("env"), limits)
    yield from _result(raw.get("result"), seen)
    if raw.get("together") is True and raw.get("speculative") not in (None, False):
        hint = "a second attempt cannot take the place of a process that the others wait for"
        yield Problem(("speculative",), "does not go with together", hint)


def _values(declared: object, overrides: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    """The parameters' values as text, and the overrides that name none."""
    known = declared if isinstance(declared, dict) else {}
    problems = []
    for name in overrides:
        if name not in known:
            hint = did_you_mean(name, [str(each) for each in known], _listing("parameters", known))
            problems.append(Problem(("parameters",), f"{name} is given a value but not declared", hint))
    merged = {**known, **{name: value for name, value in overrides.items() if name in known}}
    # A value of a wrong type is pydantic's to report; what uses it must not be called unknown.
    return {
        str(name): text if isinstance(text := as_text(value), str) else "" for name, value in merged.items()
    }, problems


def _listing(what: str, names: Mapping[str, object]) -> str:
    return f"{what} are {', '.join(str(name) for name in names)}" if names else f"the graph has no {what}"


def see(vertices: object) -> dict[str, Seen]:
    """Raw vertices, or stored ones, by their ids."""
    seen: dict[str, Seen] = {}
    for name, raw in vertices.items() if isinstance(vertices, dict) else ():
        vertex = raw if isinstance(raw, dict) else {}
        count = as_count(vertex.get("parallelism", 1))
        inputs = vertex.get("inputs")
        seen[str(name)] = Seen(
            id=str(name),
            kinds=kinds_of(vertex) if isinstance(raw, dict) else ["?"],  # no mapping: reported by the model
            parallelism=count if isinstance(count, int) and not isinstance(count, bool) and count >= 1 else None,
            edges={str(alias): _edge(text) for alias, text in inputs.items()} if isinstance(inputs, dict) else {},
            raw=vertex,
        )
    return seen


def _edge(text: object) -> Edge | None:
    try:
        return Edge.parse(text)
    except ValueError:
        return None  # reported by the model


def _too_many(raw: dict[str, Any], limits: Limits) -> Iterator[Problem]:
    for field in ("vertices", "parameters", "modules", "env", "sources"):
        limit = {"env": limits.variables, "sources": limits.vertices}.get(field) or getattr(limits, field)
        count = _length(raw.get(field))
        if count > limit:
            yield Problem((field,), f"{count} are more than the {limit} allowed")
    vertices = raw["vertices"].values() if isinstance(raw.get("vertices"), dict) else ()
    edges = sum(_length(vertex.get("inputs")) for vertex in vertices if isinstance(vertex, dict))
    if edges > limits.edges:
        yield Problem(("vertices",), f"{edges} inputs in all are more than the {limits.edges} allowed")


def _length(value: object) -> int:
    return len(value) if isinstance(value, (dict, list)) else 0


def _ids(seen: dict[str, Seen]) -> Iterator[Problem]:
    """Spark's views do not tell upper from lower case."""
    first: dict[str, str] = {}
    for name in seen:
        other = first.setdefault(name.lower(), name)
        if other != name:
            yield Problem(("vertices", name), f"duplicate id: Spark does not tell it from {other}")


def vertex_problems(vertex: Seen, limits: Limits) -> Iterator[Problem]:
    """The rules of one vertex by itself."""
    place = ("vertices", vertex.id)
    yield from _kind(vertex)
    n = vertex.parallelism
    if n is not None and n > limits.parallelism:
        yield Problem((*place, "parallelism"), f"must be at most {limits.parallelism}, not {n}")
    sql = vertex.raw.get("sql")
    if isinstance(sql, str) and len(sql.encode()) > limits.sql_bytes:
        yield Problem((*place, "sql"), f"{len(sql.encode())} bytes are more than the {limits.sql_bytes} allowed")
    kind = vertex.kinds[0] if len(vertex.kinds) == 1 else None
    if vertex.raw.get("schema") is not None and kind in ("source", "sql", "sink", "spark_app"):
        hint = "write it under source" if kind == "source" else None
        yield Problem((*place, "schema"), "only a python vertex declares a schema here", hint)
    if kind in ("source", "spark_app") and vertex.edges:
        yield Problem((*place, "inputs"), f"a {kind} has no inputs")
    if kind == "sink" and len(vertex.edges) != 1:
        yield Problem((*place, "inputs"), f"a sink has exactly one input, not {len(vertex.edges)}")
    if kind == "spark_app" and n is not None and n != 1:
        yield Problem((*place, "parallelism"), f"a spark_app has parallelism 1, not {n}")
    if kind == "source":
        yield from _source(vertex)
    # A sink without inputs is reported above; an edge that is not understood may be any.
    replicated = all(edge is not None and edge.kind == "broadcast" for edge in vertex.edges.values())
    if n is not None and n > 1 and replicated and (kind in ("sql", "python") or (kind == "sink" and vertex.edges)):
        message = f"parallelism {n} needs an input by forward or hash: else every subtask computes the same rows"
        yield Problem((*place, "parallelism"), message)
    hashes = {alias: edge for alias, edge in vertex.edges.items() if edge is not None and edge.kind == "hash"}
    if len({len(edge.keys) for edge in hashes.values()}) > 1:
        counts = ", ".join(f"{alias} {len(edge.keys)}" for alias, edge in hashes.items())
        message = f"hash inputs of one vertex need equally many columns, so that equal rows meet: {counts}"
        yield Problem((*place, "inputs"), message)


def _kind(vertex: Seen) -> Iterator[Problem]:
    place = ("vertices", vertex.id)
    if len(vertex.kinds) > 1:
        yield Problem(place, f"has several kinds: {', '.join(vertex.kinds)}", "a vertex is exactly one of them")
    if vertex.kinds:
        return  # nearly always: looking for what is nearest costs more than all the rest
    misspelt = any(nearest(field, _FIELDS) in KINDS for field in list(vertex.raw)[:20])  # reported as unknown field
    if not misspelt:
        yield Problem(place, "has no kind", f"a vertex is exactly one of {', '.join(KINDS)}")


def _source(vertex: Seen) -> Iterator[Problem]:
    place = ("vertices", vertex.id)
    source = vertex.part("source")
    kind = source.get("format")
    if not isinstance(kind, str) or not kind:
        return
    if kind.lower() in {name.lower() for name in READ_FORMATS}:
        if source.get("path") is None:
            yield Problem((*place, "source"), f"path is missing: {kind} is read from files")
    elif vertex.parallelism is not None and vertex.parallelism > 1:
        hint = did_you_mean(kind, READ_FORMATS, f"file formats are {', '.join(READ_FORMATS)}")
        yield Problem(
            (*place, "parallelism"), f"must be 1: only files are read in shares, and {kind} is no file format", hint
        )


def _edges(seen: dict[str, Seen]) -> Iterator[Problem]:
    """The rules between two vertices."""
    unknown = 0
    for vertex in seen.values():
        for alias, edge in vertex.edges.items():
            place = ("vertices", vertex.id, "inputs", alias)
            producer = seen.get(alias)
            if producer is None:
                unknown += 1
                others = [name for name in seen if name != vertex.id and unknown <= HINTED_MOST]
                hint = did_you_mean(alias, others, _listing("vertices", seen))
                yield Problem(place, f"no vertex is called {alias}", hint)
                continue
            if producer.kinds == ["sink"] or producer.kinds == ["spark_app"]:
                yield Problem(place, f"{alias} is a {producer.kinds[0]} and has no rows to read")
            if edge is None or edge.kind != "forward" or None in (producer.parallelism, vertex.parallelism):
                continue
            if producer.parallelism != vertex.parallelism:
                counts = f"{alias} has {producer.parallelism}, {vertex.id} has {vertex.parallelism}"
                message = f"forward needs equal parallelism: {counts}"
                yield Problem(place, message, "use hash(column, ...) or broadcast")


def _cycles(seen: dict[str, Seen]) -> Iterator[Problem]:
    """Each knot of vertices that wait for each other, named by one way round it."""
    left = {name: [alias for alias in vertex.edges if alias in seen] for name, vertex in seen.items()}
    while True:
        waiting = _waiting(left)
        if not waiting:
            return
        name = next(iter(waiting))
        way: list[str] = []
        while name not in way:
            way.append(name)
            name = next(alias for alias in left[name] if alias in waiting)
        way = way[way.index(name) :][::-1]  # in the direction of the rows
        start = min(range(len(way)), key=lambda index: list(seen).index(way[index]))
        way = way[start:] + way[:start]
        yield Problem(("vertices", way[0], "inputs"), f"a cycle: {' -> '.join([*way, way[0]])}")
        left = {
            name: [alias for alias in others if alias not in way] for name, others in left.items() if name not in way
        }


def _waiting(reads: dict[str, list[str]]) -> dict[str, None]:
    """The vertices that a cycle keeps from ever starting, in their order."""
    waiting = dict.fromkeys(reads)
    while True:
        free = [name for name in waiting if not any(other in waiting for other in reads[name])]
        if not free:
            return waiting
        for name in free:
            del waiting[name]


def _sinks(seen: dict[str, Seen]) -> Iterator[Problem]:
    first: dict[str, Seen] = {}
    for vertex in seen.values():
        yield from _sink_options(vertex)
        path = without_dots(vertex.part("sink").get("path"))
        if not isinstance(path, str):
            continue
        if path and path.rstrip("/")[-1:] in ("", ":"):
            yield Problem(("vertices", vertex.id, "sink", "path"), f"must be a folder below {path}")
        other = first.setdefault(path.rstrip("/"), vertex)
        if other is not vertex and not all(each.part("sink").get("mode") == "append" for each in (other, vertex)):
            hint = "two sinks share a path only if both append"
            yield Problem(("vertices", vertex.id, "sink", "path"), f"{other.id} writes the same path", hint)
    for path, inner in first.items():
        for folder, outer in first.items():
            if path.startswith(f"{folder}/") and outer.part("sink").get("mode") != "append":
                what = f"it lies in the folder of {outer.id}, which is to hold its files alone"
                hint = f"give it a folder beside that one, or let {outer.id} append"
                yield Problem(("vertices", inner.id, "sink", "path"), what, hint)


def _sink_options(vertex: Seen) -> Iterator[Problem]:
    options = vertex.part("sink").get("options")
    for key in options if isinstance(options, dict) else ():
        hint = _NO_SINK_OPTIONS.get(str(key).lower())
        if hint is not None:
            yield Problem(("vertices", vertex.id, "sink", "options", key), "is no option of a sink and would have no effect", hint)


def _modules(modules: object, seen: dict[str, Seen]) -> Iterator[Problem]:
    names: dict[str, int] = {}
    for index, module in enumerate(modules if isinstance(modules, list) else ()):
        if isinstance(module, dict) and module.get("kind") == "env":
            continue  # it is no file, and clashes with none
        name = module.get("name") if isinstance(module, dict) else None
        if isinstance(name, str) and names.setdefault(name, index) != index:
            yield Problem(("modules", index), f"a second module called {name}")
    for vertex in seen.values():
        script = vertex.part("spark_app").get("script")
        if isinstance(script, str) and script and script not in names:
            hint = did_you_mean(script, names, "`millrace submit` uploads it and adds it to modules")
            yield Problem(("vertices", vertex.id, "spark_app", "script"), f"no module is called {script}", hint)


def environment_problems(env: object, limits: Limits = DEFAULT_LIMITS) -> Iterator[Problem]:
    """The rules of variables beyond their names' form. No value is told."""
    variables = {str(name): str(as_text(value)) for name, value in env.items()} if isinstance(env, dict) else {}
    if len(variables) > limits.variables:
        yield Problem(("env",), f"{len(variables)} are more than the {limits.variables} allowed")
    for number, (name, value) in enumerate(variables.items(), 1):
        if not is_env_name(name):  # it may be part of a secret
            yield Problem(("env",), f"the name of variable {number} is none: {ENV_RULE}")
            continue
        if name.startswith(ENV_RESERVED):
            yield Problem(("env", name), "cannot be set: names that begin like this are the slot's own", f"call it otherwise than {name}")
        if "\0" in value:
            yield Problem(("env", name), "its value holds a NUL character")
        if any("\ud800" <= character <= "\udfff" for character in value):
            yield Problem(("env", name), "its value is no UTF-8", "put it into a file, and give its name")
    size = sum(len(name.encode(errors="replace")) + len(value.encode(errors="replace")) for name, value in variables.items())
    if size > limits.variables_bytes:
        yield Problem(("env",), f"{size} bytes are more than the {limits.variables_bytes} allowed", "put it into a file, and give its name")


def _result(result: object, seen: dict[str, Seen]) -> Iterator[Problem]:
    if not isinstance(result, str):
        return
    if result not in seen:
        yield Problem(
            ("result",), f"no vertex is called {result}", did_you_mean(result, seen, _listing("vertices", seen))
        )
    elif seen[result].kinds == ["spark_app"]:
        yield Problem(("result",), f"{result} is a spark_app and has no rows")
