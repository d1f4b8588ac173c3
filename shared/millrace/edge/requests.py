"""What strangers write to client.commands: decoding it strictly, and all that a graph alone tells.

The Dispatcher's intake does this once for each request. `millrace validate` and `millrace dlq` do the same without a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from millrace.core.jobgraph.compile import check_unread
from millrace.core.jobgraph.model import DEFAULT_LIMITS, JobGraph, Limits, dump, settings_of
from millrace.core.jobgraph.parse import Refused, parse_json
from millrace.core.jobgraph.problems import Problem, found
from millrace.core.jobgraph.validate import readable, validate
from millrace.core.messages import base
from millrace.core.messages.base import canonical
from millrace.core.messages.requests import REQUESTS
from millrace.edge.files import check_relative
from millrace.edge.graph_file import Loaded
from millrace.edge.packages import check_packages
from millrace.edge.spark_conf import MASTER, classify_conf, is_remote
from millrace.edge.sql import check_sql

GRAPH_BYTES_MOST = 256 * 1024  # of a graph as it is stored: it travels inside messages and lies in etcd
SLOTS_SIZES = ("spark.driver.memory", "spark.driver.cores")
SIZES = (*SLOTS_SIZES, "spark.executor.", "spark.cores.max", "spark.dynamicAllocation.")
NO_EFFECT = "has no effect in slots, whose heap and threads are their TaskManager's (millrace up --heap-mb, --cores)"

_REQUESTS = {body.model_fields["type"].default: body for body in REQUESTS}


@dataclass(frozen=True)
class Checked:
    """What a graph is found to be, wherever it comes from: the graph to store, or what is wrong with it."""

    graph: JobGraph | None
    stored: dict[str, Any] | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def decode(value: bytes, limits: Limits) -> base.Request:
    """The request that a stranger's bytes are. Raises Refused, with a sentence, for all others."""
    raw = parse_json(value, limits)
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise Refused('no message: a request is an object with "type" and "version"')
    body = _REQUESTS.get(raw["type"])
    if body is None:
        raise Refused(f"unknown type {raw['type'][:100]!r}; known are {', '.join(_REQUESTS)}")
    known = body.model_fields["version"].default
    version = raw.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        version_problem = f'{found(version)} as its "version", which is no integer' if "version" in raw else 'no "version"'
        raise Refused(f"{raw['type']} has {version_problem}; this Dispatcher knows version {known}")
    if version != known:
        newer = "a newer" if version > known else "an unknown"
        raise Refused(f"{raw['type']} has {newer} version, {version}; this Dispatcher knows version {known}")
    try:
        return body.model_validate(raw)
    except ValidationError as error:
        raise Refused(f"no {raw['type']}: {_sentence(error)}") from None


def _may_fit(raw: Mapping[str, Any]) -> bool:
    try:
        return len(canonical(raw)) <= GRAPH_BYTES_MOST
    except (TypeError, ValueError):  # from a file of YAML: a date, half of a surrogate pair
        return True


def check_graph(raw: Mapping[str, Any], parameters: Mapping[str, str], limits: Limits) -> Checked:
    """All that the graph alone tells: structure, SQL, settings, size."""
    validated = validate(dict(raw), limits, parameters)
    if not isinstance(validated, JobGraph):
        problems = list(validated)
        if _may_fit(raw):  # a larger one is hopeless, and to look into all of its SQL takes long
            known = readable(raw, validated, limits, parameters)
            problems += (each for each in (*check_sql(known), *check_conf(known)) if not each.warning)
        return Checked(None, None, tuple(problems), ())
    stored = dump(validated)
    size = len(canonical(stored))
    if size > GRAPH_BYTES_MOST:
        message = f"with parameters put in, the graph has {size} bytes, more than the {GRAPH_BYTES_MOST} allowed"
        hint = "keep data out of it: put it into files, or upload it as a module"
        return Checked(validated, stored, (Problem((), message, hint),), ())
    problems = [*check_sql(validated), *check_conf(validated), *check_relative(validated)]
    problems += [*check_packages(validated), *check_unread(validated)]
    errors = tuple(problem for problem in problems if not problem.warning)
    return Checked(validated, stored, errors, tuple(problem for problem in problems if problem.warning))


def check_loaded(loaded: Loaded) -> None:
    """Notes all that the cluster would find wrong with what was loaded, beside what is noted of it."""
    if not loaded.raw:
        return
    found = check_graph(loaded.raw, {}, DEFAULT_LIMITS)
    wrong = {each.place for each in loaded.errors}  # of a place with an error, a warning tells less
    warnings = [each for each in found.warnings if each.place not in wrong]
    loaded.problems += [each for each in (*found.problems, *warnings) if each not in loaded.problems]


def check_conf(graph: JobGraph) -> list[Problem]:
    """Spark settings that no slot can honour; and those that only a Spark cluster heeds, as warnings where the job has no `master`."""
    settings = settings_of(graph)
    _, _, refused = classify_conf(settings)
    problems = []
    for key, reason in refused.items():
        place = ("master",) if key == MASTER and graph.master else ("conf", key)
        problems.append(Problem(place, reason if key == MASTER else f"cannot be set by a job: {reason}"))
    if graph.master and graph.conf.get(MASTER, graph.master) != graph.master:
        problems.append(Problem(("conf", MASTER), f"is not the job's master, {graph.master}: leave one of them out"))
    sizes = SLOTS_SIZES if is_remote(settings.get(MASTER, "local")) else SIZES
    for key in graph.conf:
        if key not in refused and key.startswith(sizes):
            problems.append(Problem(("conf", key), NO_EFFECT, None, True))
    return problems


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:100]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{place}: {first['msg']}{more}"
