"""What a job that fails leaves for one that repairs it, and what that one begins with.

A task is kept if all that it reads is kept, its definition is the same, and nothing of it is outside of the exchange. The staged files of
a sink are deleted with their job, and a result's rows are in its archive: such a task runs again, and so does all that reads of it.

The finished subtasks of a failed job fit together: whoever has read of a subtask that ran again has run again, too (`resetting`). The
definitions of all that a task reads are in its own. So it is enough to look at each task by itself, but for what is left out above.
"""

from __future__ import annotations

from millrace.core.bounded import bytes_of
from millrace.core.jobgraph.compile import PLAN_TASK, Plan, producers
from millrace.core.jobgraph.definitions import definitions, planning
from millrace.core.jobgraph.specs import folder_name
from millrace.core.messages.attempts import OutputReport
from millrace.core.messages.kept import KEPT_BYTES_MOST, Kept, KeptSubtask, KeptTask
from millrace.core.origins import origin_of
from millrace.core.states import ExecutionState, JobStatus

from .state import Job, Subtask, place_job

REPAIRABLE = (JobStatus.FAILED, JobStatus.CANCELED)


def left_by(job: Job, plan: Plan | None, room: int) -> Kept | None:
    """Of a job that has ended; None: nothing that can be kept had finished. `room`: bytes."""
    if plan is None or job.status not in REPAIRABLE:
        return None
    published = [sink for sink, over in job.sinks.items() if over and sink not in job.unpublished]
    if published:
        return Kept(why=f"its sink {published[0]} is published already, and would be written twice")
    defined = definitions(plan, job.planned)
    tasks: dict[str, KeptTask] = {}
    jobs: dict[str, str] = {}
    for name, task in plan.tasks.items():
        done = job.tasks[name]
        outside = any(output.edge in ("sink", "result") for output in task.outputs)
        if not done.finished or outside or any(other not in tasks for other in task.upstream):
            continue
        places: dict[str, int] = {}
        subtasks = []
        for index, row in sorted(done.rows.items()):
            if row.state is ExecutionState.FINISHED:
                where = row.kept or f"{job.acceptance}/{job.life}/{folder_name(task)}/{index}/{row.attempt}"
                place, _, attempt = where.rsplit("/", 2)
                jobs[place_job(where)] = job.kept_of.get(place_job(where), job.id)
                number = places.setdefault(place, len(places))
                outputs = {
                    vertex: OutputReport(rows=rows, bytes=size, listed=vertex in row.listed)
                    for vertex, (rows, size) in (row.outputs or {}).items()
                }
                subtasks.append(KeptSubtask(subtask=index, place=number, attempt=int(attempt), outputs=outputs))
        what, files = defined[name]
        tasks[name] = KeptTask(
            definition=what, files=files, schemas=done.schemas, schemas_of=done.schemas_of, places=list(places), subtasks=subtasks
        )
    if not tasks:
        return None
    planned_by = ""
    if job.planned is not None:
        row = job.tasks[PLAN_TASK].rows[0]
        planned_by = place_job(row.kept) if row.kept is not None else job.acceptance
        jobs[planned_by] = job.kept_of.get(planned_by, job.id)
    size = sum(out.bytes or 0 for task in tasks.values() for each in task.subtasks for out in each.outputs.values())
    kept = Kept(
        bytes=size, jobs=jobs, planning=planning(plan) if plan.needs_planning else "", planned=job.planned, planned_by=planned_by,
        tasks=tasks,
    )  # fmt: skip
    needs = bytes_of(kept.model_dump())
    if needs > min(room, KEPT_BYTES_MOST):
        return Kept(why=f"the list of what had finished takes {needs} bytes, more than can be handed on")
    return kept


def take(job: Job, kept: Kept | None) -> None:
    """The job begins with this."""
    if kept is not None and not kept.why:
        job.kept, job.kept_of = kept, dict(kept.jobs)


def restore_plan(plan: Plan, job: Job) -> bool:
    """Whether the plan attempt need not run: what it would look at is the same. Its report holds then, also for the shares of sources that
    have not been read."""
    kept = job.kept
    if kept is None or kept.planned is None or kept.planning != planning(plan):
        return False
    job.planned = kept.planned
    job.kept_bytes += kept.planned.json_bytes()
    _restored(job, PLAN_TASK, 0, f"{kept.planned_by}/plan/0/0", {})
    job.tasks[PLAN_TASK].finished = 1
    job.kept_untold.append((PLAN_TASK, kept.jobs[kept.planned_by], [0]))
    return True


def restore(plan: Plan, job: Job) -> None:
    """Before the sources begin, once what is planned is known: each task that is the same has the subtasks that had finished."""
    kept, job.kept = job.kept, None
    if kept is None:
        return
    defined = definitions(plan, job.planned)
    whatever_files = origin_of(job.graph).get("keep_changed") is True
    for name, task in plan.tasks.items():
        one = kept.tasks.get(name)
        if one is None or one.definition != defined[name].what or not (whatever_files or one.files == defined[name].files):
            continue
        by_owner: dict[str, list[int]] = {}
        for each in one.subtasks:
            if not all(_is_finished(job, *producer) for producer in producers(plan, name, each.subtask)):
                continue
            where = f"{one.places[each.place]}/{each.subtask}/{each.attempt}"
            _restored(job, name, each.subtask, where, each.outputs)
            by_owner.setdefault(kept.jobs[place_job(where)], []).append(each.subtask)
        its = job.tasks[name]
        its.finished = len(its.rows)
        if its.finished:
            its.schemas, its.schemas_of = dict(one.schemas), one.schemas_of
            job.kept_bytes += bytes_of(its.schemas) if its.schemas else 0
        if its.finished == its.parallelism:
            for reader in task.readers:
                job.tasks[reader].blocked -= name in plan.tasks[reader].whole
        job.kept_untold += [(name, of, subtasks) for of, subtasks in by_owner.items()]


def _restored(job: Job, task: str, index: int, where: str, outputs: dict[str, OutputReport]) -> None:
    job.tasks[task].rows[index] = Subtask(
        ExecutionState.FINISHED,
        outputs={vertex: (out.rows, out.bytes) for vertex, out in outputs.items()},
        listed=tuple(vertex for vertex, out in outputs.items() if out.listed),
        kept=where,
    )


def _is_finished(job: Job, task: str, index: int) -> bool:
    row = job.tasks[task].rows.get(index)
    return row is not None and row.state is ExecutionState.FINISHED
