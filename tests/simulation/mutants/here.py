"""Where a mutant is looked for: the clusters and the faults in which its rule is needed, more often than any seed would draw them."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutants import Mutant
from tests.simulation.slots import Timing

Here = dict[str, Any]
"""What of a trial is not drawn from its seed."""

FAULTS = 10
WAITS = (1, 3, 10, 30)
SMALL: Here = {"few": True, "paced": True, "faults": FAULTS, "waits": WAITS}
LONG = Timing(run=(200, 2_500))  # attempts that others may be started beside


def here(*kinds: str, aim: str = "", after: tuple[str, ...] = (), faults: int = FAULTS, poison: tuple[str, ...] = (), **shape: Any) -> Here:
    """`shape`: see Trial."""
    return {**SMALL, "kinds": kinds or None, "aim": aim, "after": after, "faults": faults, "poison": poison, "shape": shape}


LED = {"replicas": 2, "snapshot_records": 50}
SAVED = {"snapshot_records": 3, "stalls": 0.1}

HERE: dict[int | str, tuple[Here, ...]] = {
    1: (here("kill", "lease", "pause", replicas=2),),
    2: (here("replay", "repeat", "replay", "kill", "lease", aim="dispatcher"), here("replay", "lease", "pause:dispatcher", **LED)),
    3: (here("pause", "lease", "replay", "kill", aim="dispatcher"), here("pause", "lease", "replay")),
    5: (here("jvm", "kill", "pause", aim="task-manager", failing=0.4), here("cut:job-master", "jvm", "kill", canceled=0.5, task_managers=1)),
    6: (here("term", "give", "lease+pause", "pause", "lease", **LED), here("give", "answers:dispatcher", replicas=1)),
    7: (here("cut", "replay", "kill"),),
    8: (here("hole", "hole", "cut", "kill"), here("cut", snapshot_records=3)),
    10: (here("cut:resource-manager", "cut:job-master", "cut:dispatcher", "replace"), here("cut:job-master", canceled=0.5, slots=1, task_managers=1)),
    11: (here("cut:resource-manager", "cut:resource-manager", "kill:job-master", shards=2),),
    12: (here("hole", "hole", "kill"), here("kill", stalls=0.1)),
    13: (here("kill", "stop", aim="dispatcher", replicas=1, **SAVED), here("kill", "stop", "kill:job-master", replicas=1, **SAVED)),
    14: (here("kill", stalls=0.1, replicas=1), here("kill", "lease", "pause", stalls=0.1)),
    16: (here("kill:job-master", "pause:job-master", "cut:dispatcher", after=("SinkPublished", "JobEnded", "PublishSink"), stalls=0.1),),
    17: (here("puts", "kill", "lease", "pause", aim="dispatcher", stalls=0.1), here("lease:dispatcher+pause:dispatcher", **LED, stalls=0.1)),
    18: (
        here("cut", "replace", "puts", aim="dispatcher"),
        here("replay", "replay", "repeat", deciding={"dispatcher": {"retained_jobs": 1}}),
    ),
    19: (here("replay", "replay", "repeat", deciding={"dispatcher": {"retained_jobs": 1}}, stalls=0.1), here("replace:dispatcher", "cut:dispatcher")),
    20: (here("cut:job-master", "cut:dispatcher", "kill:job-master", after=("SinkPublished", "FINISHED", "JobEnded"), stalls=0.1), here("cut:job-master")),
    21: (here("cut:dispatcher", "cut:job-master", "kill:dispatcher"), here("puts", "cut:dispatcher", after=("JobEnded", "StartJob", "dirty"))),
    22: (here("cut", "cut", "kill", snapshot_records=3), here("one_way:dispatcher+lease:dispatcher", "pause+lease", after=("leaders/",), **LED)),
    23: (here("cut", "lease", "pause", "half_cut_off", "etcd"), here("cut:dispatcher+lease:dispatcher", "cut:job-master+lease:job-master")),
    24: (here("oblivion+cut:dispatcher", "cut:dispatcher", after=("dirty", "accepted", "JobEnded")),),
    25: (here("pause", "lease", "half_cut_off", replicas=2, **SAVED), here("kill", "pause:dispatcher", replicas=2, **SAVED)),
    26: (here("kill", faults=3, poison=("job-1",)),),
    28: (
        here("cut_off", "pause", "one_way", "kill", aim="task-manager", task_managers=2, timing=LONG, failing=0.4),
        here("twin", "lose", "stop", "kill", aim="task-manager", task_managers=3, timing=LONG),
        here("cut:job-master", "pause:task-manager", "lose+cut:resource-manager", task_managers=2, timing=LONG),
    ),
}
"""Of a mutant by its name, or of all mutants of a rule."""


def drawn(mutant: Mutant, seed: int) -> Here:
    """The trial of a seed: one of those in its turn; and now and then one as any seed draws it, but small."""
    chosen = HERE.get(mutant.name, HERE.get(mutant.rule, ()))
    turn = seed % (2 * len(chosen) + 1) if chosen else 0
    return chosen[turn % len(chosen)] if turn < 2 * len(chosen) else SMALL
