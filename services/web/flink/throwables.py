"""Causes as Flink's Java client reads them: a Java object, serialized.

The client demands `serialized-throwable` of each cause, and takes it for an `org.apache.flink.util.SerializedThrowable`. So the few bytes
of one are written here, by the Java Object Serialization Specification: the class with its base classes, then the fields, the base class's
first.
"""

from __future__ import annotations

import base64
import struct

from . import shapes

TEXT_MOST = 8000
_STREAM, _NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _END = b"\xac\xed\x00\x05", b"p", b"q", b"r", b"s", b"t", b"x"
_FIRST_HANDLE = 0x7E0000


def throwable(name: str, message: str, trace: str = "") -> shapes.Throwable:
    """A cause. `name`: the class of the exception, which its readers put before the message; `trace`: all that is to be read, in place of a
    Java stack."""
    message = message[:TEXT_MOST]
    trace = (trace or f"{name}: {message}")[:TEXT_MOST]
    return {"class": name, "stack-trace": trace, "serialized-throwable": base64.b64encode(_serialized(name, message, trace)).decode()}


def _serialized(name: str, message: str, trace: str) -> bytes:
    return b"".join([
        _STREAM, _OBJECT,
        _described("org.apache.flink.util.SerializedThrowable", 7284183123441947635, 2, [
            (b"L", "fullStringifiedStackTrace", _text("Ljava/lang/String;")),
            (b"L", "originalErrorClassName", _earlier(1)),
            (b"[", "serializedException", _text("[B")),
        ]),
        _described("java.lang.Exception", -3387516993124229948, 2, []),
        _described("java.lang.Throwable", -3042686055658047285, 3, [
            (b"L", "cause", _text("Ljava/lang/Throwable;")),
            (b"L", "detailMessage", _earlier(1)),
            (b"[", "stackTrace", _text("[Ljava/lang/StackTraceElement;")),
            (b"L", "suppressedExceptions", _text("Ljava/util/List;")),
        ]),
        _NULL,  # no further base class
        _NULL, _text(message), _NULL, _NULL, _END,  # the fields of Throwable, which writes them itself
        _text(trace), _text(name), _NULL,
    ])  # fmt: skip


def _described(name: str, version: int, flags: int, fields: list[tuple[bytes, str, bytes]]) -> bytes:
    """A class: its fields are type, name, and the name of their own class."""
    described = b"".join(kind + _utf(field) + of for kind, field, of in fields)
    return _CLASS + _utf(name) + struct.pack(">qBH", version, flags, len(fields)) + described + _END


def _earlier(number: int) -> bytes:
    """The class or string that came as this one, counted from 0."""
    return _REFERENCE + struct.pack(">I", _FIRST_HANDLE + number)


def _text(text: str) -> bytes:
    return _STRING + _utf(text)


def _utf(text: str) -> bytes:
    """Java's modified UTF-8, with its length in bytes: a NUL takes two, and what is beyond the basic plane is two surrogates."""
    units = text.encode("utf-16-be", "surrogatepass")
    points = (chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    encoded = b"".join(b"\xc0\x80" if point == "\0" else point.encode("utf-8", "surrogatepass") for point in points)
    return struct.pack(">H", len(encoded)) + encoded
