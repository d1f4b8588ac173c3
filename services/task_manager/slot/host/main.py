"""The host of a slot: the process between TaskManager and attempts, and the zygote of the latter.

Started as ``python host/main.py PARENT_PID BEATS CONF``, where CONF is the file of ``millrace.edge.spark_conf``.
It reads orders on stdin and writes events to stdout, JSON lines both (see `wire`).

It never attaches to a JVM itself (a fork of an attached process could not attach again), runs no user code and has one
thread. When its TaskManager ends, so does it, and everything below it. While an attempt runs, it ends also when its TaskManager is stopped
or hangs: from the file descriptor BEATS it reads, again and again, for how many milliseconds at most it may receive nothing there.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # loaded under a private name, so that no name of ours is in a user's way
    import importlib.util

    _HERE = os.path.dirname(os.path.abspath(__file__))
    _FOLDER = os.path.dirname(_HERE)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    for _name, _file in (("_millrace_slot", os.path.join(_FOLDER, "__init__.py")), ("_millrace_slot.common.conf", sys.argv[3])):
        _spec = importlib.util.spec_from_file_location(
            _name, _file, submodule_search_locations=[_FOLDER] if _name == "_millrace_slot" else None
        )
        assert _spec is not None and _spec.loader is not None
        sys.modules[_name] = _module = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_module)
    sys.exit(importlib.import_module("_millrace_slot.host.main").main())

import asyncio
import contextlib
import importlib
import json
import signal
from types import FrameType
from typing import Any

from ..common import jvm, procs
from ..common.config import SlotConfig
from . import last_resort
from .life import Host
from .out import Out, Stopped
from .preload import Broken, preload
from .watchdog import watchdog

_LINE_BYTES = 64 << 20
_AGAIN_S = 8.0  # more than a life that was cancelled waits for its JVM


async def _main(out: Out, commands: Any) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), commands)
    config = SlotConfig.from_json(json.loads(await reader.readline())["config"])
    try:
        java = jvm.find_java(config.java_home)
        spark_home = jvm.find_spark(config.pyspark_version)
    except jvm.CannotStart as broken:
        out.send({"is": "broken", "reason": broken.reason, "hint": broken.hint})
        return
    try:
        await _serve(Host(config, java, spark_home, out), reader)
    except Broken as broken:
        out.send({"is": "broken", "reason": str(broken), "hint": broken.hint})


async def _serve(host: Host, reader: asyncio.StreamReader) -> None:
    """Lets the host live until it is ordered to stop, its TaskManager is gone, or it cannot go on."""
    driver = host.launch()
    preload()  # while the JVM starts
    lowering = asyncio.ensure_future(_lower_session())
    life = asyncio.ensure_future(host.live(driver))
    stop = asyncio.ensure_future(_take_orders(reader, host))
    _on_signals(stop)
    beats = asyncio.ensure_future(watchdog(int(sys.argv[2]), host.attempts))
    await asyncio.wait({life, stop, beats}, return_when=asyncio.FIRST_COMPLETED)
    last_resort.arm()
    lowering.cancel()
    if life.done():
        life.result()
    while not life.done():  # asked again: what a JVM's end raises in the same moment takes the place of a cancellation
        life.cancel()
        await asyncio.wait({life}, timeout=_AGAIN_S)


def _on_signals(stop: asyncio.Future[None]) -> None:
    """Has a signal that asks for the end cancel `stop`, and bounds the end from that moment, also where the loop has no turn. It holds
    for as long as the process lives: a handler of the loop's goes with that, and a signal that came later killed a host that cleaned."""
    loop = asyncio.get_running_loop()

    def end(signum: int, frame: FrameType | None) -> None:
        last_resort.arm()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.cancel)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, end)


async def _lower_session() -> None:
    """Late is soon enough: it holds for all that the session has started by then."""
    while not procs.lower_session():
        await asyncio.sleep(procs.TURN_S)


async def _take_orders(reader: asyncio.StreamReader, host: Host) -> None:
    """Passes on orders until the TaskManager orders the end or is gone."""
    while line := await reader.readline():
        try:
            host.order(json.loads(line))
        except Stopped:
            return


def main() -> int:
    """The host's process; returns its exit code."""
    procs.die_with(int(sys.argv[1]), signal.SIGTERM)
    procs.adopt_orphans()
    os.nice(procs.NICENESS)
    # Only `Out` writes to the TaskManager: what anybody prints goes to the host's stderr.
    commands, out = os.fdopen(os.dup(0), "rb", buffering=0), Out(os.dup(1))
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.dup2(2, 1)
    os.close(devnull)
    try:
        asyncio.run(_main(out, commands))
    except (Stopped, KeyboardInterrupt):
        pass
    finally:
        last_resort.arm()
        procs.kill_below(os.getpid())
        out.finish()
    return 0
