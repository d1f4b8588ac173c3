"""Environment variables of a job, on their way past all topics."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping

from millrace.core.jobgraph.model import ENV_MODULE
from millrace.core.jobgraph.validate import environment_problems
from millrace.core.messages.base import canonical

from . import errors


def environment_module(env: Mapping[str, str], token: str) -> tuple[dict[str, str], bytes]:
    """(the module, its content) that brings variables to a job past all topics. The module's hash is in messages: without the token
    in it, whoever reads one could try likely values. The same variables are the same module, so that a repeat is the same job. Raises
    Invalid."""
    problems = list(environment_problems(dict(env)))
    if problems:
        raise errors.Invalid("; ".join(f"{'.'.join(map(str, each.place))}: {each.text}" for each in problems))
    values = canonical({str(name): str(value) for name, value in env.items()})
    salt = hmac.new(token.encode(), values, hashlib.sha256).hexdigest()
    content = canonical({"env": json.loads(values), "salt": salt})
    return {"name": ENV_MODULE, "sha256": hashlib.sha256(content).hexdigest(), "kind": "env"}, content
