"""What Spark compiles for the plans of an attempt, and what it need not compile again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.slot.attempts import Attempts


def compiled(spark: Any) -> int:
    """How many pieces of generated code this JVM has compiled so far."""
    return int(spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())


def test_a_slot_that_ran_one_share_compiles_nothing_for_another(attempts: Attempts, spark: Any, tmp_path: Path) -> None:
    """Of the next job such a slot may get the other one."""
    spark.range(1000).selectExpr("id AS k", "3 * id AS v").write.parquet(str(tmp_path / "in"))
    source = {"id": "r", "source": {"format": "parquet", "path": str(tmp_path / "in"), "options": {}}, "parallelism": 1, "copied": True}
    consumer = {"id": "j", "sql": "SELECT sum(v + 17) AS total, count(*) AS n FROM r", "parallelism": 3}
    planned = attempts.run(source, {**consumer, "inputs": {"r": {"edge": "chained", "keys": ["k"]}}}, kind="plan")
    found, counts = [], []
    for share in range(3):
        edge = {"edge": "chained", "keys": ["k"], "key_types": planned["key_types"].get("j"), "share": share, "shares": 3}
        reader = {**consumer, "inputs": {"r": edge}}
        found += attempts.rows(source, reader, pinned=planned["pinned"], subtask=share, parallelism=3)
        counts.append(compiled(spark))
    assert counts[1:] == counts[:1] * 2
    assert sum(total for total, _ in found) == sum(3 * k + 17 for k in range(1000))
    assert sum(n for _, n in found) == 1000
    assert all(n for _, n in found)  # the test divides
