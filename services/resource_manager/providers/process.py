"""TaskManagers as processes of hosts, each of which has an agent that runs them (`deploy/agent.py`).

The number in a TaskManager's id names its agent, whoever leads: nothing has to be remembered. An agent that is away is named to those who
wait for slots. The next number is another agent's.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError

from ..core.workers import is_worker, number_of
from . import NotProvided

ANSWER_S = 10.0  # a TaskManager that is stopped has six seconds for it
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would learn the token


class Listed(BaseModel):
    """What an agent answers: id -> why its process has ended; null: it runs."""

    workers: dict[str, str | None]


class Agents:
    """The provider `process`. `urls`: of the agents, one at least; `token`: what all of them ask for."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        self._urls, self._token = [url.rstrip("/") for url in urls], token

    def start(self, worker: str, epoch: int) -> None:
        self._ask(self._agent_of(worker), "PUT", f"/workers/{worker}?epoch={epoch}")

    def stop(self, worker: str, epoch: int) -> None:
        self._ask(self._agent_of(worker), "DELETE", f"/workers/{worker}?epoch={epoch}")

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        """Of all agents that answer. What one has that is away is not known: its TaskManagers live as long as they send heartbeats."""
        found: dict[str, str | None] = {}
        failures = []
        for url in self._urls:
            try:
                found |= Listed.model_validate_json(self._ask(url, "GET", f"/workers?epoch={epoch}")).workers
            except NotProvided as failure:
                failures.append(failure)
            except ValidationError:
                failures.append(NotProvided(f"what answers at {url} is no agent"))
        if len(failures) == len(self._urls):
            raise failures[0]
        return found

    def _agent_of(self, worker: str) -> str:
        if not is_worker(worker):
            raise NotProvided(f"{worker} is no id that an agent gives")
        return self._urls[number_of(worker) % len(self._urls)]

    def _ask(self, url: str, method: str, path: str) -> bytes:
        request = urllib.request.Request(f"{url}{path}", method=method, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with DIRECTLY.open(request, timeout=ANSWER_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as failure:
            raise NotProvided(f"the agent at {url} refuses it: {_words(failure)}") from None
        except (OSError, ValueError, http.client.HTTPException) as failure:
            reason = getattr(failure, "reason", failure)
            raise NotProvided(f"the agent at {url} does not answer: {reason}") from None


def _words(failure: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(failure.read())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP {failure.code}"
