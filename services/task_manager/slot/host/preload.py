"""What a host has imported before it forks the process of an attempt."""

from __future__ import annotations

import contextlib
import gc
import importlib
import linecache
import sys

# Imported before any fork: what every attempt needs, and what would be imported lazily (300 ms) in each of them.
_PRELOADED = (
    "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types", "pyspark.testing", "pyspark.cloudpickle", "pandas", "pyarrow",
    "pyarrow.parquet", "numpy", "_millrace_slot.attempt.run", "_millrace_slot.attempt.errors", "_millrace_slot.control.main",
)  # fmt: skip
_WITHIN = (
    "pyspark.sql.classic.dataframe", "pyspark.sql.classic.window", "pyspark.sql.pandas.map_ops", "pyspark.logger.worker_io",
    "pyarrow.pandas_compat", "encodings.idna",
)  # fmt: skip
"""What these import only when it is first used. Another version may not have it."""
_ON_THE_STACK = (
    "_millrace_slot", "asyncio", "pyspark.core.context", "pyspark.sql.session",
    "pyspark.sql.classic.dataframe", "pyspark.sql.pandas.conversion", "pyspark.core.rdd", "pyspark.traceback_utils",
)  # fmt: skip
"""Whose lines PySpark reads whenever it notes where rows were asked for; Python keeps lines that it has read."""


class Broken(Exception):
    """The slot cannot go on; the message says why, `hint` what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


def preload() -> None:
    """Raises Broken."""
    for name in _PRELOADED:
        try:
            importlib.import_module(name)
        except Exception as error:
            named = getattr(error, "name", None)
            if isinstance(error, ImportError) and named and name.split(".")[0] in ("pandas", "pyarrow", "numpy"):
                continue
            reason = f"The Python {sys.executable} cannot load {name}: {type(error).__name__}: {error}"
            raise Broken(reason, "Install its packages anew, or have another Python (millrace up --python).") from None
    for name in _WITHIN:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name, module in list(sys.modules.items()):
        if name.startswith(_ON_THE_STACK) and (file := getattr(module, "__file__", None)):
            linecache.getlines(file)
    gc.collect()
    gc.freeze()
