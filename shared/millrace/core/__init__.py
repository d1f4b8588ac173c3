"""The decisions of Millrace, without threads, clocks or I/O.

A service is a machine: `handle(state, envelope)` changes a state that it owns and yields outputs (`machine.py`). Its inbox is a log, and
all that can change what it decides is a record there (`messages/records.py`). `Fold` applies one record to the `ScopeState` of a scope.
`Replica` folds, and speaks for the scope while it leads. A scope without election, such as a TaskManager, has a `SoloReplica` instead.
None of them waits, retries, or knows a thread. They answer with actions, and somebody else carries these out: the shell.

The shell owes a replica the following.

1.  Give it every record of the inbox, in order, once: `record(offset, stamp_ms, record, now_ms)`. The stamp is the broker's. A record that
    ended two processes is given with `parked`; one that has been read and cannot be decoded by this build ends the process.
2.  Carry out the actions in the order in which they were answered, before the next input:

    Append      writes a record to the own inbox. It comes back as input, like any other.
    Speak       sends an output: each partition gets a prefix, in order; what `after` names goes first. When it is in Kafka: `acked`.
    Perform     performs an effect, fenced by the epoch, until its outcome is known; then `outcome`. A refused fence is no outcome.
    Campaign    takes the leader key by a compare with `expected`; then `won(epoch)` or `lost`.
    Resign      gives the leader key back, if it is still that epoch's.
    BeReborn    raises the generation together with the leader key, and begins with a blank state. Nothing more is folded here.
    Reopen      leaves this log, and goes on from a snapshot behind what cannot be read.
    Cede        folds nothing more until the other build has handed over.
    End         this replica must not go on.

3.  Call `beat(now_ms, view, caught_up, revision)` several times a tick, and again when `next_look_ms` says so. `now_ms` is a monotonic
    clock; `view` is the leader key as etcd last showed it; `caught_up` says that the end of the log was reached.
4.  Write snapshots of `folded` while nothing is folded, and begin with the newest whole one. It is all that a scope knows.
5.  Keep what it could not do out of the log: an answer that is lost is asked for again, and is never a fact.

The loop of a shell, without its failures:

    replica = Replica(Fold(machine, topology), state, who=who, build=build, settings=settings)
    replica.follow(clock())
    while True:
        for received in reader.poll(replica.next_look_ms(clock()) - clock()):
            carry_out(replica.record(received.offset, received.stamp_ms, decode(received.value), clock()))
        for epoch, seq in acknowledged():
            carry_out(replica.acked(epoch, seq))
        carry_out(replica.beat(clock(), view, caught_up(), revision()))

`runtime/loop.py:ScopeLoop` is this loop with its failures. Whatever lies here is deterministic: two replicas that fold one log have equal
states, and each tick compares a digest of what they would say. Nothing here reads a file, a clock or the environment, draws a number, or
iterates a set; `tests/core/test_purity.py` looks for all of these.

Where to read on: `machine.py`, `messages/records.py`, `fold.py`, `chain.py`, `speaking.py`, `election.py` with `states.py`, `replica.py`.
"""
