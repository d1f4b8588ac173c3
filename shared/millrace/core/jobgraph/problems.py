"""Problems: what is wrong with a graph, where, and what to do; and how pydantic's errors become them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from millrace.core.messages.base import JOB_ID_RULE

from .model import (
    KINDS,
    JobGraph,
    Module,
    Origin,
    Resources,
    Restart,
    Sink,
    Source,
    SparkApp,
    Speculation,
    Standing,
    Timeouts,
    Vertex,
    is_env_name,
)

Place = tuple["str | int", ...]


class _Secret:
    """Stands for a text or number below `env` in what is told of it."""


MOST_PROBLEMS = 100
HINTED_MOST = 20  # wrong names: to look for the nearest of all that are known takes up to 50 ms each, in the way of other requests
_COMPARED_MOST = 64  # characters: names that a graph may have are shorter

_VERTEX_PARTS: dict[str, type[BaseModel]] = {"source": Source, "sink": Sink, "spark_app": SparkApp, "resources": Resources}
_GRAPH_PARTS: dict[str, type[BaseModel]] = {
    "restart": Restart, "speculative": Speculation, "timeouts": Timeouts, "resources": Resources, "origin": Origin,
}  # fmt: skip
_PATTERNS = {
    "vertices": "an id is a letter or _, then letters, digits or _, at most 63 characters in all",
    "parameters": "a parameter's name is a letter or _, then letters, digits or _, at most 63 characters in all",
    "sources": "must be a vertex's id",
    "python": "must be module:function, such as ranking:rank",
    "extras": "must be a letter, then letters, digits, _, . or -, at most 63 characters in all",
    "job": f"must be a job's id: {JOB_ID_RULE}",
    "name": "must be a file's name, without folders, not starting with a dot",
    "tenant": "must be letters, digits, _, . or -, the first a letter or digit, at most 63 characters in all",
    "sha256": "must be a SHA-256 hash: 64 digits and letters a to f",
}


@dataclass(frozen=True)
class Problem:
    """One mistake. place: the way to it (keys, list indices); a warning does not stop a submission.

    line, column (from 1): where in the text at that place, if it is a longer one.
    """

    place: Place
    message: str
    hint: str | None = None
    warning: bool = False
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = ".".join(str(part) for part in self.place)
        return f"{where}: {self.text}" if where else self.text

    @property
    def text(self) -> str:
        """The message with its hint."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely means. Long words are left out: comparing two takes time by the product of their lengths."""
    lower = {name.lower(): name for name in reversed(list(known)) if len(name) <= _COMPARED_MOST}
    near = get_close_matches(str(word).lower()[:_COMPARED_MOST], lower, n=1)
    return lower[near[0]] if near else None


def did_you_mean(word: object, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A hint with the nearest known word; `otherwise` if none is near."""
    near = nearest(word, known)
    return f"did you mean {near}?" if near else otherwise


def found(value: object) -> str:
    """A value as a sentence names it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if value is _Secret:
        return "what stands there"
    if isinstance(value, str):
        return f"the text {value[:60]!r}" + ("..." if len(value) > 60 else "")
    return "a mapping" if isinstance(value, Mapping) else "a list"


def structure_problems(error: ValidationError) -> list[Problem]:
    """pydantic's errors, in its order, in a user's words."""
    details = error.errors(include_url=False)[: MOST_PROBLEMS + 1]
    of_names = [detail for detail in details if detail["loc"][:1] == ("env",) and detail["loc"][-1] == "[key]"]
    return [_problem(detail["type"], detail["loc"], detail) for detail in details if detail not in of_names]


def bounded(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, the first MOST_PROBLEMS of them, and none longer than a reader (or a message) can take."""
    kept: dict[Problem, None] = {}
    for problem in problems:
        if len(kept) == MOST_PROBLEMS:
            kept[Problem((), f"there are more problems than the {MOST_PROBLEMS} listed")] = None
            break
        place = tuple(_short(part, 100) if isinstance(part, str) else part for part in problem.place)
        hint = None if problem.hint is None else _short(problem.hint, 500)
        kept[replace(problem, place=place, message=_short(problem.message, 1000), hint=hint)] = None
    return list(kept)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _problem(kind: str, place: Place, detail: Mapping[str, Any]) -> Problem:
    key = place[-1:] == ("[key]",)
    place = place[:-1] if key else place
    context = detail.get("ctx", {})
    value = detail["input"]
    if place[:1] == ("env",):
        if not all(map(is_env_name, place[1:])):
            place = place[:1]
        value = _Secret if isinstance(value, (str, int, float)) else value
    if kind == "missing":
        return Problem(place[:-1], f"{place[-1]} is missing")
    if kind == "extra_forbidden":
        return _unknown_field(place)
    if kind == "value_error":
        return Problem(place, str(context["error"]))
    if kind == "literal_error":
        known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        return Problem(place, f"must be one of {', '.join(known)}, not {found(value)}", did_you_mean(value, known))
    if kind == "string_pattern_mismatch":
        about = place[-2] if key else place[-1]
        return Problem(place, f"{_PATTERNS[str(about)]}; not {found(value)}")
    wanted = {
        "string_type": "must be text",
        "int_type": "must be a whole number",
        "float_type": "must be a number",
        "dict_type": "must be a mapping",
        "model_type": "must be a mapping",
        "model_attributes_type": "must be a mapping",
        "tuple_type": "must be a list",
    }.get(kind)
    if wanted is not None:
        return Problem(place, f"{'a key here ' if key else ''}{wanted}, not {found(value)}")
    if kind == "greater_than_equal":
        return Problem(place, f"must be at least {context['ge']}, not {found(value)}")
    if kind == "greater_than":
        return Problem(place, f"must be more than {context['gt']}, not {found(value)}")
    if kind == "less_than_equal":
        return Problem(place, f"must be at most {context['le']}, not {found(value)}")
    if kind in ("string_too_short", "too_short"):
        return Problem(place, "must not be empty")
    if kind == "string_too_long":
        return Problem(place, f"must have at most {context['max_length']} characters, not {len(value)}")
    return Problem(place, f"{detail['msg']}, not {found(value)}")


def _unknown_field(place: Place) -> Problem:
    known = [field.alias or name for name, field in _model_at(place[:-1]).model_fields.items()]
    what = "unknown kind or field" if _model_at(place[:-1]) is Vertex else "unknown field"
    hint = did_you_mean(place[-1], known, f"there are {', '.join(known)}")
    return Problem(place, f"{what} {place[-1]}", hint)


def _model_at(place: Place) -> type[BaseModel]:
    if not place:
        return JobGraph
    if place[0] == "vertices":
        return _VERTEX_PARTS[str(place[2])] if len(place) > 2 else Vertex
    if place[0] == "sources":
        return Standing
    return Module if place[0] == "modules" else _GRAPH_PARTS[str(place[0])]


def kinds_of(vertex: Mapping[str, object]) -> list[str]:
    """The kinds that a raw vertex names."""
    return [kind for kind in KINDS if vertex.get(kind) is not None]
