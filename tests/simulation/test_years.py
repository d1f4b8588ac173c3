"""Two years of uptime: nothing grows, and where a bound is taken away, something does."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.io.storage.store import Storage, Swept
from services.dispatcher.housekeeping import Housekeeping
from tests.simulation.trial import quiet_logs
from tests.simulation.years import years_pass

NEVER = 1 << 50


@pytest.mark.long
def test_two_years_leave_state_snapshots_etcd_storage_and_topics_as_large_as_one() -> None:
    quiet_logs()
    years_pass(0)


LIFTED: dict[str, tuple[tuple[Any, str, Any], str]] = {
    "peers that parted": (("millrace.core.fold", "PARTED_KEPT", NEVER), "peers of"),
    "tombstones": ((Housekeeping, "_forget", lambda *_: None), "keys in etcd"),
    "leavings": ((Storage, "sweep", lambda *_: Swept(0, 0)), "files in storage"),
    "large records": (("millrace.runtime.saving", "SNAPSHOT_BYTES", NEVER), "inbox"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", LIFTED)
def test_without_its_bound_it_grows(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet_logs()
    (owner, name, value), grows = LIFTED[what]
    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", value)
    else:
        monkeypatch.setattr(owner, name, value)
    with pytest.raises(AssertionError, match=rf"\[R32\]: {grows}"):
        years_pass(0)
