"""`millrace validate`: is this what Millrace takes? Nothing is connected to."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exits import Exit
from .options import JsonOption, pairs

if TYPE_CHECKING:
    from pydantic import ValidationError

    from millrace.core.jobgraph.problems import Problem
    from millrace.edge.graph_file import Loaded

LINES = (".jsonl", ".ndjson")
YAML = (".yaml", ".yml")


def validate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="A graph (.yaml, .json), a record (.json), records (.jsonl); - is a record on stdin.",
            show_default=False,
        ),
    ],
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A value for a graph's ${NAME}; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check job graphs and records without a cluster: every mistake at once, each with its line.

    A record is one JSON value with a type and a version, as it stands on a topic: a request, an answer, a fact, or a record of an
    inbox. A file .jsonl has one a line, as Kafka's console tools write and read them. The graph of a SubmitJob is checked, too.

    Exit codes: 0 all is right (warnings may be told), 2 something is wrong.

    millrace validate examples/flights.yaml -p data=FOLDER

    millrace validate requests.jsonl

    millrace dlq show 12 --raw | millrace validate -
    """
    parameters = pairs(parameter, "-p")
    checked = [each for file in files for each in _checked(file, parameters)]
    if as_json:
        from .tables import print_json

        print_json([line for what, loaded in checked for line in _plain(what, loaded)])
    else:
        for what, loaded in checked:
            for line in loaded.rendered():
                print(line, file=sys.stderr)
            if not loaded.errors:
                print(f"{loaded.path}: {what}: valid")
    wrong = sum(len(loaded.errors) for _, loaded in checked)
    if wrong:
        print(f"{wrong} problem{'s' * (wrong != 1)}", file=sys.stderr)
        raise typer.Exit(Exit.INVALID)


def _checked(file: str, parameters: dict[str, str]) -> Iterator[tuple[str, Loaded]]:
    """(what it is, what was found wrong) of each graph or record of a file."""
    from millrace.core.jobgraph.problems import Problem
    from millrace.edge.graph_file import Loaded

    path = Path(file)
    try:
        data = sys.stdin.buffer.read() if file == "-" else path.read_bytes()
    except OSError as error:
        yield "nothing", Loaded(path, problems=[Problem((), f"{file} cannot be read: {error.strerror}")])
        return
    if path.suffix in LINES:
        if not data.strip():
            yield "nothing", Loaded(path, problems=[Problem((), f"{file} holds no record")])
        for above, line in enumerate(data.splitlines()):
            if line.strip():
                what, loaded = check_record(path, line, above)
                yield f"line {above + 1}: {what}", loaded
    elif path.suffix in YAML or (file != "-" and _is_graph(data)):
        yield "a job graph", check_graph_file(path, parameters)
    else:
        yield check_record(path, data)


def _is_graph(data: bytes) -> bool:
    """JSON that is an object without the type of a message."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not {"type", "record"} & value.keys()


def check_graph_file(path: Path, parameters: dict[str, str]) -> Loaded:
    """What `submit` would find here, and what the Dispatcher would find after it."""
    from millrace.edge.graph_file import load_graph
    from millrace.edge.requests import check_loaded

    loaded = load_graph(path, parameters)
    check_loaded(loaded)
    return loaded


def check_record(path: Path, data: bytes, above: int = 0) -> tuple[str, Loaded]:
    """(what the record is, all that is wrong with it), as its reader would find it. `above`: it is one line, behind so many others."""
    from millrace.core.jobgraph.parse import Refused, parse_json
    from millrace.core.jobgraph.problems import Problem
    from millrace.edge.graph_file import Loaded
    from millrace.edge.yaml_file import read_yaml

    try:
        raw = parse_json(data)
    except Refused as refused:
        reason = re.sub(r"(?<= at line )1(?=, column \d+$)", str(above + 1), str(refused)) if above else str(refused)
        return "nothing", Loaded(path, problems=[Problem((), f"{path}: {reason}")])
    what, problems = _of_value(raw, data)
    return what, Loaded(path, problems=problems, document=read_yaml(data.decode()).moved(above))


def _of_value(raw: Any, data: bytes) -> tuple[str, list[Problem]]:
    from pydantic import TypeAdapter, ValidationError

    from millrace.core.jobgraph.problems import Problem, did_you_mean
    from millrace.core.messages import records
    from millrace.core.messages.contracts import CONTRACTS

    if isinstance(raw, dict) and isinstance(raw.get("record"), str):
        try:
            TypeAdapter(records.Record).validate_json(data)
        except ValidationError as error:
            return "a record", [Problem(each.place[1:], each.message, each.hint) for each in _structure(error, None)]
        return f"a record of an inbox, {raw['record']}", []
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        return "nothing", [Problem((), 'is no message: a message is an object with "type" and "version"')]
    name, version = raw["type"], raw.get("version")
    known = sorted(each for type_, each in CONTRACTS if type_ == name)
    if not known:
        types = dict.fromkeys(type_ for type_, _ in CONTRACTS)
        return "nothing", [Problem(("type",), f"there is no message {name[:100]!r}", did_you_mean(name, types))]
    if isinstance(version, bool) or version not in known:
        problem = f"is {version!r}" if "version" in raw else "is missing"
        return "nothing", [Problem(("version",), f"{problem}; {name} has {', '.join(map(str, known))}")]
    body = CONTRACTS[name, version].body
    problems = []
    try:
        body.model_validate_json(data)
    except ValidationError as error:
        problems = _structure(error, list(body.model_fields))
    if name == "SubmitJob":
        problems += _of_submission(raw)
    job = f" of job {raw['job']}" if isinstance(raw.get("job"), str) else ""
    return f"{name}{job}", problems


def _of_submission(raw: dict[str, Any]) -> Iterator[Problem]:
    from dataclasses import replace

    from millrace.core.jobgraph.model import DEFAULT_LIMITS
    from millrace.core.jobgraph.problems import Problem
    from millrace.edge.requests import check_graph

    graph, parameters = raw.get("graph"), raw.get("parameters", {})
    if isinstance(graph, dict) and isinstance(parameters, dict):
        texts = {name: value for name, value in parameters.items() if isinstance(value, str)}
        found = check_graph(graph, texts, DEFAULT_LIMITS)
        for each in (*found.problems, *found.warnings):
            yield replace(each, place=("graph", *each.place))
    until = raw.get("accept_before_ms")
    if isinstance(until, int) and until * 1_000_000 < time.time_ns():
        yield Problem(("accept_before_ms",), "has passed: it would be rejected as late", warning=True)


def _structure(error: ValidationError, fields: list[str] | None) -> list[Problem]:
    """What a message's model says, in a user's words. fields: those of the message, for a hint."""
    from millrace.core.jobgraph.problems import Problem, did_you_mean, found
    from millrace.core.messages.base import JOB_ID_PATTERN, JOB_ID_RULE

    problems = []
    for each in error.errors(include_url=False):
        place, kind = each["loc"], each["type"]
        if kind == "missing":
            problems.append(Problem(place[:-1], f"{place[-1]} is missing"))
        elif kind == "extra_forbidden":
            hint = (
                did_you_mean(place[-1], fields, f"there are {', '.join(fields)}")
                if fields and len(place) == 1
                else None
            )
            problems.append(Problem(place, f"unknown field {place[-1]}", hint))
        elif kind == "string_pattern_mismatch" and each["ctx"]["pattern"] == JOB_ID_PATTERN:
            problems.append(Problem(place, f"no id of a job: {JOB_ID_RULE}; not {found(each['input'])}"))
        else:
            problems.append(Problem(place, f"{each['msg']}, not {found(each['input'])}"))
    return problems


def _plain(what: str, loaded: Loaded) -> Iterator[dict[str, Any]]:
    """For --json: an object for each problem; one without a message for what is right."""
    if not loaded.problems:
        yield {"file": str(loaded.path), "what": what, "valid": True}
    for each in loaded.problems:
        line, column = loaded.document.position(each) if loaded.document else (None, None)
        yield {
            "file": str(loaded.path), "what": what, "valid": each.warning, "line": line, "column": column,
            "place": list(each.place), "message": each.message, "hint": each.hint,
        }  # fmt: skip
