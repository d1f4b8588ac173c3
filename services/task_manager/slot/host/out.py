"""The host: what it sends to its TaskManager."""

from __future__ import annotations

import asyncio
import os

from .. import wire


class Stopped(Exception):
    """The TaskManager ordered the end of the slot, or is gone."""


class Out:
    """The pipe to the TaskManager. A TaskManager that does not read holds up nothing here: the host must notice that it hangs."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""  # what the pipe did not take yet
        os.set_blocking(fd, False)

    def send(self, event: wire.Event) -> None:
        """Sends an event, in order; raises Stopped if the TaskManager is gone."""
        data = wire.line_of(event)
        if self._rest:
            self._rest += data
            return
        try:
            data = self._taken(data)
        except BrokenPipeError:
            raise Stopped from None
        if data:
            self._rest = data
            asyncio.get_running_loop().add_writer(self._fd, self._go_on)

    def offer(self, event: wire.Event) -> None:
        """As `send`, but while the pipe is full progress is dropped: a later one tells more. An answer comes once."""
        if not self._rest or event["is"] == "status":
            self.send(event)

    def _taken(self, data: bytes) -> bytes:
        """Writes what the pipe takes now; returns the rest."""
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BlockingIOError:
            pass
        return data

    def _go_on(self) -> None:
        try:
            self._rest = self._taken(self._rest)
        except BrokenPipeError:
            self._rest = b""  # its orders have ended as well, and so will this host
        if not self._rest:
            asyncio.get_running_loop().remove_writer(self._fd)

    def finish(self) -> None:
        """Waits until all is sent, or the TaskManager is gone. Last of all: nothing that could do harm may live any more."""
        os.set_blocking(self._fd, True)
        try:
            self._taken(self._rest)
        except BrokenPipeError:
            pass
