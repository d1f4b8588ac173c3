"""Whether a stack's cluster is shut down."""

from __future__ import annotations

from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Unavailable
from millrace.runtime import shut_down

PREFIX = "/millrace/default/"


def shut_down_in(endpoint: str) -> str | None:
    """Its final status, in words; None: it is not shut down, or etcd does not answer."""
    store = EtcdStore(endpoint, PREFIX)
    try:
        ended = shut_down.parsed(store.get(shut_down.KEY))
    except Unavailable:
        return None
    finally:
        store.close()
    return str(ended) if ended is not None else None
