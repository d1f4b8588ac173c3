"""TaskManagers as processes of hosts, each of which has an agent that runs them (`deploy/agent.py`).

A TaskManager is started where there is most room: by the agent that has the fewest, of those that it may have. What an agent has that does
not answer is not known to have ended, so it counts as it was last listed; after AWAY_S it does not any more. A TaskManager that is cut off
for so long has been declared lost, or is turned away when it registers; if the agent comes back it is in the list again, and is stopped.
A provider lives as long as its process, which may lead again: then AWAY_S begins anew, for another leader may have started more there.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import quote

import structlog
from pydantic import BaseModel, Field, ValidationError

from ..core.workers import is_worker
from . import NotProvided

ANSWER_S = 10.0  # a TaskManager that is stopped has six seconds for it
LIST_S = 3.0  # all agents are asked at once, and one that hangs holds up no other
AWAY_S = 30.0
LISTED_BYTES = 1 << 20
SUPERSEDED = 412  # of a request of an earlier leader
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would learn the token

log = structlog.get_logger("provider")


class Superseded(NotProvided):
    """A later leader has asked already."""


class Away(NotProvided):
    """The agent has not answered: whether it has done what was asked is not known."""


class Listed(BaseModel):
    """What the agent answers: id -> why its process has ended; null: it runs. `host`: its own; empty: it is of a version before. `most`:
    how many it may have."""

    workers: dict[str, str | None]
    host: str = ""
    most: int = Field(1_000, ge=0)


@dataclass
class _Agent:
    """What is known of one."""

    url: str
    known: bool = False
    """It was listed in this epoch."""
    host: str = ""
    most: int = 0
    workers: dict[str, str | None] = field(default_factory=dict)
    starting: dict[str, None] = field(default_factory=dict)
    """Asked for, and not answered: what is listed meanwhile may lack it."""
    why: str = ""
    """Of one that is left out."""
    since_s: float = 0.0
    """Since when it is, in this epoch: while others led, it may have answered them."""


class ByAgents:
    """The provider `process`. `urls`: of the agents; `token`: what each of them asks for; `away_s`: after so long what an agent had that
    does not answer counts no more. `cluster`: its uuid; an agent of another one refuses."""

    def __init__(
        self, urls: Sequence[str], token: str, cluster: str = "", away_s: float = AWAY_S, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.cluster = cluster
        self._token, self._away_s, self._clock_s = token, away_s, clock_s
        self._agents = [_Agent(url.rstrip("/")) for url in urls]
        self._lock = threading.RLock()  # calls come on several threads
        self._listing = threading.Lock()
        self._epoch = -1  # of which the agents were listed
        self._begun = -1  # the last one in which they were asked

    @property
    def hosts(self) -> Sequence[str]:
        """Where it starts any; none: that is not known of all."""
        with self._lock:
            hosts = tuple(dict.fromkeys(each.host for each in self._agents))
        return hosts if all(hosts) else ()

    @property
    def left_out(self) -> Sequence[str]:
        """Of each agent that does not answer, or refuses, why."""
        with self._lock:
            return [each.why for each in self._agents if each.why]

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        _check(worker)
        self._know(epoch)
        with self._lock:
            agent = self._holder(worker) or self._roomiest(avoid)
            if agent.host in avoid:
                raise NotProvided(f"its host {agent.host} is blocked")
            before = agent.workers.get(worker, "")
            agent.workers[worker] = agent.starting[worker] = None  # it takes its place, and may run from now on
        try:
            self._change(agent, "PUT", worker, epoch)
        except Away:
            raise
        except NotProvided:
            with self._lock:
                if before == "":
                    agent.workers.pop(worker, None)
            raise
        finally:
            with self._lock:
                agent.starting.pop(worker, None)

    def stop(self, worker: str, epoch: int) -> None:
        _check(worker)
        self._know(epoch)
        for agent in [each for each in self._agents if worker in each.workers]:
            try:
                self._change(agent, "DELETE", worker, epoch)
            except Away:
                if not self._is_gone(agent):
                    raise
            with self._lock:
                agent.workers.pop(worker, None)

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        with self._listing:
            return self._list(epoch)

    def _know(self, epoch: int) -> None:
        """What the agents have must be known first: a leader of before may have had this very one started."""
        with self._listing:
            if self._epoch != epoch:
                self._list(epoch)

    def _list(self, epoch: int) -> Mapping[str, str | None]:
        answers = _of_all(self._agents, lambda each: self._listed(each, epoch))
        for answer in answers:
            if isinstance(answer, Superseded):
                raise answer
        with self._lock:
            if self._epoch != epoch:
                for agent in self._agents:
                    agent.known = False
                    agent.since_s = self._clock_s() if self._begun < epoch else agent.since_s
                self._begun = max(self._begun, epoch)
            for agent, answer in zip(self._agents, answers, strict=True):
                self._note(agent, answer)
            if all(agent.why for agent in self._agents):
                raise NotProvided("; ".join(agent.why for agent in self._agents)[:1_000])
            unknown = [agent for agent in self._agents if not agent.known and not self._is_gone(agent)]
            if unknown:
                raise NotProvided(f"{unknown[0].why}; what it has is not known, and for {self._away_s:g} s nothing is started without it")
            self._epoch = epoch
            found, twice = self._merged()
        for agent, worker in twice:
            log.error("a TaskManager runs on two hosts, and one of them is stopped", worker=worker, agent=agent.url)
            try:
                self._change(agent, "DELETE", worker, epoch)
                with self._lock:
                    agent.workers.pop(worker, None)
            except NotProvided as failure:  # the next list has it again
                log.warning("it is not stopped yet", worker=worker, reason=str(failure))
        return found

    def _note(self, agent: _Agent, answer: Listed | NotProvided) -> None:
        if isinstance(answer, Listed):
            if agent.why:
                log.info("an agent answers again", agent=agent.url)
            agent.known, agent.why = True, ""
            agent.host, agent.most, agent.workers = answer.host, answer.most, {**answer.workers, **agent.starting}
        else:
            self._leave_out(agent, answer)

    def _leave_out(self, agent: _Agent, why: NotProvided) -> None:
        with self._lock:
            if not agent.why:
                agent.since_s = self._clock_s()
                log.warning("an agent is left out", agent=agent.url, reason=str(why))
            agent.why = str(why)

    def _is_gone(self, agent: _Agent) -> bool:
        return bool(agent.why) and self._clock_s() - agent.since_s >= self._away_s

    def _merged(self) -> tuple[dict[str, str | None], list[tuple[_Agent, str]]]:
        """What there is, and what is there twice: since its agent was away for long, and came back."""
        found: dict[str, str | None] = {}
        twice = []
        for agent in self._agents:
            if self._is_gone(agent):
                agent.workers, agent.known = {}, True  # it has nothing that counts, until it is back
            for worker, ended in agent.workers.items():
                if worker in found and not agent.why:
                    twice.append((agent, worker))
                found.setdefault(worker, ended)
        return found, twice

    def _holder(self, worker: str) -> _Agent | None:
        return next((each for each in self._agents if worker in each.workers), None)

    def _roomiest(self, avoid: Sequence[str]) -> _Agent:
        """Raises NotProvided."""
        there = [each for each in self._agents if not each.why]
        if not there:
            raise NotProvided("; ".join(each.why for each in self._agents)[:1_000])
        allowed = [each for each in there if each.host not in avoid]
        if not allowed:
            raise NotProvided(f"its host {there[0].host} is blocked" if len(there) == 1 else "the hosts of all agents are blocked")
        roomy = [each for each in allowed if len(each.workers) < each.most]
        if not roomy:
            raise NotProvided(f"no agent has room: {', '.join(f'{each.url} runs {len(each.workers)}' for each in allowed)}"[:1_000])
        return min(roomy, key=lambda each: len(each.workers) / each.most)

    # over HTTP

    def _listed(self, agent: _Agent, epoch: int) -> Listed | NotProvided:
        try:
            return Listed.model_validate_json(self._ask(agent, "GET", "/workers", epoch, LIST_S))
        except ValidationError:
            return NotProvided(f"what answers at {agent.url} is no agent")
        except NotProvided as failure:
            return failure

    def _change(self, agent: _Agent, method: str, worker: str, epoch: int) -> None:
        try:
            self._ask(agent, method, f"/workers/{worker}", epoch, ANSWER_S)
        except Away as failure:
            self._leave_out(agent, failure)
            raise

    def _ask(self, agent: _Agent, method: str, path: str, epoch: int, patience_s: float) -> bytes:
        url = f"{agent.url}{path}?epoch={epoch}&cluster={quote(self.cluster)}"
        request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {self._token}"})
        try:
            with DIRECTLY.open(request, timeout=patience_s) as answer:
                return bytes(answer.read(LISTED_BYTES))
        except urllib.error.HTTPError as failure:
            kind = Superseded if failure.code == SUPERSEDED else NotProvided
            raise kind(f"the agent at {agent.url} refuses it: {_words(failure)}") from None
        except (OSError, ValueError, http.client.HTTPException) as failure:
            reason = getattr(failure, "reason", failure)
            raise Away(f"the agent at {agent.url} does not answer: {reason}") from None


def _of_all(agents: list[_Agent], ask: Callable[[_Agent], Listed | NotProvided]) -> list[Listed | NotProvided]:
    """Raises NotProvided."""
    try:
        with ThreadPoolExecutor(min(16, len(agents)), thread_name_prefix="agents") as pool:
            return list(pool.map(ask, agents))
    except RuntimeError as failure:  # Python begins nothing on a pool while the process ends
        raise NotProvided(f"the agents cannot be asked: {failure}") from None


def _check(worker: str) -> None:
    if not is_worker(worker):
        raise NotProvided(f"{worker} is no id that an agent gives")


def _words(failure: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(failure.read(10_000))["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP {failure.code}"
