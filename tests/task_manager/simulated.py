"""`python -m tests.task_manager.simulated`: a TaskManager process with simulated slots, for figures that Spark would hide.

Takes the settings of `python -m services.task_manager`.
"""

from __future__ import annotations

import sys

from services.task_manager.__main__ import main
from tests.task_manager.simulated_slot import SimulatedSlot

if __name__ == "__main__":
    sys.exit(main(factory=SimulatedSlot))
