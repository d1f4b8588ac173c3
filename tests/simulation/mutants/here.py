"""Where a mutant is looked for: the clusters and the faults in which its rule is needed, more often than any seed would draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.behaviour import Timing
from tests.simulation.beside import beside
from tests.simulation.blocking import BLOCKED
from tests.simulation.gangs import two_halves
from tests.simulation.handover import over_and_back
from tests.simulation.missing import policies_hold
from tests.simulation.mutants.registry import Mutant
from tests.simulation.placing import SPREAD
from tests.simulation.profiles import PROFILED
from tests.simulation.providing import workers_come_and_go
from tests.simulation.restoring import restored
from tests.simulation.sharing import GANGS, SHARED
from tests.simulation.shutting import shut_down_and_up
from tests.simulation.silent import large_lists, parts_stay_away
from tests.simulation.skewing import uneven_edges
from tests.simulation.speculating import second_attempts
from tests.simulation.storing import storage_is_away
from tests.simulation.strangers import STRANGERS
from tests.simulation.workload import diamond, joined, roots, sink, wide
from tests.simulation.years import years_pass

Here = dict[str, Any]
"""What of a trial is not drawn from its seed."""

FAULTS = 10
WAITS = (3, 30, 100)
SMALL: Here = {"few": True, "paced": True, "faults": FAULTS, "waits": WAITS, "steps_most": 30_000}
LONG = Timing(run=(200, 2_500))  # attempts that others may be started beside
STUBBORN = Timing(run=(200, 2_500), kill=(300, 900))
COLD = Timing(start=(900, 2_500), replaced=0.9)  # tasks wait for their slots


def here(*kinds: str, **given: Any) -> Here:
    """`given`: fields of Trial, and names in its shape."""
    fields = {name: given.pop(name) for name in ("aim", "after", "faults", "waits", "poison", "steps_most") if name in given}
    return {**SMALL, "kinds": kinds, "aim": "", **fields, "shape": given}


LED = {"replicas": 2, "snapshot_records": 50}
SAVED = {"snapshot_records": 3, "stalls": 0.1}
SOON = (0, 1, 3)
RUNS = '"state":"RUNNING"'
TIGHT = {"slots": 1, "task_managers": 1}
FORGETFUL = {"deciding": {"dispatcher": {"retained_jobs": 1}}}

CUT_OFF = here(
    "cut_off", aim="task-manager", after=(RUNS,), waits=SOON, task_managers=2, slots=2, timing=Timing(run=(1_500, 2_900))
)

WAKES = here("pause", aim="task-manager", after=("DeployTasks",), waits=SOON, task_managers=3, slots=1, timing=COLD)

BY_RULE: dict[int, tuple[Here, ...]] = {
    1: (here("kill", "lease", "pause", replicas=2),),
    2: (here("replay", "repeat", "replay", "kill", "lease", aim="dispatcher"), here("replay", "lease", "pause:dispatcher", **LED)),
    3: (here("pause", "lease", "replay", "kill", aim="dispatcher"), here("pause", "lease", "replay")),
    5: (
        here("jvm", "kill", "pause", aim="task-manager", failing=0.4),
        here("cut:job-master", "jvm", "kill", canceled=0.5, task_managers=1),
    ),
    6: (here("term", "give", "lease", "pause", aim="dispatcher", **LED),),
    7: (here("cut", "replay", "kill"),),
    8: (here("hole", "hole", "cut", "kill"), here("cut", snapshot_records=3)),
    10: (here("cut:resource-manager", "cut:job-master", "cut:dispatcher", "replace"),),
    11: (here("cut:resource-manager", "cut:resource-manager", "kill:job-master", shards=2),),
    12: (here("hole", "hole", "kill"), here("kill", stalls=0.1)),
    13: (here("kill", "stop", aim="dispatcher", replicas=1, **SAVED), here("kill", "stop", aim="job-master", replicas=1, **SAVED)),
    14: (here("kill", stalls=0.1, replicas=1), here("kill", "lease", "pause", stalls=0.1)),
    16: (here("cut:dispatcher", "kill:job-master", after=("SinkPublished", "JobEnded"), waits=SOON, stalls=0.1),),
    17: (here("puts", "kill", "lease", "pause", aim="dispatcher", stalls=0.1),),
    18: (here("replay", "replay", "repeat", **FORGETFUL), here("cut", "replace", "puts", aim="dispatcher", **FORGETFUL)),
    19: (here("replay", "replay", "repeat", stalls=0.1, **FORGETFUL), here("replace:dispatcher", "cut:dispatcher")),
    20: (here("cut:job-master", after=("SinkPublished", "FINISHED", "JobEnded"), stalls=0.1), here("cut:job-master")),
    21: (here("cut:dispatcher", "cut:job-master", "kill:dispatcher"), here("cut:dispatcher", after=("JobEnded", "StartJob"))),
    22: (here("cut", "cut", "kill", snapshot_records=3),),
    23: (here("cut", "lease", "pause", "half_cut_off", "etcd"), here("cut:dispatcher+lease:dispatcher", "cut:job-master+lease:job-master")),
    24: (here("cut:dispatcher", "oblivion+cut:dispatcher"),),
    25: (here("pause", "lease", aim="dispatcher", replicas=2, **SAVED), here("pause", "kill", replicas=2, **SAVED)),
    26: (here("kill", faults=2, poison=("job-1",), steps_most=8_000),),
    30: (here("bomb", "scratch", "kill", faults=3, steps_most=8_000),),
    31: (here("stranger", "kill"),),
    35: ({"faults": 3, "kinds": ("kill",), "aim": "resource-manager", "shape": {**SHARED, "canceled": 0.05, "failing": 0.05}},),
    37: (here("cut:resource-manager", "kill", aim="resource-manager", **BLOCKED),),
    28: (
        here("cut_off", "pause", "one_way", "kill", aim="task-manager", task_managers=2, timing=LONG),
        here("twin", "lose", "stop", "kill", aim="task-manager", task_managers=3, timing=LONG),
    ),
}
"""Of all mutants of a rule that have nothing of their own."""

NARROW = here("kill", aim="dispatcher", faults=3, deciding={"dispatcher": {"max_live_subtasks": 12}})

TALK = ("StartJob", "RequestSlots", "OfferSlots", "DeployTasks", "JobEnded")
HOLES = here("hole", after=TALK, waits=(0, 1), stalls=0.3)

PROFILES = here("kill", faults=2, **PROFILED)
PLACED = here("kill", aim="resource-manager", faults=2, **SPREAD)

RETRIED = here("kill", faults=2, replicas=2, failing=0.6, canceled=0.05, graphs=(roots,))

REPAIRED = here("kill", faults=2, repairs=1.0, failing=0.4, canceled=0.5, graphs=(wide, joined, diamond))

RESCALED = here("kill", faults=2, rescales=0.9, canceled=0.05, failing=0.05, timing=LONG, graphs=(wide, joined, diamond))

STRANGE = here("kill", aim="dispatcher", faults=2, **{**STRANGERS, "strangers": 0.2})

BY_NAME: dict[str, tuple[Here, ...]] = {
    "attempts of a rescaled job count anew": (RESCALED,),
    "a rescale waits for no attempt": (RESCALED,),
    "a rescale spends a restart": (RESCALED,),
    "a late rescale is answered as taken": (here("pause", faults=2, aim="job-master", rescales=1.0, canceled=0.05, failing=0.05),),
    "what comes while the blocklist is read is dropped": (
        here("etcd+cut:resource-manager", "cut:resource-manager", waits=(3, 30), **{**BLOCKED, "blocks": 1.0}),
    ),
    "nobody notices graphs in etcd": (STRANGE,),
    "a copied graph keeps its acceptance": (STRANGE,),
    "what others write over stays": (STRANGE,),
    "what is gone counts as deleted": (STRANGE,),
    "modules are not kept": (here("kill", aim="dispatcher", faults=2, graphs=(joined,)),),
    "what stands is taken for another": (
        here("kill", "answers", aim="dispatcher", after=("PutJobGraph", "JobGraphStored"), waits=SOON, stalls=0.1, graphs=(joined,)),
    ),
    "kept data are deleted": (REPAIRED,),
    "kept rows are looked for in vain": (REPAIRED,),
    "a task is kept by its name": (REPAIRED,),
    "a hole is taken for whole": (HOLES,),
    "slots are granted in turn whatever the setting says": (PLACED,),
    "what was granted a moment before does not count": (PLACED,),
    "a chain starts anywhere": (
        here("hole", "hole", "kill", after=('"type":"Hello"', '"prev":null'), faults=24, waits=SOON, replicas=1),
    ),
    "a hole in the offsets is folded over": (here("missing+kill", replicas=1, snapshot_records=50_000),),
    "an old cancel counts": (here("replace:dispatcher", "cut:dispatcher", early=0.3, canceled=0.05, failing=0.05, timing=LONG),),
    "what cannot be read is tried for ever": (here("flipped+kill", replicas=1, snapshot_records=50_000),),
    "what a life before holds is not waited for": (
        here("cut:job-master", after=(RUNS,), waits=SOON, timing=STUBBORN, task_managers=2, slots=2, failing=0.05, graphs=(roots,)),
    ),
    "messages of the lost still count": (here("pause", "one_way", "kill", aim="task-manager", task_managers=2, timing=LONG, stalls=0.3),),
    "an ending is stored each time it is announced": (here("cut:dispatcher", after=("JobEnded",), waits=SOON, stalls=0.3),),
    "nobody minds a lost task manager": (
        here("lose", "kill", aim="task-manager", after=(RUNS,), waits=SOON, task_managers=2, slots=1, timing=LONG),
    ),
    "nobody is declared lost": (here("lose", "kill", aim="task-manager", after=(RUNS,), waits=SOON, task_managers=2, timing=LONG),),
    "a restart is not counted": (RETRIED,),
    "a failure within the interval is forgotten": (RETRIED,),
    "jitter is drawn": (RETRIED,),
    "readers of what is made anew go on": (here("kill", faults=2, failing=0.4, canceled=0.05, graphs=(diamond, joined)),),
    "a job ends before its sinks are published": (
        here("pause:job-master", after=("JobEnded",), waits=SOON, stalls=0.3, failing=0.05, graphs=(sink,)),
    ),
    "a bad record is never passed over": (here("kill", faults=1, poison=("job-1",), steps_most=6_000),),
    "a refused slot is not given back": (here("jvm", after=("AllocateSlot",), waits=(0,), stalls=0.0, **TIGHT),),
    "what is freed is not looked at": (here("jvm", after=("AllocateSlot",), waits=(0,), stalls=0.0, **TIGHT),),
    "an old report takes a grant back": (here("one_way:task-manager", after=("RequestSlots",), waits=SOON),),
    "a slot that is given back is free at once": (here("cut:job-master", after=(RUNS,), waits=SOON, timing=STUBBORN, slots=3),),
    "a slot is freed with its attempt": (here("cut:job-master", after=(RUNS,), waits=SOON, timing=LONG, slots=1),),
    "a cancel before the start is not reported": (here("kill", faults=3, canceled=0.8, timing=COLD, **TIGHT),),
    "a campaign takes any key": (here("lease", replicas=3),),
    "a key of its own is never taken anew": (here("give", replicas=1),),
    "a resignation deletes any key": (here("term", replicas=2),),
    "who cannot write its election keeps the key": (  # not before a standby that lost the first campaign may try again
        here("voiceless+stop", aim="dispatcher", after=("JobEnded",), waits=SOON, faults=1, replicas=2),
    ),
    "what follows a fork is a hole": (
        here("cut_unseen:resource-manager", "cut_unseen:dispatcher", "kill", stalls=0.1, snapshot_records=50_000),
    ),
    "a bad start of an ended job is not answered": (
        here("cut:dispatcher", after=("JobEnded",), waits=SOON, faults=2, poison=("job-1",), steps_most=8_000),
    ),
    "a fork is passed over": (here("cut_unseen:job-master", "cut_unseen:resource-manager", stalls=0.1, snapshot_records=50_000),),
    "one shard alone is notified of a loss": (
        here("lose", after=(RUNS,), waits=SOON, faults=2, shards=2, task_managers=3, slots=1, timing=LONG),
    ),
    "wants of a life before stay": (
        here("cut:job-master", after=("CancelStartedJob",), waits=SOON, canceled=0.8, stalls=0.1, timing=LONG, **TIGHT),
    ),
    "a snapshot without the outbox": (
        here("kill:job-master", "kill:dispatcher", after=("snapshots/",), waits=(0, 1), replicas=1, snapshot_records=3, stalls=0.3),
    ),
    "the mark is before what is on its way": (
        here("kill:job-master", "kill:dispatcher", after=("Tick",), waits=(0,), stalls=0.3),
    ),
    "a torn snapshot counts": (here("torn:dispatcher+kill:dispatcher", replicas=1, snapshot_records=50),),
    "a snapshot is of a later moment": (here("kill", replicas=1, snapshot_records=3, stalls=0.3),),
    "a table is kept by its first piece": (here("kill", snapshot_records=3),),
    "nobody gives a scope away": (here("kill", "lease", shards=2, replicas=2),),
    "a scope is given to an equal": (here("kill", "lease", shards=2, replicas=2),),
    "a refusal is an outcome": (here("lease", aim="dispatcher", after=('"Client"',), waits=SOON, replicas=2, stalls=0.3),),
    "unknown is an outcome": (here("puts", aim="dispatcher"),),
    "subtasks take no room": (NARROW,),
    "room is not given back": (NARROW,),
    "archives have one name": (here("puts:dispatcher", "all_cut", "etcd", after=("JobEnded",), waits=(3, 10, 30), stalls=0.1),),
    "published files are named anew": (
        here("cut:job-master", after=("SinkPublished",), waits=(0,), faults=4, failing=0.05, graphs=(sink,)),
    ),
    "any election counts": (here("pause+lease", after=("leaders/dispatcher",), aim="dispatcher", waits=SOON, replicas=2),),
    "a reborn dispatcher passes over dirty jobs": (here("cut:dispatcher", after=("dirty",), waits=SOON),),
    "a lost outcome is waited for": (here("cut:dispatcher", after=("dirty",), waits=SOON),),
    "a reborn dispatcher recovers nothing": (here("oblivion+cut:dispatcher"),),
    "a move counts as a failure": (
        here("kill", "lose", aim="task-manager", after=(RUNS,), waits=SOON, task_managers=2, timing=LONG, failing=0.05),
    ),
    "nobody is missed": (here("lose+cut:resource-manager", after=(RUNS,), waits=SOON, task_managers=2, slots=1, timing=LONG),),
    "who is cut off goes on": (CUT_OFF,),
    "who is cut off is patient": (CUT_OFF,),
    "who is declared lost goes on": (here("etcd+pause:task-manager", task_managers=2),),
    "who wakes launches at once": (WAKES,),
    "a gang is given what is free": ({"faults": 3, "kinds": ("kill",), "aim": "resource-manager", "shape": GANGS},),
    "extras are not looked at": (PROFILES,),
    "the slots of a job are alike": (PROFILES,),
    "messages of an earlier life count": (here("twin", after=(RUNS,), waits=SOON, aim="task-manager", timing=LONG),),
}


SCENES: dict[int, Callable[[int], None]] = {
    15: large_lists,
    16: uneven_edges,
    24: restored,
    27: lambda seed: over_and_back(seed, times=2),
    28: storage_is_away,
    29: beside,
    31: parts_stay_away,
    32: years_pass,
    33: workers_come_and_go,
    34: shut_down_and_up,
    35: two_halves,
    36: policies_hold,
    38: second_attempts,
}
"""Rule -> what is run instead of a trial, for the mutants in the files of SCENES_OF."""
SCENES_OF = (
    ".restored", ".clusters", ".silent", ".growth", ".workers", ".shutting", ".gangs", ".scheduling", ".speculating", ".skewing",
    ".storing",
)  # fmt: skip


def drawn(mutant: Mutant, seed: int) -> Here:
    """The trial of a seed: one of those in its turn; and now and then one as any seed draws it, but small."""
    chosen = BY_NAME.get(mutant.name, BY_RULE.get(mutant.rule, ()))
    turn = seed % (2 * len(chosen) + 1) if chosen else 0
    return chosen[turn % len(chosen)] if turn < 2 * len(chosen) else SMALL
