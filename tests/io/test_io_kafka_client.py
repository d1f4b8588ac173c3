"""A client for administration that is garbage when its last answer comes: the process must outlive it."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from deploy.local.downloads import CHECKOUT
from millrace.io.kafka import client as kafka_client
from tests.bench.clusters import environment

GIVEN_UP = """
import gc, threading, time
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from millrace.io.kafka import client as kafka_client

def give_up(answered):
    client = kafka_client.AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    [asked] = client.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}, request_timeout=0.3).values()
    asked.add_done_callback(lambda _: (print("collected", gc.collect() > 0), answered.set()))
    holding: list = [client]
    holding.append(holding)  # as an exception and its frames do

gc.disable()
answered = threading.Event()
give_up(answered)
assert answered.wait(20)
while kafka_client._LEFT:
    kafka_client.end_left()
    time.sleep(0.01)
print("ended")
"""


STILL_HELD = """
import ctypes, sys, threading, time
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from millrace.io.kafka import client as kafka_client

def hold(asked):
    client = kafka_client.AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    client.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}, request_timeout=0.5)
    asked.set()
    time.sleep(100)

asked = threading.Event()
threading.Thread(target=hold, args=(asked,), daemon=True).start()
asked.wait()
library = ctypes.CDLL(None)
library.on_exit(library.sleep, None)  # behind Python's end, for as many seconds as the exit code says: the answer comes then
sys.exit(2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="on_exit is the C library's of Linux alone")
def test_an_answer_that_comes_behind_the_end_of_python_does_not_end_the_process_by_a_signal() -> None:
    """A TaskManager that was stopped, and ended for it, had asked what its topic is: it died by SIGSEGV."""
    ran = subprocess.run(
        [sys.executable, "-c", STILL_HELD], cwd=CHECKOUT, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", "")


def test_one_that_is_collected_on_its_own_thread_ends_on_another() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", GIVEN_UP], cwd=CHECKOUT, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "collected True\nended\n", "")


def test_one_that_somebody_holds_is_kept_by_a_python_that_counts_one_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 3.14 does, emulated: what looks at the count must not let go a client whose garbage is not all gone."""
    counted = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda thing: counted(thing) - 2)  # the lambda's own two, and one less
    left, held = kafka_client._LEFT, kafka_client.AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    left.append(held)
    try:
        kafka_client.end_left()
        assert list(left) == [held]
        del held
        kafka_client.end_left()  # now nobody has it, and it says so itself, once
        kafka_client.end_left()
        assert not left
    finally:
        left.clear()
        gc.collect()
