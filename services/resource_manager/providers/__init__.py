"""Who starts and stops TaskManagers for the ResourceManager. `standalone`: nobody, they come by themselves. `process`: agents,
each of which runs them as processes of its host. Any other one is named by its factory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class NotProvided(Exception):
    """The provider has not done what was asked, or does not answer. The message is shown to whoever waits for slots."""


class Provider(Protocol):
    """Starts and stops TaskManagers under the ids that it is given, for one cluster. Every call may be repeated, by another leader too.

    `epoch` is the term of the leader that asks; it grows with each leader. Once a provider has answered `workers` of an epoch, it should do
    nothing for a lower one: a leader that was replaced, and does not know it, would change what its successor has seen. All calls are
    made on threads of the leading ResourceManager, several at once, and should return within seconds. All raise NotProvided.

    It may have an attribute `hosts`, the only hosts on which it starts any, as far as it knows since `workers` was last asked: while all of
    them are blocked it is asked for none. It may have `left_out`: why parts of it are not used, in a line each."""

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        """Has a TaskManager run whose `id` is `worker`. One that runs under it already is the one; one that has ended is started again.
        None is started on a host of `avoid`: these are blocked.

        The provider does not start it again by itself: the ResourceManager does, when it misses it."""
        ...

    def stop(self, worker: str, epoch: int) -> None:
        """Ends the TaskManager, by SIGTERM first, and returns when nothing of it runs. One that is not there is as good."""
        ...

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        """All that were started for this cluster and not stopped: id -> why it has ended, in a line; None: it runs.

        With this a new leader finds what earlier ones have started."""
        ...


class Standalone:
    """TaskManagers are started by somebody else, and register by themselves."""

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        raise NotProvided("TaskManagers are started by hand: the setting provider is standalone")

    def stop(self, worker: str, epoch: int) -> None:
        """What it has not started it does not stop."""

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        return {}


