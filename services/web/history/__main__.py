"""`python -m services.web.history`: what `millrace history` does, with settings as any service has them."""

from __future__ import annotations

import sys

from .running import run
from .settings import HistorySettings

if __name__ == "__main__":
    sys.exit(run(HistorySettings.load_or_exit()))
