"""What a JobMaster shard keeps of TaskManagers that were lost, for a new life of the ResourceManager."""

from __future__ import annotations

from millrace.core.machine import PeerBorn
from millrace.core.messages import jobs
from millrace.core.messages.records import encode
from millrace.core.topics import OUTPUT_BYTES_MAX
from tests.core.of_job_master import RM, Shard


def lose(shard: Shard, name: str, incarnation: int) -> None:
    shard(jobs.TaskManagerLost(task_manager=name, incarnation=incarnation, reason="it was stopped"), RM)


def test_however_many_have_come_and_gone_one_message_tells_of_the_last_ones() -> None:
    """In a cluster that grows and shrinks each has a name of its own: all of them would not fit, and end the shard."""
    shard = Shard()
    for number in range(10_000):
        lose(shard, f"{number:0100d}", 10**12)
    said = shard(PeerBorn(RM, 2), RM)
    assert len(encode(said[0].body)) < OUTPUT_BYTES_MAX - 1000
    assert f"{9_999:0100d}" in said[0].body.lost


def test_one_that_is_lost_again_counts_as_lost_last() -> None:
    shard = Shard()
    for name, incarnation in (("a", 1), ("b", 3), ("a", 2), ("b", 1), ("a", 1)):
        lose(shard, name, incarnation)
    assert list(shard.state.lost.items()) == [("b", 3), ("a", 2)]
