"""Who a request is from, for whatever answers it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import get_args

from millrace.core.messages.audit import How, Role

ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may."""
COOKIE = "__Host-millrace"
"""Of a browser that has logged in. `__Host-`: it is sent over TLS (or to loopback) alone, to this name alone, and no neighbour sets it."""


def always() -> bool:
    return True


@dataclass(frozen=True)
class Who:
    """Somebody, and how that is known. `how` none: there is no login, or it is a page that needs none."""

    name: str = ""
    role: Role = "admin"
    how: How = "none"
    session: str = ""
    """The id of the browser's session, if a cookie told it."""
    holds: Callable[[], bool] = always
    """Whether it is true still: a token may be revoked, a session ends. A stream is asked for it again and again."""
    address: str = ""
    request: str = ""
    """The id of the request, which its answer has as X-Request-Id."""

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


ANYBODY = Who()
"""Where there is no login."""
NOBODY = Who(role="viewer")
"""Where there is one, on the pages that come before it."""
current: ContextVar[Who] = ContextVar("who", default=ANYBODY)
"""Of the request that is answered now."""
