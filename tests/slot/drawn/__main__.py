"""python -m tests.slot.drawn 0-99: draws these graphs; of 17 alone it keeps the folder, with its graph and data, below build/drawn."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from tests.slot.attempts import local_spark
from tests.slot.drawn.check import differences


def main() -> int:
    first, _, last = sys.argv[1].partition("-")
    folder, wrong = Path(sys.argv[2] if len(sys.argv) > 2 else "build/drawn").absolute(), 0
    with local_spark(folder) as spark:
        for seed in range(int(first), int(last or first) + 1):
            place, began = folder / str(seed), time.monotonic()
            shutil.rmtree(place, ignore_errors=True)
            try:
                found = differences(seed, spark, place)
            except Exception as error:
                found = [f"it could not be drawn: {type(error).__name__}: {str(error)[:600]}"]
            wrong += bool(found)
            print(f"{seed}: {'; '.join(found) or 'equal'} ({time.monotonic() - began:.1f} s)", flush=True)
            if not found and last:
                shutil.rmtree(place)
    print(f"{wrong} differ")
    return bool(wrong)


sys.exit(main())
