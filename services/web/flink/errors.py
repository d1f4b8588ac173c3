"""Errors in Flink's shape: `{"errors": [...]}` and no other key.

Flink's client goes by the body, not by the status: any other body counts as a success where `{}` is expected, and is asked for again, for a
minute, where it is not. So whatever refuses a request under Flink's paths answers in this shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from millrace.client import MillraceError
from millrace.io.storage.store import StorageError

from .. import problems

NO_LEADER = "Service temporarily unavailable due to an ongoing leader election. Please refresh."


class Errors(TypedDict):
    """The body of an error."""

    errors: list[str]


class Reply(JSONResponse):
    """JSON in ASCII: a name in a graph may hold half a surrogate pair, which no other encoding takes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, *lines: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(*lines)
        self.status, self.lines, self.headers = status, lines, headers


def answer(refusal: Refusal) -> Reply:
    body: Errors = {"errors": [line[:2000] for line in refusal.lines]}
    return Reply(body, refusal.status, refusal.headers)


def not_found(path: str) -> Refusal:
    """No such path, or none for this method: Flink has no 405."""
    return Refusal(404, f"Not found: {path[:200]}")


def no_leader(why: str = "") -> Refusal:
    """Flink's client asks again, every three seconds for a minute."""
    return Refusal(503, NO_LEADER, *([why] if why else []), headers={"Retry-After": "1"})


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(MillraceError, _command_failed)
    app.add_exception_handler(StorageError, _storage_away)
    app.add_exception_handler(Exception, _failed)


async def _refused(_: Request, error: Exception) -> Reply:
    assert isinstance(error, Refusal)
    return answer(error)


async def _http(request: Request, error: Exception) -> Reply:
    assert isinstance(error, HTTPException)
    known = isinstance(error, problems.Refusal) or error.status_code not in (404, 405)
    return answer(Refusal(error.status_code, error.detail, headers=error.headers) if known else not_found(request.url.path))


async def _invalid(_: Request, error: Exception) -> Reply:
    assert isinstance(error, RequestValidationError)
    return answer(Refusal(400, *(_mistake(each) for each in error.errors())))


def _mistake(each: Mapping[str, Any]) -> str:
    where, *place = each["loc"]
    if where == "body":
        return f"Request did not match expected format: {'.'.join(map(str, place)) or 'the body'}: {each['msg']}."
    value = json.dumps(str(each["input"])[:200])
    return f"Cannot resolve {where} parameter ({'.'.join(map(str, place))}) from value {value}."


async def _command_failed(_: Request, error: Exception) -> Reply:
    assert isinstance(error, MillraceError)
    problem = problems.of_failure(error)
    return answer(Refusal(problem.status_code, problem.detail, headers=problem.headers))


async def _storage_away(_: Request, error: Exception) -> Reply:
    assert isinstance(error, StorageError)
    problem = problems.of_storage(error)
    return answer(Refusal(problem.status_code, problem.detail, headers=problem.headers))


async def _failed(_: Request, __: Exception) -> Reply:  # it is raised on, and logged by the guard
    return answer(Refusal(500, "Internal server error; the log of the web service has it."))
