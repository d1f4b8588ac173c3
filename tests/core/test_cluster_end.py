"""The cluster's end as it stands in etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.messages import client, effects
from millrace.io.interfaces import Put, Txn
from millrace.runtime import shut_down
from millrace.runtime.performer import Fence, Refused
from tests.core.of_dispatcher_ports import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "storage")


def test_the_end_of_the_cluster_is_written_by_its_leader_and_not_again_once_it_was_opened(world: World) -> None:
    seen = client.ShutDown(step="ENDING", since_ms=1, live=3, suspended=2, workers=0, silent=["job-master/1"])
    effect = effects.EndCluster(name="1.7", shut_down=seen)
    end = world.ports.ports()[effects.EndCluster]
    with pytest.raises(Refused):
        end([effect], Fence("dispatcher", world.fence.epoch + 1))
    assert shut_down.parsed(world.store.get(shut_down.KEY)) is None
    for _ in range(2):
        assert end([effect], world.fence) == [effects.ClusterEnded(name="1.7")]
    ended = shut_down.parsed(world.store.get(shut_down.KEY))
    assert ended == shut_down.Ended(name="1.7", shut_down=seen)
    assert str(ended) == "the cluster is shut down: 3 jobs kept, 2 suspended; without an answer of job-master/1"
    assert shut_down.reopen(world.store) == ended
    assert (world.store.get(shut_down.KEY), shut_down.name_of_last(world.store), shut_down.reopen(world.store)) == (None, "1.7", None)
    assert end([effect], world.fence) == [effects.ClusterEnded(name="1.7")] and world.store.get(shut_down.KEY) is None
    assert end([effect.model_copy(update={"name": "1.9"})], world.fence) and world.store.get(shut_down.KEY) is not None


def test_an_end_that_nobody_can_read_is_none_and_goes(world: World) -> None:
    world.store.txn(Txn([], [Put(shut_down.KEY, b"{torn")]))
    assert shut_down.parsed(world.store.get(shut_down.KEY)) is None and shut_down.reopen(world.store) is None
    assert world.store.get(shut_down.KEY) is None and shut_down.name_of_last(world.store) == ""
