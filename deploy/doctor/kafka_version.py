"""Which version a Kafka broker is. No client library tells, so it is asked by an ApiVersions request of our own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

TIMEOUT_S = 3.0
FEATURE = "metadata.version"
LEVELS = (
    (1, "3.0"), (2, "3.1"), (3, "3.2"), (4, "3.3"), (8, "3.4"), (9, "3.5"), (12, "3.6"), (15, "3.7"), (20, "3.8"), (21, "3.9"),
    (22, "4.0"), (26, "4.1"), (28, "4.2"), (30, "4.3"),
)  # fmt: skip
"""The first level of the feature metadata.version that each version of Kafka knows."""
UNSUPPORTED = 35
REQUEST = struct.pack(">hhih", 18, 3, 1, 6) + b"doctor" + b"\0" + b"\x07doctor" + b"\x021" + b"\0"


def ask(host: str, port: int) -> tuple[str, str]:
    """(the version of the broker's software, the one that its cluster's metadata.version is of): "3.9"; "" where it has none, as with
    ZooKeeper or before 3.0. Raises OSError, ValueError."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        return versions(_exactly(connection, min(size, 1 << 20)))


def versions(answer: bytes) -> tuple[str, str]:
    """As `ask`, of the answer's bytes. Raises ValueError."""
    reader = _Reader(answer)
    reader.take(4)  # the correlation
    if reader.int16() == UNSUPPORTED:
        return "", ""
    for _ in range(reader.uvarint() - 1):  # the requests that it knows
        reader.take(6)
        reader.tags()
    reader.take(4)  # the time that it throttles
    known = dict(reader.tags())
    # In both, the highest level stands at a place of its own: supported are (lowest, highest), finalized (highest, lowest).
    supported = {name: second for name, _, second in _Reader(known.get(0, b"\1")).features()}
    finalized = {name: first for name, first, _ in _Reader(known.get(2, b"\1")).features()}
    return _of_level(supported.get(FEATURE, 0)), _of_level(finalized.get(FEATURE, 0))


def _of_level(level: int) -> str:
    found = [version for first, version in LEVELS if first <= level]
    newer = " or newer" if level > LEVELS[-1][0] else ""
    return found[-1] + newer if found else ""


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ValueError("the connection ended within an answer")
        data += more
    return data


class _Reader:
    """Takes Kafka's types from bytes, one after the other. All raise ValueError where they end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("the answer is cut off: is this Kafka?")
        return self._data[self._at - size : self._at]

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def tags(self) -> list[tuple[int, bytes]]:
        return [(self.uvarint(), self.take(self.uvarint())) for _ in range(self.uvarint())]

    def features(self) -> Iterator[tuple[str, int, int]]:
        for _ in range(self.uvarint() - 1):
            name = self.take(self.uvarint() - 1).decode(errors="replace")
            yield name, self.int16(), self.int16()
            self.tags()
