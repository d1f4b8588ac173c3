"""The library's client for administration, which ends where it may end."""

from __future__ import annotations

import atexit
import sys
from collections import deque
from typing import Any
from weakref import WeakSet

import confluent_kafka.admin

_LEFT: deque[AdminClient] = deque()
"""What nobody holds any more, and what is still to be ended."""
_LIVE: WeakSet[AdminClient] = WeakSet()


class AdminClient(confluent_kafka.admin.AdminClient):
    """confluent-kafka's, ended by a thread of ours; not by whoever drops it last.

    A callback of librdkafka runs Python code on the library's own thread, and Python may collect garbage there. If that destroys the very
    client whose callback is running, its destructor would join its own thread, and librdkafka aborts the process. A client gets there
    when it was asked two things and given up at the first answer: an exception and its frames, which refer to each other, hold it.
    """

    def __init__(self, config: dict[str, Any], **more: Any) -> None:
        end_left()
        super().__init__(config, **more)
        _LIVE.add(self)

    def __del__(self, left: deque[AdminClient] = _LEFT) -> None:
        left.append(self)


def end_left() -> None:
    """Ends the clients that nobody holds any more, on this thread. An unanswered question to one of them never ends."""
    alone = _taken(deque([object()]))[1]
    for _ in range(len(_LEFT)):
        try:
            client, held = _taken(_LEFT)
        except IndexError:  # another thread was first
            return
        if held > alone:  # the garbage that it was in is not all gone
            _LEFT.append(client)
        del client


@atexit.register
def end_all() -> None:
    """Ends all clients, while Python still runs: threads that nobody waits for hold some. An answer that comes behind the
    interpreter's end runs Python code without one: a process that has done its work ends by SIGSEGV."""
    for client in (*_LIVE, *_LEFT):
        client.__exit__(None, None, None)


def _taken(left: deque[Any]) -> tuple[Any, int]:
    """The first of `left`, and what Python says of how often it is held. That is compared with an object of which nobody else knows: some
    Pythons count the argument of the question, those from 3.14 on do not."""
    first = left.popleft()
    return first, sys.getrefcount(first)
