"""Whether a drawn graph leaves, cell by cell, what the same vertices give as one chain of queries in a plain session."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from services.task_manager.slot.attempt import result
from tests.slot import whole_graphs
from tests.slot.attempts import Attempts
from tests.slot.drawn.graphs import MODULE, Drawn


def differences(seed: int, spark: Any, folder: Path) -> list[str]:
    """What is different, in words; none: nothing is."""
    drawn = Drawn(seed, spark, folder)
    attempts = Attempts(spark, folder / "attempts")
    document = {**drawn.document, "modules": [attempts.module("drawn_functions.py", MODULE)]}
    (folder / "graph.json").write_text(json.dumps(document, indent=1, ensure_ascii=False))
    wanted, refused = {}, ""
    try:
        for name, kind in drawn.sinks.items():
            wanted[name] = [str(folder / "plain" / name)]
            writer = drawn.chain.frames[name].write.format(kind).options(**drawn.vertices[name]["sink"]["options"])
            writer.save(*wanted[name])
    except Exception as error:
        refused = _first_line(error)
    try:
        ran = whole_graphs.run(attempts, document, folder / "exchange")
    except Exception as error:
        return [] if refused else [f"it failed: {_first_line(error)}"]
    if refused:
        return [f"the session refused: {refused}"]
    found = []
    for name, kind in drawn.sinks.items():
        one, other = _cells(spark, kind, wanted[name]), _cells(spark, kind, ran.staged[name])
        if one != other:
            found.append(f"{name} ({kind}): only in the session {_shown(one - other)}; only in the graph {_shown(other - one)}")
    if ran.plan.result is not None:
        df = drawn.chain.frames[ran.plan.result]
        one, other = (Counter(json.dumps(row) for row in rows) for rows in (result.take(df, 100_000)["rows"], ran.rows))
        if one != other:
            found.append(f"result: only in the session {_shown(one - other)}; only in the graph {_shown(other - one)}")
    return found


def _cells(spark: Any, kind: str, folders: list[str]) -> Counter[str]:
    """The rows and the columns of files."""
    if kind in ("json", "csv"):
        files = [file for folder in folders for file in Path(folder).glob(f"*.{kind}")]
        return Counter(line for file in files for line in file.read_bytes().decode().split("\n") if line)
    df = spark.read.format(kind).load(folders)
    return Counter([df.schema.simpleString(), *(repr(tuple(row)) for row in df.collect())])


def _shown(rows: Counter[str]) -> str:
    return f"{rows.total()}: {[*rows][:5]}" if rows else "none"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:400]}"
