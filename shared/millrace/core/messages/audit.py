"""`audit.events`: who gave which command over HTTP, and what came of it.

The web service writes both; whoever reaches Kafka itself is not seen here, and can write here, too.
"""

from __future__ import annotations

from typing import Literal

from .base import Body

Role = Literal["viewer", "operator", "admin"]
How = Literal["none", "token", "oidc"]
"""How it is known who it is; none: there is no login."""
Verb = Literal[
    "submit", "cancel", "rescale", "redrive", "shut_down", "deregister", "register", "block", "unblock",
    "set_schedule", "pause_schedule", "resume_schedule", "remove_schedule", "run_schedule",
]  # fmt: skip
Outcome = Literal["done", "refused", "unknown"]


class CommandRequested(Body):
    """Web service: somebody gives a command. Where there is a login it is written before the command is sent, and without it nothing is
    sent: a command without its record there is none."""

    type: Literal["CommandRequested"] = "CommandRequested"
    version: Literal[1] = 1
    command: str
    request: str
    """The HTTP request, which may bring several commands: its answer has this as X-Request-Id."""
    name: str
    """Whose login it is; "" without one."""
    role: Role
    how: How
    address: str
    """Where the request came from."""
    verb: Verb
    target: str
    """The job, the host, the schedule, or the number of the dead letter; of `shut_down`, `deregister` and `register` the cluster."""
    at_ms: int


class CommandAnswered(Body):
    """Web service: what came of a command. Without one it is not known: the service ended before, or Kafka was away."""

    type: Literal["CommandAnswered"] = "CommandAnswered"
    version: Literal[1] = 1
    command: str
    outcome: Outcome
    detail: str
    """The job's status, or why it was refused."""
    at_ms: int
