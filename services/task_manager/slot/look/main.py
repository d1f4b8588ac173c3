"""The process that looks at a JVM for the host, once: memory, garbage collection, threads. It is forked for one question.

A JVM that hangs blocks this process alone, and the host ends it. What is asked is all of Metrics, a library that Spark brings along:
the JVM's own beans are classes that a call from outside may not reach.
"""

from __future__ import annotations

import gc
import os
import socket
from typing import Any

from .. import wire
from ..common import attach

_CUT = "(cut: there are more threads)"


def main(channel: socket.socket, port: int, secret: str, threads: bool) -> None:
    """Sends one `wire.LookAnswer` on ``channel``, and ends."""
    os.environ["PYSPARK_PIN_THREAD"] = "false"  # else a thread tells the JVM a second later what nobody has any more
    try:
        answer = look(attach.connect(port, secret), threads)
    except Exception as error:
        answer = {"reason": f"its JVM cannot be asked: {type(error).__name__}"}
    gc.collect()  # the JVM keeps what it gave away until it is told that nobody has it; with the answer this process may be ended
    with channel:
        channel.sendall(wire.line_of(answer))


def look(gateway: Any, threads: bool) -> wire.LookAnswer:
    """What is seen through a gateway of one's own."""
    jvm = gateway.jvm
    answer: wire.LookAnswer = {"jvm": _status(jvm)}
    if threads:
        answer["threads"] = _dump(jvm)
    return answer


def _status(jvm: Any) -> wire.JvmStatus:
    metrics, beans = jvm.com.codahale.metrics.jvm, jvm.java.lang.management.ManagementFactory
    memory, collections = metrics.MemoryUsageGaugeSet().getMetrics(), metrics.GarbageCollectorMetricSet().getMetrics()
    pools = metrics.BufferPoolMetricSet(beans.getPlatformMBeanServer()).getMetrics()
    system = jvm.javax.management.ObjectName("java.lang:type=OperatingSystem")
    names = sorted(str(name).removesuffix(".count") for name in collections if str(name).endswith(".count"))
    return {
        "version": str(jvm.java.lang.System.getProperty("java.runtime.version"))[: wire.TEXT_MAX],
        "uptime_ms": _count(metrics.JvmAttributeGaugeSet().getMetrics(), "uptime"),
        "threads": _count(metrics.ThreadStatesGaugeSet().getMetrics(), "count"),
        "heap": _memory(memory, "heap"),
        "non_heap": _memory(memory, "non-heap"),
        "direct": _buffers(pools, "direct"),
        "mapped": _buffers(pools, "mapped"),
        "collectors": [
            {"name": name[: wire.TEXT_MAX], "count": _count(collections, f"{name}.count"), "time_ms": _count(collections, f"{name}.time")}
            for name in names[: wire.COLLECTORS_MAX]
        ],
        "metaspace": _memory(memory, "pools.Metaspace") if "pools.Metaspace.max" in memory else None,  # another maker's JVM has none
        "cpu_ms": int(metrics.JmxAttributeGauge(system, "ProcessCpuTime").getValue()) // 1_000_000,
    }


def _memory(gauges: Any, name: str) -> wire.MemoryUse:
    most = int(gauges[f"{name}.max"].getValue())
    return {
        "used": _count(gauges, f"{name}.used"), "committed": _count(gauges, f"{name}.committed"), "max": most if most >= 0 else None
    }  # fmt: skip


def _buffers(gauges: Any, name: str) -> wire.Buffers:
    return {
        "count": _count(gauges, f"{name}.count"), "used": _count(gauges, f"{name}.used"), "capacity": _count(gauges, f"{name}.capacity")
    }  # fmt: skip


def _count(gauges: Any, name: str) -> int:
    """A gauge of a set; 0: the JVM has none of this name, or does not know."""
    gauge = gauges.get(name)
    return max(0, int(gauge.getValue())) if gauge is not None else 0


def _dump(jvm: Any) -> str:
    """All threads with their frames, written by the JVM in one call."""
    out = jvm.java.io.ByteArrayOutputStream()
    jvm.com.codahale.metrics.jvm.ThreadDump(jvm.java.lang.management.ManagementFactory.getThreadMXBean()).dump(out)
    text = str(out.toString("UTF-8"))
    return text if len(text) <= wire.DUMP_CHARS_MAX else text[: wire.DUMP_CHARS_MAX].rpartition("\n\n")[0] + f"\n\n{_CUT}\n"
