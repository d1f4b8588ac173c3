"""What is answered when something is wrong: application/problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from millrace.client import errors
from millrace.io.storage.store import StorageError

from .access.audit import NotRecorded
from .access.roles import methods_of
from .access.who import current
from .commands import KafkaAway, NoCluster, NoLeader, NotAnswered, NotLoaded, StorageAway
from .threads import TooMany

MEDIA_TYPE = "application/problem+json"
RETRY_S = 1

log = structlog.get_logger("web")


class Mistake(BaseModel):
    """One thing that is wrong, and where."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    place: list[str | int]
    """A parameter of the request, or the way into the graph."""
    message: str
    hint: str | None = None
    line: int | None = None
    """In the text that was sent; with `column`."""
    column: int | None = None


class Problem(BaseModel):
    """What was wrong. Further fields may come."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    type: str = Field(examples=["urn:millrace:not-found"])
    """Stays the same for the same kind of problem."""
    title: str
    status: int
    detail: str
    """What was wrong, where, and what to do."""
    errors: list[Mistake] = []
    """Every mistake, where there can be several."""


class Refusal(HTTPException):
    """An answer that is a problem. `kind`: the end of its type."""

    def __init__(
        self,
        status: int,
        detail: str,
        kind: str = "",
        mistakes: Sequence[Mistake] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.kind, self.mistakes = kind, list(mistakes)


def responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an operation may answer with, for its description; and 304, which has no body."""
    content = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {code: {"description": HTTPStatus(code).phrase, **(content if code >= 400 else {})} for code in codes}


def answer(problem: Refusal) -> JSONResponse:
    phrase = HTTPStatus(problem.status_code).phrase
    kind = problem.kind or phrase.lower().replace(" ", "-")
    body = Problem(
        type=f"urn:millrace:{kind}", title=phrase, status=problem.status_code, detail=problem.detail, errors=problem.mistakes
    )
    return JSONResponse(
        body.model_dump(exclude_none=True), problem.status_code, problem.headers, media_type=MEDIA_TYPE
    )


def of_failure(failure: errors.MillraceError, mistakes: Sequence[Mistake] | None = None) -> Refusal:
    """What a command that failed is answered with. `mistakes`: those of a rejected graph, where more is known of them."""
    again = {"Retry-After": str(RETRY_S)}
    match failure:
        case errors.Rejected():
            if mistakes is None:
                mistakes = [Mistake(place=each.place, message=each.message, hint=each.hint) for each in failure.problems]
            detail = str(failure).partition("\n")[0]
            if isinstance(failure, errors.Conflict):
                return Refusal(409, detail, "other-graph", mistakes)
            if isinstance(failure, errors.Invalid):
                return Refusal(400, detail, "invalid-graph", mistakes)
            return Refusal(503, detail, "no-room" if isinstance(failure, errors.Busy) else "late", mistakes, again)
        case errors.NotFound():
            return Refusal(404, str(failure))
        case errors.Refused() | errors.NotFinished():
            return Refusal(409, str(failure), "wrong-state")
        case TooMany():
            return Refusal(429, str(failure), headers=again)
        case NotLoaded():
            return Refusal(503, str(failure), "not-loaded", headers=again)
        case NotAnswered():
            return Refusal(504, str(failure), "not-answered")
        case errors.OutcomeUnknown():
            return Refusal(503, str(failure), "outcome-unknown", headers=again)
        case NoCluster():
            return Refusal(503, str(failure), "no-cluster")
        case StorageAway():
            return Refusal(503, str(failure), "storage-away", headers=again)
        case NoLeader():
            return Refusal(503, str(failure), "no-leader", headers=again)
        case NotRecorded():
            return Refusal(503, str(failure), "not-recorded", headers=again)
        case KafkaAway():
            return Refusal(503, str(failure), "kafka-away", headers=again)
    return Refusal(503, str(failure), "unavailable", headers=again)


def add_handlers(app: FastAPI) -> None:
    """Every error of the application is a problem."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(errors.MillraceError, _command_failed)
    app.add_exception_handler(StorageError, _storage_away)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:  # the router names the methods of one route; the same path may have others
        error.headers = {**(error.headers or {}), "Allow": ", ".join(methods_of(request.url.path))}
    return answer(error if isinstance(error, Refusal) else Refusal(error.status_code, error.detail, headers=error.headers))


def of_invalid(error: RequestValidationError) -> Refusal:
    """What is wrong with the parameters of a request."""
    mistakes = [Mistake(place=list(each["loc"][1:] or each["loc"]), message=each["msg"]) for each in error.errors()]
    detail = "; ".join(f"{'.'.join(map(str, each.place))}: {each.message}" for each in mistakes)
    return Refusal(400, detail, "invalid-parameter", mistakes)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return answer(of_invalid(error))


async def _command_failed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.MillraceError)
    return answer(of_failure(error))


def of_storage(failure: StorageError) -> Refusal:
    """Without the address of the storage, which may hold a password."""
    return Refusal(503, f"the storage cannot be read: {failure.what}", "storage-away", headers={"Retry-After": str(RETRY_S)})


async def _storage_away(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StorageError)
    return answer(of_storage(error))


def failed(path: str, error: Exception) -> JSONResponse:
    """What is answered to a request that found a mistake of this service, which is logged."""
    log.error("a request failed", path=path[:200], request=current.get().request, reason=repr(error), exc_info=error)
    return answer(Refusal(500, "an internal error; the log of the web service has it"))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return failed(request.url.path, error)  # outside of the guard, which answers whatever fails behind it
