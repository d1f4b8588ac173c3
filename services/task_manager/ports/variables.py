"""The environment variables that were uploaded for a job."""

from __future__ import annotations

import hashlib

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from millrace.io.storage.store import Damaged, Storage, blob_path

BYTES_MAX = 1 << 20  # a client's are a sixteenth of that


class _Variables(TypedDict):
    env: dict[str, str]
    salt: str


_VARIABLES = TypeAdapter(_Variables)


def variables(storage: Storage, job: str, acceptance: str, sha256: str) -> dict[str, str]:
    """They go to the slot's process through its pipe: into no file here, no journal and no log. Raises StorageError."""
    path = blob_path(job, acceptance, sha256)
    size = storage.size(path)
    data = storage.get(path) if size <= BYTES_MAX else b""
    try:
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError
        return _VARIABLES.validate_json(data)["env"]
    except ValueError:  # without its words, which have the values in them
        raise Damaged(path, "holds no environment variables", "submit the job again") from None
