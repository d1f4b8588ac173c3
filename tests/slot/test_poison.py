"""One slot that bad code runs on again and again: after each, the next attempt finds what the very first one found [F18].

`POISONED=100 python -m pytest tests/slot/test_poison.py` runs as many; without it there are a few, to see that it works.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.slot.lifecycle import SESSION, Slot, wait_until
from tests.slot.test_lifecycle_attempts import KILLED
from tests.slot.test_lifecycle_reset import HELPERS, LEFT

POISONED = int(os.environ.get("POISONED", "10"))
SEED = 18
ENDS = {
    "a killed JVM": "import os\nos.kill(int(sc._jvm.java.lang.ProcessHandle.current().pid()), 9)",
    "a JVM that ends itself": "sc._jvm.java.lang.Runtime.getRuntime().halt(3)",
    "a JVM out of memory": "sc._jvm.java.lang.reflect.Array.newInstance(sc._jvm.java.lang.Object().getClass(), 2**31 - 1)",
    "an exit code": "import sys\nsys.exit(3)",
    "a crash": "import os\nos.kill(os.getpid(), 11)",
    "a stopped session": "spark.stop()",
    "a child that stays": "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '3600'])",
}
ALL = "{" + ", ".join(f"{name!r}: {expression}" for name, (_, expression) in LEFT.items()) + "}"
LOOK = HELPERS.replace("LOOK", ALL) + "print(json.dumps([look(), sc.parallelize(range(9), 2).map(lambda x: x * x).sum()]))"


def found(slot: Slot) -> str:
    """All that LOOK sees; a new JVM has a folder of its own."""
    attempt = slot.run(LOOK)
    assert attempt.ended["status"] == "finished", attempt.stderr
    return re.sub(r"driver-\d+", "driver", attempt.stdout)


def poison(slot: Slot, name: str, begun: Path) -> None:
    if name in KILLED:
        attempt = slot.start(SESSION + f"BEGUN = {str(begun)!r}\n" + KILLED[name])
        slot.until("running")
        wait_until(lambda: begun.exists() or "begun" in attempt.stdout, f"{name} began")
        slot.kill(attempt, "enough")
        slot.end(attempt)
    else:
        slot.run(HELPERS.replace("LOOK", "0") + (LEFT[name][0] if name in LEFT else ENDS[name]))


@pytest.mark.long
@pytest.mark.timeout(600 + 30 * POISONED)
def test_the_next_attempt_is_unaffected(slot: Slot, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    names = [*ENDS, *KILLED, *LEFT]
    clean = found(slot)
    done: list[str] = []
    while len(done) < POISONED:
        name = draw.choice(names)
        poison(slot, name, tmp_path / str(len(done)))
        done.append(name)
        assert found(slot) == clean, f"after {name}, number {len(done)}; before it {done[:-1]}"
        if len(done) % 10 == 0:
            print(f"{len(done)} of {POISONED}: the next attempt is unaffected")
