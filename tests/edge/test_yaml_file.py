"""YAML to values and places, with nothing executed, lost or silently replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.jobgraph.problems import Problem
from millrace.edge.yaml_file import Document, read_yaml


def told(document: Document) -> list[str]:
    return [":".join(str(part) for part in (*document.position(problem), problem)) for problem in document.problems]


def test_scalars_keep_what_was_written() -> None:
    text = "[1, -2, 1.10, 1e3, 007, 0x1F, 1_000, true, False, yes, ~, null, '', '5', 2024-01-01, 99999999999999999999]"
    assert read_yaml(text).value == [
        1, -2, "1.10", "1e3", "007", "0x1F", "1_000", True, False, "yes", None, None, "", "5", "2024-01-01",
        "99999999999999999999",
    ]  # fmt: skip


def test_every_key_and_item_has_its_place() -> None:
    document = read_yaml("name: a\nlist:\n  - x\n  - {k: v}\n")
    assert document.value == {"name": "a", "list": ["x", {"k": "v"}]}
    assert document.keys == {
        (): (1, 1),
        ("name",): (1, 1),
        ("list",): (2, 1),
        ("list", 0): (3, 5),
        ("list", 1): (4, 5),
        ("list", 1, "k"): (4, 6),
    }


def test_json_is_read_too() -> None:
    assert read_yaml('{"a": [1, "x\\n", null], "b": {}}').value == {"a": [1, "x\n", None], "b": {}}


def test_an_alias_is_what_it_stands_for() -> None:
    assert read_yaml("a: &x {k: 1}\nb: *x\n").value == {"a": {"k": 1}, "b": {"k": 1}}


def test_a_tag_is_only_a_text() -> None:
    assert read_yaml("a: !!python/object/apply:os.system ['false']").value == {"a": ["false"]}


@pytest.mark.parametrize(
    ("place", "line", "column", "expected"),
    [
        (("vertices", "a", "sql"), None, None, (3, 5)),
        (("vertices", "a", "sql"), 1, 1, (5, 7)),
        (("vertices", "a", "sql"), 2, 8, (6, 14)),
        (("vertices", "b", "sql"), 1, 8, (8, 7)),
        (("vertices", "a", "nothing", "there"), None, None, (2, 3)),
        (("nothing",), None, None, (1, 1)),
    ],
)
def test_a_problem_stands_at_its_line(
    place: tuple[str, ...], line: int | None, column: int | None, expected: tuple[int, int]
) -> None:
    """In a literal block (here one with a comment-free blank line first) it is the very line of the text."""
    document = read_yaml(
        "vertices:\n  a:\n    sql: |\n\n      SELECT a\n      FROM  x\n  b: {parallelism: 1,\n      sql: 'SELECT 1'}\n"
    )
    assert document.value["vertices"]["a"]["sql"] == "\nSELECT a\nFROM  x\n"
    line = line + 1 if line is not None and place[1] == "a" else line  # its first line is the blank one
    assert document.position(Problem(place, "x", line=line, column=column)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", ["3:1:a.again: duplicate key: a stands on line 1 already"]),
        ("x: {k: 1, k: 2}\n", ["1:11:x.k.again: duplicate key: k stands on line 1 already"]),
        ("a: [1", ["1:6:not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"]),
        ("a: 1\n b: 2", ["2:3:not YAML: mapping values are not allowed here"]),
        ("a: *x", ["1:4:not YAML: found undefined alias 'x'"]),
        (
            "a: 1\n---\nb: 2",
            ["2:1:not YAML: expected a single document in the stream, but found another document"],
        ),
        (
            "a: \t- x",
            ["1:4:not YAML: a tab: lines are indented with spaces"],
        ),
        ("<<: {a: 1}", ["1:1:<<: a key must be text: merges and keys that are mappings are not understood"]),
        ("? [a]\n: 1", ["1:3:?: a key must be text: merges and keys that are mappings are not understood"]),
        ("[" * 5000, ["1:1:nested more than 32 deep"]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, expected: list[str]) -> None:
    assert told(read_yaml(text)) == expected


def test_bytes_that_no_text_holds() -> None:
    (problem,) = read_yaml("a: \x00").problems
    assert problem.message.startswith("not YAML: unacceptable character #x0000")


def test_a_value_cannot_grow_without_bound() -> None:
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    assert [problem.message for problem in read_yaml(laughs).problems] == ["nested or repeated too much"]
    assert [problem.message for problem in read_yaml("&a [*a]").problems] == ["nested or repeated too much"]
    small = replace(DEFAULT_LIMITS, input_bytes=5)
    assert told(read_yaml("a: bcd", small)) == ["1:1:the file is larger than the 5 bytes allowed"]


def test_an_empty_text_has_no_value() -> None:
    document = read_yaml("# nothing\n")
    assert (document.value, document.problems) == (None, [])


def test_a_text_that_calls_itself_yaml_1_1_says_yes_as_that_does() -> None:
    assert read_yaml("%YAML 1.1\n---\n[yes, On, y, true, no, off]\n").value == [True, True, True, True, False, False]


def test_brackets_without_end_are_refused_before_the_parser_spends_minutes_on_them() -> None:
    for text in ("[" * 500_000, "{" * 500_000, "a: '\"' " + "[" * 500_000):
        [problem] = read_yaml(text).problems
        assert "nested more than" in problem.message
    assert read_yaml("a: '" + "[" * 200 + "'").problems == []
