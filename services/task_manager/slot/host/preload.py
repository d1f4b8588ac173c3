"""What a host has imported before it forks the process of an attempt."""

from __future__ import annotations

import gc
import importlib
import sys

# Imported before any fork: what every attempt needs, and what PySpark would import lazily (300 ms) in each of them.
_PRELOADED = (
    "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types", "pyspark.testing", "pyspark.cloudpickle", "pandas", "pyarrow",
    "pyarrow.parquet", "numpy", "_millrace_slot.attempt.run", "_millrace_slot.attempt.errors", "_millrace_slot.control.main",
)  # fmt: skip


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
    gc.collect()
    gc.freeze()
