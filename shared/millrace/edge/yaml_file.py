"""YAML to plain values, with the place in the text of every key and value.

Built from the parser's nodes, not its constructors: so nothing is executed, duplicate keys are seen, dates stay text
and 1.10 stays 1.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from millrace.core.jobgraph.model import DEFAULT_LIMITS, Limits
from millrace.core.jobgraph.problems import Place, Problem

OPENED_MOST = 256  # brackets: in strings there may be some
_BRACKETS = re.compile(r"[\[\]{}]")
Position = tuple[int, int]  # line and column, both from 1


@dataclass
class Document:
    """A YAML text as a value (None if it is none), what is wrong with it, and where each part stands."""

    text: str
    value: Any = None
    problems: list[Problem] = field(default_factory=list)
    keys: dict[Place, Position] = field(default_factory=dict)
    values: dict[Place, Position] = field(default_factory=dict)
    blocks: dict[Place, Position] = field(default_factory=dict)  # first line of a literal block: | or |-
    texts: dict[Place, tuple[int, int | None]] = field(default_factory=dict)  # first line of a text and its indent; None: it is folded

    def position(self, problem: Problem) -> Position:
        """Where a problem stands: the nearest part of its place that the text has; in a literal block the very line."""
        line = problem.line
        if line is not None and problem.place in self.blocks:
            first, indent = self.blocks[problem.place]
            return first + line - 1, indent + (problem.column or 1)
        place = problem.place
        while place not in self.keys and place:
            place = place[:-1]
        return self.keys.get(place, (1, 1))

    def moved(self, lines: int) -> Document:
        """As what stands behind so many lines of a longer text."""
        keys, values, blocks = (
            {place: (line + lines, column) for place, (line, column) in where.items()} for where in (self.keys, self.values, self.blocks)
        )
        texts = {place: (line + lines, indent) for place, (line, indent) in self.texts.items()}
        return replace(self, keys=keys, values=values, blocks=blocks, texts=texts)


def read_yaml(text: str, limits: Limits = DEFAULT_LIMITS) -> Document:
    """The one document of a YAML (or JSON) text; what is wrong with it is in `problems`, never raised."""
    document = Document(text)
    if len(text.encode(errors="surrogatepass")) > limits.input_bytes:
        document.problems.append(Problem((), f"the file is larger than the {limits.input_bytes} bytes allowed"))
        return document
    if _opened_most(text) > OPENED_MOST:  # the parser would take minutes to find that out
        document.problems.append(Problem((), f"nested more than {limits.depth} deep"))
        return document
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        document.keys[()] = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        words = ", ".join(str(part) for part in (error.context, error.problem) if part)
        if error.problem and "'\\t'" in error.problem:
            words = "a tab: lines are indented with spaces"
        document.problems.append(Problem((), f"not YAML: {words}"))
    except YAMLError as error:
        document.problems.append(Problem((), f"not YAML: {str(error).splitlines()[0]}"))
    except RecursionError:
        document.problems.append(Problem((), f"nested more than {limits.depth} deep"))
    else:
        builder = _Builder(document, limits)
        document.value = None if node is None else builder.value(node, ())
    return document


def _opened_most(text: str) -> int:
    """How many brackets stand open at once, strings not told from the rest."""
    opened = most = 0
    for bracket in _BRACKETS.findall(text):
        opened = opened + 1 if bracket in "[{" else max(0, opened - 1)
        most = max(most, opened)
    return most


class _Builder:
    def __init__(self, document: Document, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self.lines = document.text.splitlines()
        self.nodes = 0  # counted as written out: an alias may stand for much

    def value(self, node: Node, place: Place) -> Any:
        self.nodes += 1
        if self.nodes > 100_000 or len(place) > self.limits.depth:
            if not any(problem.message.startswith("nested or repeated") for problem in self.document.problems):
                self._problem(place, "nested or repeated too much")
            return None
        mark = node.start_mark
        self.document.values[place] = (mark.line + 1, mark.column + 1)
        self.document.keys.setdefault(place, self.document.values[place])
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self.value(part, (*place, index)) for index, part in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self._scalar(node, place)

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            mark = key_node.start_mark
            key = key_node.value if isinstance(key_node, ScalarNode) else "?"
            at = (*place, key)
            if not isinstance(key_node, ScalarNode) or str(key_node.tag).endswith(":merge"):
                self.document.keys.setdefault(at, (mark.line + 1, mark.column + 1))
                self._problem(at, "a key must be text: merges and keys that are mappings are not understood")
            elif key in result:
                first = self.document.keys[at][0]
                again = (*at, "again")
                self.document.keys[again] = (mark.line + 1, mark.column + 1)
                self._problem(again, f"duplicate key: {key} stands on line {first} already")
            else:
                self.document.keys[at] = (mark.line + 1, mark.column + 1)
                result[key] = self.value(value_node, at)
        return result

    def _scalar(self, node: ScalarNode, place: Place) -> Any:
        text = str(node.value)
        kind = str(node.tag).rpartition(":")[2]
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("true", "yes", "on", "y")  # the latter: a text that calls itself YAML 1.1
        if kind == "int":
            # Only what is written as a number is one: 007 and 0x1F may well be meant as text.
            return int(text) if re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", text) else text
        if node.style == "|":
            first = node.start_mark.line + 1
            while first < len(self.lines) and not self.lines[first].strip():
                first += 1
            line = self.lines[first] if first < len(self.lines) else ""
            leading = len(text) - len(text.lstrip("\n"))
            self.document.blocks[place] = (first + 1 - leading, len(line) - len(line.lstrip(" ")))
        self.document.texts[place] = self.document.blocks.get(place) or self._in_line(node, text)
        return text

    def _in_line(self, node: ScalarNode, text: str) -> tuple[int, int | None]:
        """Of a text that is no block: where its one line begins, if it stands there as it is."""
        mark = node.start_mark
        line = self.lines[mark.line] if mark.line < len(self.lines) else ""
        indent = mark.column + (node.style in ("'", '"'))
        return mark.line + 1, indent if line[indent : indent + len(text)] == text else None

    def _problem(self, place: Place, message: str) -> None:
        self.document.problems.append(Problem(place, message))
