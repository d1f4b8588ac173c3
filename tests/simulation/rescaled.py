"""Rescales: what clients were told of them is what became of their jobs."""

from __future__ import annotations

import json

from millrace.core.messages.requirements import RequirementsUpdated
from tests.simulation.cluster import Cluster


def assert_rescaled(cluster: Cluster) -> None:
    """A job that has FINISHED had the vertices changed of which a client was told so. Where no log was lost: it may have had the
    request last."""
    for answers in cluster.client.replies().values():
        for each in answers:
            taken = isinstance(each, RequirementsUpdated) and each.changed and each.silent is None
            if isinstance(each, RequirementsUpdated) and taken and cluster.statuses()[each.job] == "FINISHED":
                stored = cluster.stored(each.job)
                assert stored is not None and stored.archive is not None
                ran = json.loads(cluster.world.storage.get(stored.archive))["detail"].get("rescaled") or {}
                assert {*each.changed} <= {*ran}, f"[R31]: {each.job} is told to get {each.changed}, and ran with {ran}"
