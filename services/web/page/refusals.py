"""What a person is shown in place of a problem's JSON: a form that is refused, an address that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ..problems import of_invalid
from .shell import Shell


def refusals_as_pages(shell: Shell) -> type[APIRoute]:
    """A route whose refusals a browser shows as a page. Programs, and the page's own script, have the problem as from any route."""

    class RefusalAsPage(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def tell(request: Request) -> Response:
                try:
                    return await handle(request)
                except (HTTPException, RequestValidationError) as error:
                    if "text/html" not in request.headers.get("accept", ""):
                        raise
                    refusal = of_invalid(error) if isinstance(error, RequestValidationError) else error
                    headline = "This cannot be shown" if request.method == "GET" else "Nothing was done"
                    why, status = f"{refusal.detail[:1].upper()}{refusal.detail[1:]}.", refusal.status_code
                    return await run_in_threadpool(lambda: shell.page(request, "nothing.html", "", status, headline=headline, why=why))

            return tell

    return RefusalAsPage
