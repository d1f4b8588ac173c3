"""Logs: exact lines, what is bound to them, and what must never stand in them."""

from __future__ import annotations

import io
import json
import logging
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from millrace.runtime import logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hooks = root.handlers[:], root.level, (sys.excepthook, threading.excepthook)
    with warnings.catch_warnings():
        yield
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level
    sys.excepthook, threading.excepthook = hooks
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(each.pop("timestamp").endswith("Z") for each in found)
    return found


def test_a_line_is_json_with_the_process_the_context_and_the_event() -> None:
    out = io.StringIO()
    logs.configure("dispatcher", "json", instance="d-1", stream=out)
    log = structlog.get_logger("any").bind(scope="dispatcher", epoch=7)
    log.bind(job="j-1", attempt=1, offset=42).info("job_accepted", shard=3, name="für", where=("a", 1))
    log.warning("later")
    log.debug("unseen")
    assert lines(out) == [
        {
            "level": "info",
            "service": "dispatcher",
            "instance": "d-1",
            "event": "job_accepted",
            "shard": 3,
            "name": "für",
            "where": ["a", 1],
            "scope": "dispatcher",
            "epoch": 7,
            "job": "j-1",
            "attempt": 1,
            "offset": 42,
        },
        {
            "level": "warning",
            "service": "dispatcher",
            "instance": "d-1",
            "event": "later",
            "scope": "dispatcher",
            "epoch": 7,
        },
    ]
    assert list(json.loads(out.getvalue().splitlines()[0]))[:5] == [
        "timestamp",
        "level",
        "service",
        "instance",
        "event",
    ]


def test_secrets_are_masked_everywhere() -> None:
    out = io.StringIO()
    redaction = logs.configure("x", "json", stream=out, secrets=["hunter22", "ab"])
    redaction.add("later/secret")
    log = structlog.get_logger()
    log.info(
        "got hunter22",
        blob_token="t",
        headers={"Authorization": "Bearer 0123456789", "hunter22": 1},
        text="curl -H 'authorization: bearer 0123456789abcdef' s3://key:word@bucket/a http://host/b",
        rows=[("later/secret", None)],
        conf={"spark.hadoop.fs.azure.account.key.a.net": "k", "spark.hadoop.fs.s3a.access.key": "k", "spark.x.key": "k"},
        options=["-Xss4m -Djavax.net.ssl.trustStorePassword=pw -Dx=y", "-Dmy.password='p w' -Dx=y"],
        my_password=None,
        data=b"hunter22",
    )
    try:
        raise ValueError("hunter22 in a message")
    except ValueError:
        log.exception("failed")
    logging.getLogger("etcd3").error("with %s", "hunter22")
    assert "hunter22" not in out.getvalue() and "later/secret" not in out.getvalue()
    assert lines(out)[0] == {
        "level": "info",
        "service": "x",
        "event": "got ***",
        "blob_token": "***",
        "headers": {"Authorization": "***", "***": 1},
        "text": "curl -H 'authorization: bearer ***' s3://***@bucket/a http://host/b",
        "rows": [["***", None]],
        "conf": {"spark.hadoop.fs.azure.account.key.a.net": "***", "spark.hadoop.fs.s3a.access.key": "***", "spark.x.key": "k"},
        "options": ["-Xss4m -Djavax.net.ssl.trustStorePassword=*** -Dx=y", "-Dmy.password=*** -Dx=y"],
        "my_password": None,
        "data": "b'***'",
    }


def test_an_exception_is_one_line() -> None:
    out = io.StringIO()
    logs.configure("x", "json", stream=out)
    try:
        raise KeyError("a\nb")
    except KeyError:
        structlog.get_logger().exception("failed", job="j")
    (line,) = lines(out)
    assert (line["level"], line["event"], line["job"]) == ("error", "failed", "j")
    assert line["exception"].startswith("Traceback (most recent call last):\n") and line["exception"].endswith(
        "KeyError: 'a\\nb'"
    )


def test_the_standard_library_and_warnings_take_the_same_way() -> None:
    out = io.StringIO()
    logs.configure("x", "json", "warning", stream=out)
    logging.getLogger("confluent").warning("broker %s is down", 1)
    logging.getLogger("confluent").info("unseen")
    logging.getLogger("httpx").error("seen")
    warnings.warn("careful", UserWarning, stacklevel=1)
    first, second, third = lines(out)
    assert first == {"level": "warning", "service": "x", "event": "broker 1 is down", "logger": "confluent"}
    assert second == {"level": "error", "service": "x", "event": "seen", "logger": "httpx"}
    assert third["logger"] == "py.warnings" and "UserWarning: careful" in third["event"]


def test_chatty_libraries_are_heard_from_warning_on() -> None:
    out = io.StringIO()
    logs.configure("x", "json", "debug", stream=out)
    logging.getLogger("httpx").info("unseen")
    logging.getLogger("uvicorn.access").info("unseen")
    logging.getLogger("other").debug("seen")
    assert [line["event"] for line in lines(out)] == ["seen"]


def test_values_that_json_does_not_know() -> None:
    out = io.StringIO()
    logs.configure("x", "json", stream=out)
    structlog.get_logger().info("odd", n=float("nan"), i=float("inf"), s={1}, o=logs.Redaction, k={1: 2}, u="\ud800")
    (line,) = lines(out)
    assert (line["n"], line["i"], line["s"], line["k"], line["u"]) == ("nan", "inf", [1], {"1": 2}, "\ud800")
    assert line["o"] == "<class 'millrace.runtime.logs.Redaction'>"


def test_a_log_that_cannot_be_written_costs_lines_only() -> None:
    class Full(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    out = Full()
    logs.configure("x", "json", stream=out)
    structlog.get_logger().info("one")
    structlog.get_logger().info("two")
    out.full = False
    structlog.get_logger().info("three")
    assert json.loads(out.getvalue().splitlines()[0]) == {"level": "error", "event": "log_lines_lost", "lines": 2}
    assert json.loads(out.getvalue().splitlines()[1])["event"] == "three"


def test_threads_do_not_mix_their_lines() -> None:
    out = io.StringIO()
    logs.configure("x", "json", stream=out)
    threads = [
        threading.Thread(target=lambda n=n: [structlog.get_logger().info("e", n=n) for _ in range(200)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["n"] for line in lines(out)) == [n for n in range(4) for _ in range(200)]


def test_human_format_has_colour_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain, coloured, piped = io.StringIO(), Terminal(), io.StringIO()
    logs.configure("x", "human", stream=plain)
    structlog.get_logger().info("hello", job="j", token="t")
    logs.configure("x", "auto", stream=coloured)
    structlog.get_logger().info("hello", job="j")
    logs.configure("x", "auto", stream=piped)
    structlog.get_logger().info("hello", job="j")
    assert (
        plain.getvalue().split(maxsplit=1)[1]
        == "[info     ] hello                          job=j service=x token=***\n"
    )
    assert "\x1b[" in coloured.getvalue() and "\x1b[" not in plain.getvalue()
    assert lines(piped) == [{"level": "info", "service": "x", "event": "hello", "job": "j"}]


def test_uncaught_exceptions_are_logged_in_any_thread() -> None:
    script = (
        "import threading\n"
        "from millrace.runtime import logs\n"
        "logs.configure('x', 'json', secrets=['hunter22'])\n"
        "thread = threading.Thread(target=lambda: {}['hunter22'], name='beat')\n"
        "thread.start(); thread.join()\n"
        "raise RuntimeError('hunter22')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    thread, main = lines(io.StringIO(done.stderr))
    assert done.returncode == 1 and done.stdout == ""
    assert (thread["event"], thread["thread"], thread["exception"].splitlines()[-1]) == (
        "uncaught_exception",
        "beat",
        "KeyError: '***'",
    )
    assert (main["level"], main["event"]) == ("critical", "uncaught_exception")
    assert main["exception"].splitlines()[-1] == "RuntimeError: ***"


def test_a_crash_in_a_library_tells_where_each_thread_was() -> None:
    crash = "import faulthandler\ndef serve(): faulthandler._sigsegv()\nserve()"
    script = f"from millrace.runtime import logs; logs.configure('dispatcher')\n{crash}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGSEGV and done.stdout == ""
    assert "Segmentation fault" in done.stderr and " in serve\n" in done.stderr


def test_a_warning_that_is_the_same_is_said_once_in_a_while_with_how_often_it_was_left_out() -> None:
    """While Kafka was away, a service said so twice a second, for hours."""
    now_s = [0.0]
    repeats = logs.Repeats(lambda: now_s[0])

    def said(level: str, event: str) -> dict[str, Any] | None:
        try:
            return dict(repeats(None, level, {"level": level, "event": event, "reason": "no broker"}))
        except structlog.DropEvent:
            return None

    first = said("warning", "requests wait")
    assert first == {"level": "warning", "event": "requests wait", "reason": "no broker"}
    assert [said("warning", "requests wait") for _ in range(59)] == [None] * 59
    assert said("error", "another") is not None and said("info", "news") is not None and said("info", "news") is not None
    now_s[0] = logs.REPEAT_S
    again = said("warning", "requests wait")
    assert again is not None and again["left_out"] == 59
    for number in range(2 * logs.REPEATS_MOST):
        said("warning", f"kind {number}")
    assert len(repeats._logged) == logs.REPEATS_MOST
