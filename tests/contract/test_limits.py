"""Input at each limit, in bytes: what is just taken and what is just refused are the same in memory and in reality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.base import canonical
from millrace.core.messages.client import SubmitJob
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.jobs import StartJob
from millrace.core.messages.records import Message, encode
from millrace.core.topics import OUTPUT_BYTES_MAX, TOPICS
from millrace.edge.requests import GRAPH_BYTES_MOST, check_graph
from millrace.io.etcd.store import TXN_MAX_BYTES, request_of
from millrace.io.interfaces import Compare, Put, Txn
from millrace.io.storage.store import Storage
from services.dispatcher.intake import Intake
from tests.contract.conftest import BusWorld, StoreWorld

OURS = 1_000_000 - 36  # of a value alone: the library counts 36 bytes for the rest of a record
STRANGERS = 1_048_504  # of a value alone: a batch of 1,048,576 bytes
COMMANDS = next(topic for topic in TOPICS if topic.name == "client.commands").config()


@pytest.mark.parametrize(
    "key, headers, beside",
    [
        (None, [], 0),
        (b"k" * 50, [], 50),
        (None, [("ce_type", b"t" * 500)], 7 + 500 + 1 + 2),
        (b"k", [("a", b"b"), ("cc", b"dd" * 100)], 1 + 2 + 202 + 2 + 3),
    ],
)
def test_the_largest_record(bus_world: BusWorld, key: bytes | None, headers: list[tuple[str, bytes]], beside: int) -> None:
    topic, bus = bus_world.topic(config={**COMMANDS}), bus_world.bus()
    most = OURS - beside
    with pytest.raises(ValueError, match=f"{most + 1} bytes is too large"):
        bus.append(topic, 0, b"x" * (most + 1), key=key, headers=headers)
    bus.append(topic, 0, b"x" * most, key=key, headers=headers)
    assert [len(one.value) for one in bus_world.read(bus_world.reader(bus, topic), 1)] == [most]
    assert bus_world.fatal == []


def test_a_stranger_writes_more_than_we_do_and_no_more_than_the_topic_takes(bus_world: BusWorld) -> None:
    topic, bus = bus_world.topic(config={**COMMANDS}), bus_world.bus()
    assert not bus_world.takes(topic, b"x" * (STRANGERS + 1))
    assert bus_world.takes(topic, b"x" * STRANGERS) and STRANGERS > OURS
    assert [len(one.value) for one in bus_world.read(bus_world.reader(bus, topic), 1)] == [STRANGERS]


@pytest.mark.parametrize("reads, compares", [(0, 0), (1, 1), (40, 40)])
def test_the_largest_transaction(store_world: StoreWorld, reads: int, compares: int) -> None:
    store = store_world.store()

    def of(size: int) -> Txn:
        return Txn([Compare(f"c{n}", 0) for n in range(compares)], [Put("a", b"x" * size)], [f"r{n}" for n in range(reads)])

    room = TXN_MAX_BYTES - request_of(of(900_000), store_world.prefix()).ByteSize() + 900_000
    with pytest.raises(ValueError, match="1048576"):
        store.txn(of(room + 1))
    assert store.get("a") is None
    assert store.txn(of(room)).succeeded
    entry = store.get("a")
    assert entry is not None and len(entry.value) == room


def _submission(size: int) -> bytes:
    """A SubmitJob whose graph has exactly so many bytes as it is stored."""

    def of(padding: int) -> dict[str, Any]:
        parts = [padding - 60_000 * n for n in range(5)]  # a text alone has a limit of its own
        texts = ["x" * min(max(part, 0), 60_000) for part in parts]
        return {"name": "n", "vertices": {f"a{n}": {"sql": f"SELECT '{text}' AS a"} for n, text in enumerate(texts)}}

    checked = check_graph(of(0), {}, DEFAULT_LIMITS)
    assert checked.stored is not None
    padding = size - len(canonical(checked.stored))
    return SubmitJob(job="j", graph=of(padding), reply_to="me", correlation="1").model_dump_json().encode()


def test_the_largest_graph_fits_each_record_and_transaction_on_its_way(
    bus_world: BusWorld, store_world: StoreWorld, tmp_path: Path
) -> None:
    topic = bus_world.topic(config={**COMMANDS})
    for size in (GRAPH_BYTES_MOST, GRAPH_BYTES_MOST + 1):
        assert bus_world.takes(topic, _submission(size))
    bus, intake = bus_world.bus(), Intake(Storage(str(tmp_path)), DEFAULT_LIMITS)
    taken, refused = (intake.record(each, "log", -1) for each in bus_world.read(bus_world.reader(bus, topic), 2))
    assert [each.message for each in refused.problems] == [
        f"with parameters put in, the graph has {GRAPH_BYTES_MOST + 1} bytes, more than the {GRAPH_BYTES_MOST} allowed"
    ]
    assert taken.problems == [] and taken.graph is not None
    bus.append(topic, 0, encode(taken))
    bus.append(topic, 0, encode(Message(to="job-master/0", to_life=1, sender="dispatcher", life=1, key=(1, 1), prev=None, body=StartJob(
        job="j", acceptance="a", graph=taken.graph, accepted_ms=1,
    ))))  # fmt: skip
    assert len(bus_world.read(bus_world.reader(bus, topic, offset=2), 2)) == 2
    stored = StoredJob(state="accepted", digest="d", acceptance="a", shard=0, accepted_ms=1, graph=taken.graph)
    assert store_world.store().txn(Txn([Compare("jobs/j", 0)], [Put("jobs/j", stored.model_dump_json().encode())])).succeeded


def test_what_a_machine_may_say_fits_a_record_with_all_that_goes_along(bus_world: BusWorld) -> None:
    """A value of `OUTPUT_BYTES_MAX` is that of the body alone: the link of the chain and the headers come on top."""
    topic, bus = bus_world.topic(config={**COMMANDS}), bus_world.bus()
    bus.append(topic, 0, b"y" * (OUTPUT_BYTES_MAX + 4_096), key=b"k" * 255, headers=[(f"ce_{n}", b"t" * 255) for n in range(12)])
    assert len(bus_world.read(bus_world.reader(bus, topic), 1)) == 1
