"""Chaos on real Kafka and etcd, from a fixed seed: three minutes, and one more with TaskManagers that come and go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.downloads import CHECKOUT
from tests.bench.clusters import environment


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("options", [["--minutes", "3"], ["--minutes", "1", "--grows"]], ids=["all are there", "they come and go"])
def test_nothing_is_lost_or_doubled(options: list[str], stacks_home: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", *options, "--seed", "1"]
    ran = subprocess.run(
        command, cwd=CHECKOUT, env=environment(), capture_output=True, text=True, timeout=560, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "nothing was lost or doubled" in ran.stdout
