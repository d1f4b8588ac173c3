"""All requests on `client.commands`, and all replies on `client.replies`, from the files that declare them."""

from __future__ import annotations

from . import blocklist, client, processes, requirements, schedules
from .base import Reply, Request

_FILES = [each.__name__ for each in (client, blocklist, processes, requirements, schedules)]
REQUESTS: tuple[type[Request], ...] = tuple(sorted(Request.__subclasses__(), key=lambda each: _FILES.index(each.__module__)))
REPLIES: tuple[type[Reply], ...] = tuple(sorted(Reply.__subclasses__(), key=lambda each: _FILES.index(each.__module__)))
