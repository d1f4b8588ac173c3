"""Hosts that are blocked: no slot of theirs is granted. What clients ask for, how it is kept in etcd, and what the shards are sent.

It belongs to this machine, because nobody else grants slots. A change is in force with the record that asks for it, and its client is
answered when etcd has it. A new life reads etcd before it grants anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core import answering
from millrace.core.answering import answered
from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.machine import Do, Envelope, Output, Publish, Say
from millrace.core.messages.base import Reply
from millrace.core.messages.blocklist import (
    BLOCKED_MOST,
    UNANSWERED_MOST,
    AskBlocklist,
    BlockedHost,
    BlockedHostInfo,
    BlockedHostsListed,
    BlockedTaskManagers,
    BlocklistRead,
    BlockStored,
    HostBlocked,
    HostUnblocked,
    ReadBlocklist,
    StoreBlock,
    TaskManagersBlocked,
)
from millrace.core.messages.client import RefusalKind
from millrace.core.messages.events import BlocklistChanged
from millrace.core.timing import INSPECTION_ANSWER_MS
from millrace.core.topics import shard_scope

from . import slot_manager
from .asking import answer_by
from .state import Blocked, Blocklist, State

ANSWERS_MOST = 20
"""Clients that wait for etcd. Of those that want no answer there may be more: nobody would tell them to try again."""

Outputs = Iterator[Output]


# what clients ask for


def on_ask_blocklist(state: State, body: AskBlocklist, envelope: Envelope) -> Outputs:  # [R37]
    known = state.blocklist
    if body.what == "list" and not known.reading:
        hosts = [_info(state, host) for host in sorted(known.hosts)]
        yield from _answer(body, BlockedHostsListed(correlation=body.correlation, hosts=hosts))
    elif known.reading and body.what != "list" and not body.reply_to:
        _keep(known, body)
    elif known.reading:
        yield from refuse(body, "busy", "the ResourceManager has just started, and reads which hosts are blocked; try again")
    elif len(known.answers) >= (ANSWERS_MOST if body.reply_to else UNANSWERED_MOST):
        yield from refuse(body, "busy", f"{ANSWERS_MOST} changes of the blocklist wait for etcd already; try again")
    elif body.what == "unblock":
        yield from _asked_to_unblock(state, body, envelope)
    elif body.host not in known.hosts and len(known.hosts) >= BLOCKED_MOST:
        yield from refuse(body, "conflict", f"{BLOCKED_MOST} hosts are blocked, and more may not be: unblock one (`millrace blocked`)")
    else:
        _block(state, body.host, _asked_for(body, envelope))
        _await_etcd(state, body, envelope)
        yield _store(state, body.host)
        yield from _changed(state, envelope.at_ms)


def _keep(known: Blocklist, body: AskBlocklist) -> None:
    """Until it is read which hosts are blocked."""
    known.unread.pop(body.host, None)
    if len(known.unread) < UNANSWERED_MOST:
        known.unread[body.host] = body


def _asked_for(body: AskBlocklist, envelope: Envelope) -> Blocked:
    until_ms = None if body.for_ms is None else AtMs(envelope.at_ms + body.for_ms)
    due_ms = None if body.for_ms is None else after(envelope.now_ms, body.for_ms)
    return Blocked(envelope.at_ms, until_ms, due_ms, body.by, body.reason, body.evacuate)


def _asked_to_unblock(state: State, body: AskBlocklist, envelope: Envelope) -> Outputs:
    known = state.blocklist
    if body.host not in known.hosts:
        yield from _answer(body, HostUnblocked(correlation=body.correlation, host=body.host, was_blocked=False))
        return
    _unblock(state, body.host)
    _await_etcd(state, body, envelope)
    yield _store(state, body.host)
    yield from _changed(state, envelope.at_ms)


def _await_etcd(state: State, body: AskBlocklist, envelope: Envelope) -> None:
    """For the change that is written next."""
    number = state.blocklist.writes + 1
    state.blocklist.answers[number] = body
    if body.reply_to:
        state.blocklist.due[number] = answer_by(state, envelope)


def refuse(body: AskBlocklist, kind: RefusalKind, reason: str, silent: str | None = None) -> Outputs:
    if body.reply_to:
        yield from answering.refuse(body, kind, reason, silent)


def _answer(body: AskBlocklist, reply: Reply) -> Outputs:
    if body.reply_to:  # else nobody wants an answer
        yield from answered(body.reply_to, body.number, reply)


def take(state: State, number: int) -> AskBlocklist | None:
    """Who waits for this write, and does not any more."""
    state.blocklist.due.pop(number, None)
    return state.blocklist.answers.pop(number, None)


def answer_overdue(state: State, now_ms: NowMs) -> Outputs:
    """Answers clients while etcd is silent [R31]. The change is done, and its write is under way still, so it keeps its place."""
    known = state.blocklist
    for number in [number for number, due_ms in known.due.items() if due_ms <= now_ms]:
        del known.due[number]
        asked = known.answers[number]
        known.answers[number] = asked.model_copy(update={"reply_to": ""})
        since = f"etcd has not answered within {INSPECTION_ANSWER_MS / 1000:g} s"
        reason = f"it is done, but {since}: until it has, a loss of the ResourceManager's log undoes it; look later (`millrace blocked`)"
        yield from refuse(asked, "busy", reason, "etcd")


def on_block_stored(state: State, body: BlockStored, envelope: Envelope) -> Outputs:
    asked = take(state, body.number)
    if asked is None:
        return
    if asked.what == "unblock":
        yield from _answer(asked, HostUnblocked(correlation=asked.correlation, host=asked.host))
    elif asked.host in state.blocklist.hosts:
        yield from _answer(asked, HostBlocked(correlation=asked.correlation, blocked=_info(state, asked.host)))
    else:
        yield from refuse(asked, "conflict", f"host {asked.host} was unblocked meanwhile")


# a new life


def read(state: State) -> Outputs:
    """Nothing is granted before etcd has said which hosts are blocked."""
    state.blocklist.reading = True
    yield Do("blocklist", ReadBlocklist())


def on_blocklist_read(state: State, body: BlocklistRead, envelope: Envelope) -> Outputs:  # [R37]
    """A limit goes on where it was, by the broker's clock: the machine time of the life before is gone with it."""
    state.blocklist.reading = False
    over = []
    for each in body.hosts[:BLOCKED_MOST]:
        left_ms = None if each.until_ms is None else each.until_ms - envelope.at_ms
        if left_ms is not None and left_ms <= 0:
            over.append(each.host)
            continue
        until_ms = None if each.until_ms is None else AtMs(each.until_ms)
        due_ms = None if left_ms is None else after(envelope.now_ms, left_ms)
        _block(state, each.host, Blocked(AtMs(each.since_ms), until_ms, due_ms, each.by, each.reason, each.evacuate))
    for host in over:
        yield _store(state, host)
    yield from _changed(state, envelope.at_ms)
    unread, state.blocklist.unread = state.blocklist.unread, {}
    for change in unread.values():
        yield from on_ask_blocklist(state, change, envelope)


# time


def unblock_overdue(state: State, now_ms: NowMs, at_ms: AtMs) -> Outputs:
    """Those whose time is over."""
    hosts = [host for host, each in state.blocklist.hosts.items() if each.due_ms is not None and each.due_ms <= now_ms]
    for host in hosts:
        _unblock(state, host)
        yield _store(state, host)
    if hosts:
        yield from _changed(state, at_ms)


# what follows


def notify_shards(state: State) -> Outputs:
    """Sends the shards the TaskManagers of blocked hosts, when there are others than before."""
    names: dict[str, list[str]] = {}
    for name, task_manager in state.task_managers.items():
        if task_manager.host in state.blocklist.hosts:
            names.setdefault(task_manager.host, []).append(name)
    now = [
        BlockedTaskManagers(host=host, reason=each.reason, evacuate=each.evacuate, task_managers=sorted(names[host]))
        for host, each in sorted(state.blocklist.hosts.items())
        if host in names
    ]
    if now != state.blocklist.sent:
        state.blocklist.sent = now
        for shard in range(state.shards):
            yield Say(shard_scope(shard), TaskManagersBlocked(hosts=now))


def declare(state: State, shard: int) -> Outputs:
    """To a new life of a shard."""
    if state.blocklist.sent:
        yield Say(shard_scope(shard), TaskManagersBlocked(hosts=state.blocklist.sent))


def blocked_host(host: str, blocked: Blocked) -> BlockedHost:
    """As others are sent it."""
    return BlockedHost(
        host=host, since_ms=blocked.since_ms, until_ms=blocked.until_ms, by=blocked.by, reason=blocked.reason, evacuate=blocked.evacuate
    )  # fmt: skip


def _block(state: State, host: str, blocked: Blocked) -> None:
    if host not in state.blocklist.hosts:
        for name in _task_managers_of(state, host):
            slot_manager.exclude(state, name)
    state.blocklist.hosts[host] = blocked


def _unblock(state: State, host: str) -> None:
    del state.blocklist.hosts[host]
    for name in _task_managers_of(state, host):
        slot_manager.include(state, name)


def _store(state: State, host: str) -> Do:
    """As it is now. What is written of one host is written in order."""
    state.blocklist.writes += 1
    blocked = state.blocklist.hosts.get(host)
    stored = None if blocked is None else blocked_host(host, blocked)
    return Do(f"blocklist/{host}", StoreBlock(number=state.blocklist.writes, host=host, blocked=stored))


def _changed(state: State, at_ms: AtMs) -> Outputs:
    state.blocklist.changes += 1
    hosts = [blocked_host(host, each) for host, each in sorted(state.blocklist.hosts.items())]
    yield Publish("cluster.events", "blocklist", BlocklistChanged(hosts=hosts, at_ms=at_ms, count=state.blocklist.changes))
    yield from notify_shards(state)


def _task_managers_of(state: State, host: str) -> list[str]:
    return [name for name, each in state.task_managers.items() if each.host == host]


def _info(state: State, host: str) -> BlockedHostInfo:
    there = [state.task_managers[name] for name in _task_managers_of(state, host)]
    slots = [slot for each in there for slot in each.slots.values()]
    return BlockedHostInfo(
        **blocked_host(host, state.blocklist.hosts[host]).model_dump(),
        task_managers=len(there),
        slots=len(slots),
        busy=sum(slot.allocation is not None for slot in slots),
    )
