"""Records of inboxes that are passed over [R26], as `millrace dlq` shows them beside the dead letters. They are never sent again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.cli.connection import NoConnection, places

if TYPE_CHECKING:
    from services.replay.core.recorded import Recorded, Scope
    from services.replay.live import Live


@dataclass(frozen=True)
class PassedOver:  # [R26]
    """A record that ended two processes of one build. `recorded` None: it is deleted, below a snapshot or with its generation."""

    scope: str
    generation: int
    topic: str
    partition: int
    offset: int
    reason: str
    build: str
    ended: int
    recorded: Recorded | None

    @property
    def place(self) -> str:
        """Its name: scope@offset."""
        return f"{self.scope}@{self.offset}"

    name = place

    @property
    def kind(self) -> str:
        """Its reason without what differs from record to record."""
        return self.reason.partition(":")[0]

    @property
    def size_bytes(self) -> int | None:
        """None: it is deleted."""
        return len(self.recorded.value) if self.recorded else None

    @property
    def at_ms(self) -> int:
        """When it was written; 0: not known any more."""
        return self.recorded.stamp_ms if self.recorded else 0

    @property
    def type(self) -> str | None:
        """The type of what it says."""
        return self._title[0]

    @property
    def job(self) -> str | None:
        """The job that it is about."""
        return self._title[1]

    @property
    def _title(self) -> tuple[str | None, str | None]:
        from services.replay.core.recorded import title

        return (title(self.recorded).type, title(self.recorded).job) if self.recorded else (None, None)

    @property
    def value(self) -> Any:
        """Its JSON; its text where it is none."""
        text = self.recorded.value.decode(errors="replace") if self.recorded else None
        try:
            return json.loads(text) if text is not None else None
        except (ValueError, RecursionError):
            return text

    @property
    def is_request(self) -> bool:
        """Whether it is a client's request, copied in."""
        return isinstance(self.value, dict) and self.value.get("record") == "Client"

    @property
    def refusal(self) -> str:
        """Why it is not sent again, and what to do instead."""
        if self.is_request:
            return (
                "it is a copy of a client's request, and who asked was told of the fault, for a submission without reply_to by a letter: "
                "send the request itself again, once a build runs that bears it"
            )
        return (
            f"it is a record of the inbox of {self.scope}, and what came behind it was folded without it: sent again it would be dropped, "
            "or done out of turn" + (f"; submit job {self.job} again, under a new id" if self.job else "")
        )

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "letter": self.place, "topic": self.topic, "partition": self.partition, "offset": self.offset, "reason": self.reason,
            "kind": self.kind, "type": self.type, "job": self.job, "at_ms": self.at_ms or None,
            "size_bytes": self.size_bytes, "scope": self.scope, "generation": self.generation,
            "build": self.build, "ended_processes": self.ended, "value": self.value, "redriven": None,
        }  # fmt: skip

    def story(self) -> Iterator[str]:
        """What became of it, in lines."""
        from millrace.cli.tables import when
        from millrace.runtime.parked import ENDED_MOST

        whence = f"said by {self.value['sender']}" if isinstance(self.value, dict) and self.value.get("sender") else "written"
        yield f"{when(self.at_ms)}  {whence}" if self.recorded else "its bytes are deleted: its log begins behind it"
        yield f"it ended {self.ended} processes of build {self.build}: {self.reason}"
        if self.ended > ENDED_MOST:
            yield "it is passed over since then, and its machine is told nothing of it: hearing of it ended a process, too"
        elif self.is_request:
            yield "it is passed over since then; who asked was told of the fault"
        else:
            yield "it is passed over since then" + (f"; job {self.job} has failed with that cause, unless it had ended" if self.job else "")
        yield f"millrace replay show --scope {self.scope} --from {self.offset} --all shows it among its neighbours"
        if self.job:
            yield f"millrace replay story {self.job} tells of its job"


def known(stack: str, must: bool = False, quiet: bool = False) -> list[PassedOver]:
    """All of them, by scope and offset. Where nobody can be asked, that is said, and there are none, so that letters are shown all the
    same; unless there `must` be an answer."""
    from millrace.io.interfaces import Unavailable as NoAnswer
    from services.replay.core.recorded import BadLog

    try:
        return _passed_over(stack)
    except NoConnection as failure:
        if must:
            raise
        reason = str(failure)
    except (NoAnswer, BadLog) as failure:
        from millrace.client import Unavailable

        if must:
            raise Unavailable(str(failure)) from None
        reason = str(failure)
    if not quiet:
        print(f"note: records that are passed over in inboxes are not listed: {reason}", file=sys.stderr)
    return []


def placed(passed: Iterable[PassedOver], place: str) -> PassedOver:
    from millrace.client import NotFound

    found = next((each for each in passed if each.place == place), None)
    if found is None:
        raise NotFound(f"no record {place} is passed over: millrace dlq list tells those that are")
    return found


def _passed_over(stack: str) -> list[PassedOver]:
    """Raises NoConnection (it is not known where etcd is), Unavailable, BadLog."""
    where = places(stack)
    from millrace.io.etcd.store import EtcdStore
    from millrace.io.kafka.logs import KafkaLogs
    from millrace.runtime.parked import ENDED_MOST
    from services.replay.live import Live

    store = EtcdStore(where.etcd, f"/millrace/{where.cluster}/")
    try:
        live = Live(KafkaLogs(where.kafka, client_id="millrace-dlq"), store, None, where.cluster)
        found = [(entry.key.split("/"), json.loads(entry.value)) for entry in store.list("parked/")[0]]
        # parked/<scope, perhaps with a shard>/<generation>/<offset>
        known = [("/".join(key[1:-2]), int(key[-2]), int(key[-1]), value) for key, value in found if value["ended"] >= ENDED_MOST]
        return list(_found(live, sorted(known, key=lambda each: each[:3])))
    finally:
        store.close()


def _found(live: Live, known: Iterable[tuple[str, int, int, dict[str, Any]]]) -> Iterator[PassedOver]:
    for name, generation, offset, value in known:
        scope = live.facts.scopes.get(name)
        topic, partition = live.facts.topology.inbox(name)
        here = scope is not None and scope.generation == generation
        recorded = _recorded(live, scope, offset) if scope is not None and here else None
        yield PassedOver(name, generation, topic, partition, offset, value["error"], value["build"], value["ended"], recorded)


def _recorded(live: Live, scope: Scope, offset: int) -> Recorded | None:
    from services.replay.source import log_of

    log = log_of(live, scope)
    if not log.first <= offset < log.end:
        return None
    return next((each for each in live.read(log, offset)), None)
