"""Questions to Kafka from several threads: one that is given a new client takes no answer from the others."""

from __future__ import annotations

import threading
from typing import Any

import confluent_kafka.admin
import pytest

from deploy.local.processes import free_port
from millrace.io import kafka
from millrace.io.interfaces import Unavailable


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

        def list_offsets(self, *args: Any, **more: Any) -> Any:
            asked = super().list_offsets(*args, **more)
            begun.set()
            return asked

    monkeypatch.setattr(kafka, "AdminClient", Client)
    admin = kafka.KafkaAdmin(f"127.0.0.1:{free_port()}", timeout_s=1.0)
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
