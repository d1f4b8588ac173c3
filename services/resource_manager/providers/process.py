"""TaskManagers as processes of a host, which has an agent that runs them (`deploy/agent.py`).

A cluster has one agent. With several, the list would lack what one of them has while it is away, and that would be started twice.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

from ..core.workers import is_worker
from . import NotProvided

ANSWER_S = 10.0  # a TaskManager that is stopped has six seconds for it
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would learn the token


class Listed(BaseModel):
    """What the agent answers: id -> why its process has ended; null: it runs. `host`: its own; empty: it is of a version before."""

    workers: dict[str, str | None]
    host: str = ""


class ByAgent:
    """The provider `process`. `url`: of the agent; `token`: what it asks for."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url.rstrip("/"), token
        self.hosts: Sequence[str] = ()

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        if blocked := [host for host in self.hosts if host in avoid]:
            raise NotProvided(f"its host {blocked[0]} is blocked")
        self._change("PUT", worker, epoch)

    def stop(self, worker: str, epoch: int) -> None:
        self._change("DELETE", worker, epoch)

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        try:
            listed = Listed.model_validate_json(self._ask("GET", f"/workers?epoch={epoch}"))
        except ValidationError:
            raise NotProvided(f"what answers at {self._url} is no agent") from None
        self.hosts = (listed.host,) if listed.host else ()
        return listed.workers

    def _change(self, method: str, worker: str, epoch: int) -> None:
        if not is_worker(worker):
            raise NotProvided(f"{worker} is no id that an agent gives")
        self._ask(method, f"/workers/{worker}?epoch={epoch}")

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(f"{self._url}{path}", method=method, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with DIRECTLY.open(request, timeout=ANSWER_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as failure:
            raise NotProvided(f"the agent at {self._url} refuses it: {_words(failure)}") from None
        except (OSError, ValueError, http.client.HTTPException) as failure:
            reason = getattr(failure, "reason", failure)
            raise NotProvided(f"the agent at {self._url} does not answer: {reason}") from None


def _words(failure: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(failure.read())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP {failure.code}"
