"""Stopping by signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import signal, threading
from millrace.runtime.signals import on_stop

stopping, calls = threading.Event(), []

def ask():
    calls.append(threading.current_thread().name)
    stopping.set()

on_stop(ask)
with stopping._cond:  # as in the middle of wait() or set()
    signal.raise_signal(signal.{name})
    signal.raise_signal(signal.SIGTERM)
stopping.wait()
signal.raise_signal(signal.SIGTERM)
print(calls)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_that_come_while_the_main_thread_holds_the_lock_stop_the_process_once(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(name=name)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['signals']\n", "")


ELSEWHERE = """
import signal, threading
from millrace.runtime.signals import on_stop

stopping, began = threading.Event(), threading.Event()
on_stop(stopping.set)

def other():
    while not threading.main_thread().waits:
        began.wait(0.01)
    began.wait(0.2)  # the main thread is in its lock by then; if not, the test is only easier
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    began.wait()

threading.main_thread().waits = False
threading.Thread(target=other, daemon=True).start()
threading.main_thread().waits = True
stopping.wait()
print("stopped")
"""


def test_a_signal_that_the_system_gives_to_another_thread_stops_the_process_too() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
