"""From where a replica of a scope goes on: the newest snapshot that it may use, or the start of the generation's log."""

from __future__ import annotations

from millrace.core.fold import ScopeState
from millrace.io.interfaces import Bus, Unavailable

from .generations import Generation, LogReplaced
from .snapshots import Snapshots


class OtherBuild(Unavailable):
    """The log is folded by another build."""

    def __init__(self, build: str) -> None:
        super().__init__(f"the log is folded by build {build}")
        self.build = build


class Loading:
    """Remembers what this process could not read, and where it gave the log to another build; for one scope."""

    def __init__(self, snapshots: Snapshots, bus: Bus, topic: str, partition: int, build: str) -> None:
        self._snapshots, self._bus, self._inbox, self._build = snapshots, bus, (topic, partition), build
        self._unread = (0, 0)  # (generation, offset) of what a reader could not read
        self._ceded = (0, 0)  # (generation, offset) of the record with which another build began
        self._ceded_to = ""

    def cede(self, generation: int, offset: int, build: str) -> None:
        """Another build goes on with the log from this record on."""
        self._ceded, self._ceded_to = (generation, offset), build

    def unread(self, generation: int, offset: int) -> bool:
        """What is here cannot be read. Whether it was the same at the last try."""
        before, self._unread = self._unread, (generation, offset)
        return before == self._unread

    def state(self, generation: Generation, led: bool) -> ScopeState | None:  # [R8]
        """The state to go on from; None: the log from its start. led: another process leads the scope. Raises OtherBuild while the log is
        not this build's to fold [R27], Unavailable, StorageError, Unreadable."""
        topic, partition = self._inbox
        pointer = self._snapshots.newest(generation.number)
        behind = pointer.offset if pointer is not None else 0
        if pointer is not None and pointer.build != self._build and not pointer.final:
            raise OtherBuild(pointer.build)
        if self._ceded[0] == generation.number and self._ceded[1] >= behind:
            raise OtherBuild(self._ceded_to)
        unread = self._unread[1] if self._unread[0] == generation.number else -1
        if unread >= behind and led:
            raise Unavailable(f"{topic} cannot be read at offset {unread}, which its leader has read: a later snapshot is waited for")
        loaded = self._snapshots.load(pointer) if pointer is not None else None
        first = self._bus.offsets(topic, partition)[0]
        if first > (loaded[0].next_offset if loaded is not None else generation.first_offset):
            raise LogReplaced(generation, f"{topic} begins at {first}, and no whole snapshot reaches so far")
        return loaded[0] if loaded is not None else None
