"""parse_json takes any bytes and answers with a value or one sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.jobgraph.parse import Refused, parse_json

REFUSED = {
    b'"a\nb"': "not JSON: Invalid control character at line 1, column 3",
    b"": "not JSON: Expecting value at line 1, column 1",
    b'{"a": 1,\n "b": }': "not JSON: Expecting value at line 2, column 7",
    b"\xff": "not UTF-8 at byte 0",
    b'{"a": 1, "b": {"c": 1, "c": 2}}': "the key 'c' stands twice in one object",
    b"NaN": "NaN is no JSON number",
    b"[-Infinity]": "-Infinity is no JSON number",
    b"1e999": "a number too large for a float",
    b"1" * 5000: "a whole number of 5000 digits",
    b"[" * 33: "nested more than 32 deep",
    b'{"a":' * 100_000: "nested more than 32 deep",
    b'["\\ud800"]': "a text holds half of a surrogate pair, which is no Unicode",
    b" " * (1024 * 1024 + 1): "1048577 bytes are more than the 1048576 allowed",
    b'"\\"' * 300_000: "not JSON: Extra data at line 1, column 5",
    b'"' + b'\\"' * 500_000: "not JSON: Unterminated string starting at line 1, column 1",
}


@pytest.mark.parametrize("data", REFUSED, ids=[str(data[:20]) for data in REFUSED])
@pytest.mark.timeout(60)
def test_what_is_no_bounded_json_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(Refused) as error:
        parse_json(data)
    assert str(error.value) == REFUSED[data]


def test_depth_counts_brackets_outside_strings_only() -> None:
    text = json.dumps({"a": '[[[[{{{{\\"' * 100, "b]": [{}]})
    assert parse_json(text.encode(), replace(DEFAULT_LIMITS, depth=3)) == json.loads(text)


def test_the_deepest_value_allowed_is_read() -> None:
    assert parse_json(b"[" * 32 + b"]" * 32) is not None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_json_comes_through(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_refused(data: bytes) -> None:
    try:
        parse_json(data)
    except Refused as error:
        assert str(error)
