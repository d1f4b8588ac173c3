"""How the rows of a hash output are spread over its shares, and which keys have most of a share that is far larger than the others.

Spark counts what it writes in all, and not by share. But each Parquet file ends with the number of its rows, and the exchange has few
files: to read these ends takes milliseconds. The keys are looked at only where that shows that few of them have most rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..attempt_wire import HashReport, HeavyKey, OutputSpec
from . import frames
from .exchange_files import Files

ROWS_LEAST = 100_000
"""Of fewer nothing is looked at, or reported: most jobs are small."""
SHARES_MOST = 256
FILES_MOST = 1_024
"""What is read of their ends has the schema in each."""
TIMES = 5
SAMPLE_ROWS = 200_000
KEYS_MOST = 3
KEY_CHARS = 64
_SMALL = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.sql.ansi.enabled": "false"}
_ROWS = re.compile(r"BlockMetaData\{(\d+),")


def report(session: Any, output: OutputSpec, rows: int | None, found: Sequence[Files]) -> HashReport | None:
    """What is reported of a hash output that was just written. rows: as Spark counted them. found: the files of each share. None: it has
    few rows, or they cannot be counted."""
    files = sum(its.number for its in found)
    if output["edge"] != "hash" or not 2 <= output["shares"] <= SHARES_MOST or (rows or 0) < ROWS_LEAST or files > FILES_MOST:
        return None
    counts = _counted(session, output, found)
    if sum(counts) != rows:
        return None
    hashed: HashReport = {"keys": list(output["keys"]), "share_rows": counts, "share_bytes": [its.size for its in found]}
    *others, largest = sorted(counts)
    if largest > max(ROWS_LEAST, TIMES * others[(len(others) - 1) // 2]):
        hashed["heaviest"] = _heaviest(session, output, counts.index(largest), largest)
    return hashed


def _counted(session: Any, output: OutputSpec, found: Sequence[Files]) -> list[int]:
    """The rows of each share, by the ends of its files: a few calls for a share, which read several files at once."""
    from py4j.protocol import Py4JError

    path, fs = frames.path_and_fs(session, output["folder"])
    hadoop, reader = session._jvm.org.apache.hadoop.fs, session._jvm.org.apache.parquet.hadoop.ParquetFileReader
    counts = [0] * output["shares"]
    try:
        for share, its in enumerate(found):
            if its.number:
                folder = fs.getFileStatus(hadoop.Path(path, f"__share={share}"))
                ends = reader.readAllFootersInParallel(fs.getConf(), folder, False).toString()
                counts[share] = sum(map(int, _ROWS.findall(ends)))
    except Py4JError:  # what is wrong with these files is for their readers to say
        return []
    return counts


def _heaviest(session: Any, output: OutputSpec, share: int, rows: int) -> list[HeavyKey]:
    """Those that have a tenth of the share's rows or more, by a sample. None of types that Spark does not group by."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    own = frames.clone(session)
    for key, value in _SMALL.items():
        own.conf.set(key, value)
    names = [frames.quoted(key) for key in output["keys"]]
    texts = [f"left(CAST({name} AS STRING), {KEY_CHARS + 1})" for name in names]
    part = min(1.0, SAMPLE_ROWS / rows)
    try:
        df = own.read.parquet(f"{frames.literal(output['folder'].rstrip('/'))}/__share={share}")
        some = df.where(f"rand(7) < {part!r}").groupBy(*names).count()
        top = some.orderBy("count", ascending=False).limit(KEYS_MOST).selectExpr("count", *texts).collect()
    except (PySparkException, Py4JError):
        return []
    keys: list[HeavyKey] = [
        {"share": share, "key": [_cut(text) for text in row[1:]], "rows_about": min(rows, round(row[0] / part))} for row in top
    ]
    return [each for each in keys if each["rows_about"] * 10 >= rows]


def _cut(text: str | None) -> str | None:
    return f"{text[:KEY_CHARS]}…" if text is not None and len(text) > KEY_CHARS else text
