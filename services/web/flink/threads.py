"""Thread dumps as Flink has them: an entry for each thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from millrace.core.messages.processes import ThreadDump

from . import cluster_shapes as shapes

_NAME = re.compile(r'"(.*?)"(?: |$)')


def infos(dumps: Iterable[ThreadDump], whose: str = "") -> Iterator[shapes.ThreadInfo]:
    """`whose`: the process, where there are several."""
    for dump in dumps:
        of = ", ".join(filter(None, (whose, "" if dump.of == "the process" else dump.of)))
        if dump.no_answer is not None:
            yield {"threadName": of or "the process", "stringifiedThreadInfo": f"{dump.no_answer}\n"}
        for paragraph in filter(str.strip, (dump.text or "").split("\n\n")):
            first = paragraph.strip().partition("\n")[0]
            found = _NAME.match(first)
            name = found[1] if found is not None else first
            yield {"threadName": f"{of}: {name}" if of else name, "stringifiedThreadInfo": paragraph.strip("\n") + "\n"}
        if dump.truncated:
            yield {"threadName": f"{of}: ..." if of else "...", "stringifiedThreadInfo": "There are more than fit into an answer.\n"}
