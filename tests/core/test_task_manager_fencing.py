"""When a TaskManager ends itself."""

from __future__ import annotations

from services.task_manager.core.fencing import STEP_MAX_MS, Silence, asks_etcd, is_over, patience_ms


def test_it_ends_itself_before_it_is_declared_lost():
    assert patience_ms(600) == 450
    assert not asks_etcd(199, 600) and asks_etcd(200, 600)
    assert not is_over(350, 600) and is_over(351, 600), "a tick later it would be more than 450"


def test_silence_is_what_neither_kafka_nor_etcd_broke():
    silence = Silence(turned_ms=1_000)
    silence.turn(1_100)
    silence.turn(1_200)
    assert (silence.kafka_ms, silence.both_ms) == (200, 200)
    silence.etcd_answered()  # a paused broker is no reason to end
    silence.turn(1_300)
    assert (silence.kafka_ms, silence.both_ms) == (300, 100)
    silence.kafka_answered()
    assert (silence.kafka_ms, silence.both_ms) == (0, 0)


def test_who_was_stopped_did_not_listen():
    silence = Silence(turned_ms=1_000)
    silence.turn(61_000)
    assert silence.both_ms == STEP_MAX_MS
    silence.turn(60_000)  # a clock that goes back
    assert silence.both_ms == STEP_MAX_MS
