"""What a cluster says in public is what its web service takes: what that refuses would be missing on the page for ever."""

from __future__ import annotations

from services.web.core.told import told
from tests.simulation.cluster import Cluster


def assert_shown(cluster: Cluster) -> None:
    """[R16]"""
    world = cluster.world
    logs = [("job.events", number) for number in range(world.topology.job_event_partitions)] + [("cluster.events", 0)]
    for topic, number in logs:
        for record in world.broker.log(topic, number).records:
            try:
                told(record.value)
            except ValueError as wrong:
                raise AssertionError(f"[R16]: the web service passes over a fact of {topic}, for {wrong}: {record.value!r:.300}") from None
