"""Questions to Kafka: from several threads, where one that is given a new client takes no answer from the others; and of a partition that
has no leader for an instant."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo

from deploy.local.processes import free_port
from millrace.io.interfaces import Unavailable
from millrace.io.kafka import admin as kafka_admin
from millrace.io.kafka.logs import KafkaLogs


class Connected:
    """A client that has a broker."""

    def __init__(self, config: dict[str, Any]) -> None: ...

    def describe_cluster(self, **_: Any) -> Future:
        asked: Future = Future()
        asked.set_result(None)
        return asked


@pytest.mark.parametrize("ask", ["log_id", "offsets"])
def test_who_waits_gets_an_answer_although_the_client_is_replaced_meanwhile(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    class Client(confluent_kafka.admin.AdminClient):
        def describe_topics(self, *args: Any, **more: Any) -> Any:
            asked = super().describe_topics(*args, **more)
            begun.set()
            return asked

        def describe_cluster(self, **more: Any) -> Any:
            asked = super().describe_cluster(**more)
            begun.set()
            return asked

    monkeypatch.setattr(kafka_admin, "AdminClient", Client)
    admin = kafka_admin.KafkaAdmin(f"127.0.0.1:{free_port()}", timeout_s=1.0)
    answers: list[str] = []

    def wait() -> None:
        try:
            admin.log_id("topic") if ask == "log_id" else admin.offsets("topic", 0)
        except Unavailable as failure:
            answers.append(str(failure))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(30)
    with admin._making:
        admin._made = None  # as another thread does that was told of another leader
    waiting.join(30)
    assert len(answers) == 1, "the answer to a question must come, be it that there is none"


def test_no_answer_of_a_broker_that_hangs_is_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library ends such a question without an error: with the offset -1001 in it, as a log would have that ends there."""

    class Client(Connected):
        def list_offsets(self, places: dict[Any, Any], **_: Any) -> dict[Any, Future]:
            asked: Future = Future()
            asked.set_result(ListOffsetsResultInfo(-1001, 0, 0))
            return {place: asked for place in places}

    monkeypatch.setattr(kafka_admin, "AdminClient", Client)
    logs = KafkaLogs("nowhere:1", client_id="test")
    for ask in (lambda: logs.offsets("topic", 0), lambda: logs.ends([("topic", 0)]), lambda: logs.offset_at("topic", 0, 1)):
        with pytest.raises(Unavailable, match="no answer within 5 s"):
            ask()


def test_a_client_that_knows_no_leader_any_more_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays so for ever; a new one looks again. The same is said of a partition that is not there, which nobody waits for."""
    made: list[object] = []

    class Client(Connected):
        def __init__(self, config: dict[str, Any]) -> None:
            made.append(self)

        def list_offsets(self, places: dict[Any, Any], **_: Any) -> dict[Any, Future]:
            asked: Future = Future()
            if len(made) == 1:
                asked.set_exception(KafkaException(KafkaError(KafkaError._NOENT)))
            else:
                asked.set_result(ListOffsetsResultInfo(7, 0, 0))
            return {place: asked for place in places}

    monkeypatch.setattr(kafka_admin, "AdminClient", Client)
    logs = KafkaLogs("nowhere:1", client_id="test")
    with pytest.raises(Unavailable, match="could not answer for the offsets of topic"):
        logs.ends([("topic", 0)])
    assert logs.ends([("topic", 0)]) == {("topic", 0): (7, 7)}


def offsets(refusals: int, timeout_s: float, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The answer of a broker that has no leader for the partition, so many times."""
    left = [refusals]

    class Client(Connected):
        def list_offsets(self, places: dict[Any, Any], **_: Any) -> dict[Any, Future]:
            asked: Future = Future()
            if left[0] > 0:
                asked.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
                left[0] -= 1
            else:
                asked.set_result(ListOffsetsResultInfo(7, 0, 0))
            return {place: asked for place in places}

    monkeypatch.setattr(kafka_admin, "AdminClient", Client)
    return kafka_admin.KafkaAdmin("nowhere:1", timeout_s=timeout_s).offsets("topic", 0)


def test_a_partition_without_a_leader_for_an_instant_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offsets(5, 60.0, monkeypatch) == (7, 7)


def test_a_partition_that_stays_without_a_leader_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match=r"could not answer for the offsets of topic\[0\]"):
        offsets(10**9, 0.2, monkeypatch)
