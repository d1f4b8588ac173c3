"""What the parts of the API share: a question to the view, and what is refused before it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, get_args, get_origin

from fastapi import Path, Query, Request, Response
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError

from millrace.core.messages.base import JOB_ID_PATTERN

from ..again import Question, answer_of, keep
from ..changes import Level, Subject
from ..commands import WAIT_MOST_S, WAIT_S, NoCluster
from ..parcel import JSON
from ..problems import Mistake, Refusal, of_invalid
from ..view import View

JobPath = Annotated[str, Path(pattern=JOB_ID_PATTERN, description="A job's id.")]
WaitS = Annotated[float, Query(ge=0, le=WAIT_MOST_S, description="For so long the cluster's answer is waited for, in seconds.")]
WAIT = WAIT_S


def shown(request: Request, view: View, question: Question, subject: Subject | None = Level.PROGRESS) -> Response:
    """The view's answer as JSON, with as of when it is, and with an ETag: 304 where the asker has the same answer, as of whenever. While
    the view is behind nobody is answered so, for a 304 cannot tell.
    `subject`: what must change before it is another one; None: the view alone does not tell. Raises Refusal while the tables are brought
    back."""
    check_ready(view)
    found, as_of = answer_of(view, question, Level.PROGRESS if subject is None else subject)
    if subject is not None:
        keep(request.scope, found, question)
    headers = {"ETag": found.etag.decode()}
    if not view.behind_s() and found.is_known(request.headers.get("if-none-match", "").encode("latin-1")):
        return Response(status_code=304, headers=headers)
    return Response(found.body(as_of), headers=headers, media_type="application/json")


def check_ready(view: View) -> None:
    """Raises Refusal while the tables are brought back."""
    if not view.caught_up:
        detail = "the tables are being brought back: ask again in a moment"
        raise Refusal(503, detail, "starting", headers={"Retry-After": "1"})


def only_live(view: View) -> Callable[[], Coroutine[None, None, None]]:
    """A dependency of what only a running cluster has."""

    async def live() -> None:
        if view.past:
            raise NoCluster("this is a history: it has no TaskManagers, slots and leaders; ask the web service of a running cluster")

    return live


def wrong_parameter(name: str, message: str) -> Refusal:
    """For what no type can tell."""
    return Refusal(400, f"{name}: {message}", "invalid-parameter", [Mistake(place=[name], message=message)])


async def known_alone(request: Request) -> None:
    """A parameter that is not known would be taken for one that allows all; of one that is given twice the first would be passed over.
    What else is wrong with the parameters is told with it."""
    fields = {field.alias: field.field_info.annotation for field in request.scope["route"].dependant.query_params}
    given = Counter(name for name, _ in request.query_params.multi_items())
    unknown = [name for name in given if name not in fields]
    repeated = [name for name, times in given.items() if name in fields and times > 1 and not _is_list(fields[name])]
    if not unknown and not repeated:
        return
    mistakes = [Mistake(place=[name], message="no such parameter") for name in unknown]
    mistakes += [Mistake(place=[name], message=f"it is given {given[name]} times, and taken once") for name in repeated]
    first = f"{mistakes[0].place[0]}: {mistakes[0].message}"
    if unknown:
        expected = f"there are: {', '.join(fields)}" if fields else "there are none"
        first = f"{unknown[0]}: no parameter of {request.url.path}; {expected}"
    dependant = request.scope["route"].dependant
    _, wrong = request_params_to_args(dependant.query_params, request.query_params)
    _, wrong_path = request_params_to_args(dependant.path_params, request.path_params)
    others = of_invalid(RequestValidationError([*wrong_path, *wrong])).mistakes
    detail = "; ".join([first, *(f"{'.'.join(map(str, each.place))}: {each.message}" for each in [*mistakes[1:], *others])])
    raise Refusal(400, detail, "invalid-parameter", [*mistakes, *others])


async def json_alone(request: Request) -> None:
    """A dependency of what takes JSON: else a body of another type would be told to be no object."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if has_body and not (kind.startswith("application/") and (kind == JSON or kind.endswith("+json"))):
        raise Refusal(415, f"{kind or 'a body without a Content-Type'} is not taken; send {JSON}")


def _is_list(annotation: Any) -> bool:
    """Whether a parameter of that type may be given several times."""
    return any(each is list or get_origin(each) is list for each in (annotation, *get_args(annotation)))
