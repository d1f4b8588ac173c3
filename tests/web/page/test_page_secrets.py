"""The configuration of a job stands on its page without what is, or may be, a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.web.page.reads import redacted

HIDDEN = "(not shown)"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"password": "hush"}, {"password": HIDDEN}),
        ({"spark.hadoop.fs.s3a.access.key": "hush"}, {"spark.hadoop.fs.s3a.access.key": HIDDEN}),
        ("jdbc:mysql://db/x?user=ada&password=hush", f"jdbc:mysql://db/x?user=ada&password={HIDDEN}"),
        ("jdbc:sqlserver://db;user=ada;password=hush;encrypt=true", f"jdbc:sqlserver://db;user=ada;password={HIDDEN};encrypt=true"),
        ("https://ada:hush@db/x", "https://***@db/x"),
        ("abfss://c@a/x?sv=1&sig=hush", f"abfss://c@a/x?sv=1&sig={HIDDEN}"),
        (["--day", "1", "--api-token", "hush", "--dry"], ["--day", "1", "--api-token", HIDDEN, "--dry"]),
        (["--password=hush", "-v"], [f"--password={HIDDEN}", "-v"]),
        ("-Xss4m -Ddb.password=hush", f"-Xss4m -Ddb.password={HIDDEN}"),
    ],
)
def test_a_secret_is_not_shown(given: Any, shown: Any) -> None:
    graph = {"name": "n", "vertices": {"a": {"options": given}}}
    text = redacted(graph)
    assert "hush" not in text
    assert json.loads(text)["vertices"]["a"]["options"] == shown


def test_all_else_is_shown_as_it_is() -> None:
    graph = {
        "name": "n", "restart": {"attempts": 3}, "args": ["--key", "b", "-x"],
        "vertices": {"a": {"sql": "SELECT token FROM t WHERE password = 'x' AND a=b"}, "b": {"source": {"path": "s3a://b/x=1/y"}}},
    }  # fmt: skip
    assert json.loads(redacted(graph)) == graph
