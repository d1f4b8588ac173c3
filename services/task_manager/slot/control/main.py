"""The process beside a JVM that opens, quiets, resets and probes it for the host.

A call into a JVM that hangs blocks this process, never the host, which ends both and starts anew.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

from .. import wire
from ..common import attach, jvm
from ..common.folders import remove
from ..common.training import steps
from .quiet import Workers, quiet_down
from .reset import Baseline
from .warming import Warming


class Control:
    """The state of one JVM as its control process sees it. A method for each order of the host, which raises what went wrong."""

    def __init__(self, gateway: Any, folder: str, jvm_pid: int, warming_rounds: int) -> None:
        self._gateway = gateway
        self._classes = getattr(gateway.jvm, attach.SESSION)
        self._folder = folder
        self._workers = Workers(jvm_pid)
        self._warming_rounds = warming_rounds
        self._sessions = 0
        self._session: Any = None
        self._baseline: Baseline
        self._context: Any = None

    def carry_out(self, order: wire.ControlOrder) -> wire.ControlAnswer:
        """Carries out one order, whatever comes of it."""
        began = time.monotonic()
        answer: wire.ControlAnswer = {"ok": True, "took_ms": 0.0}
        try:
            if order["do"] == "open":
                answer["application_id"] = self._open()
            elif order["do"] == "quiet":
                answer["living"] = quiet_down(self._baseline, self._session, self._workers, order["within_s"])
            elif order["do"] == "reset":
                answer["replace"] = self._reset(order["had_variables"])
            elif order["do"] == "stop_context":
                self._baseline.scala_context.stop()
            elif order["do"] == "probe":
                self._probe()
            elif order["do"] == "warm":
                self._warming.go_on()
                answer["left"] = self._warming.left
            elif order["do"] == "pause":
                self._pause()
        except Exception as error:
            answer = {"ok": False, "took_ms": 0.0, "reason": f"{type(error).__name__}: {error}"[:4000]}
        answer["took_ms"] = round((time.monotonic() - began) * 1000, 1)
        return answer

    def _open(self) -> str:
        """Starts the Spark context, runs a first query, prepares the first session. Returns the application's id."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        self._context = SparkContext(gateway=self._gateway)
        folder = os.path.join(self._folder, "warming")
        rounds = self._warming_rounds if self._context._jsc.sc().isLocal() else 0  # executors elsewhere serve others, too
        self._warming = Warming(steps(SparkSession(self._context, self._new_session({})), folder) * rounds, folder)
        self._baseline = Baseline(self._gateway, self._context._jsc, os.path.join(self._folder, jvm.CWD))
        self._own_warehouses = self._context.getConf().get(jvm.WAREHOUSE) == jvm.warehouse(self._folder)
        self._prepare()
        if self._session.sql("SELECT 1").collect()[0].getInt(0) != 1:
            raise RuntimeError("The Spark of the slot computes wrongly.")
        self._baseline.remember()
        return str(self._context.applicationId)

    def _reset(self, had_variables: bool) -> str | None:
        """Clears what the last attempt left in the JVM and prepares a session; or returns why the JVM must be replaced."""
        reason = self._baseline.restore()
        if reason is None and had_variables and not self._baseline.local:
            reason = "executors may have the attempt's environment variables"
        if reason is None:
            why = self._workers.not_to_be_kept(had_variables)
            reason = None if why is None or self._end_daemons() else why
        if reason is None:
            remove(self._warehouse())
            self._prepare()
        return reason

    def _end_daemons(self) -> bool:
        """Ends the Python daemons, so that the JVM may stay; False where this Spark does not let them go."""
        try:
            self._baseline.forget_daemons()
        except Exception as error:  # whatever it is, a new JVM has none of them
            print(f"Millrace: the Python daemons of this Spark do not end: {error}"[:2000], file=sys.stderr)
            return False
        return self._workers.end()

    def _probe(self) -> None:
        """Runs Python on every core of the JVM, unless idle workers from the last time are there still."""
        if not self._workers.fresh():
            cores = self._context.defaultParallelism if self._baseline.local else 1
            found = self._context.parallelize(range(-cores, 0), cores).map(abs).sum()
            if found != cores * (cores + 1) // 2:
                raise RuntimeError(f"The Python workers of the slot compute wrongly: {found}.")
            self._workers.remember()
        self._workers.note_daemons()

    def _pause(self) -> None:
        """Ends the warming for now, and takes away what it left."""
        if self._warming.pause():
            self._baseline.clear_storage()
            self._workers.remember()  # those that it used have run nothing of an attempt

    def _new_session(self, options: dict[str, str]) -> Any:
        """The JVM's session with a state that it shares with no other."""
        return self._classes(self._context._jsc.sc(), options)

    def _warehouse(self) -> str:
        return os.path.join(self._folder, "warehouse", str(self._sessions))

    def _prepare(self) -> None:
        """Makes a session with a catalog, a cache and a warehouse of its own (unless a warehouse was asked for), and makes it the JVM's
        default one. A query to try it would take as long as a small job's."""
        self._sessions += 1
        self._session = self._new_session({jvm.WAREHOUSE: "file:" + self._warehouse()} if self._own_warehouses else {})
        self._classes.setDefaultSession(self._session)
        self._session.sessionState()  # made when first asked for, which would be by the attempt


def serve(channel: socket.socket, port: int, secret: str, folder: str, jvm_pid: int, warming_rounds: int) -> None:
    """Carries out the host's orders, one JSON line each, until it closes ``channel``. Runs in a process of its own."""
    control = Control(attach.connect(port, secret), folder, jvm_pid, warming_rounds)
    with channel, channel.makefile("rw", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            lines.write(json.dumps(control.carry_out(json.loads(line))) + "\n")
            lines.flush()
