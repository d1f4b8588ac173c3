"""The page over a real stack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.downloads import CHECKOUT

from .pictures import CHROMIUM

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")]


@pytest.mark.timeout(2400)
def test_every_screen_and_every_action_over_a_real_stack(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.web.page.live", str(tmp_path / "pictures")]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=2300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "nothing is wrong" in done.stdout
