"""How the rows of hash edges are spread over the shares: counted as subtasks finish, judged once all of a task have.

Only what is known of every subtask is judged. Of one that runs again both attempts may have been counted, and rows of one that was kept
from another job never were: nothing is told of such a task.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.jobgraph.compile import PLAN_TASK, Output, Plan
from millrace.core.messages.attempts import AttemptReport, HashReport
from millrace.core.messages.execution import HeaviestKey, SkewedEdge
from millrace.core.skew import skewed_share

from .state import HashedRows, Job, Shares

EDGES_MOST = 20
"""Edges of a job."""
KEYS_KEPT = 8
KEYS_REPORTED = 3
KEY_CHARS = 64


def count(plan: Plan, job: Job, task: str, report: AttemptReport) -> Iterator[SkewedEdge]:
    """Adds what a subtask has handed on by hash; it counts as finished already. After the last one: the edges that are skewed."""
    done = job.tasks[task]
    if task == PLAN_TASK or not any(_is_hashed(each) for each in plan.tasks[task].outputs):
        return
    hashed = job.hashed.setdefault(task, HashedRows())
    if hashed.is_over:
        return
    hashed.subtasks += 1
    for number, output in enumerate(plan.tasks[task].outputs):
        found = _reported(output, report)
        if found is not None:
            _add(hashed.outputs.setdefault(number, Shares([0] * output.shares, [0] * output.shares)), found, output)
    if done.finished == done.parallelism:
        if hashed.subtasks == done.parallelism:
            yield from _judge(plan, job, task, hashed)
        job.hashed[task] = HashedRows(is_over=True)


def forget(job: Job, task: str) -> None:
    """A subtask runs again; it counts as finished no more. Where others go on to count, nothing is told of the task."""
    if task in job.hashed and job.tasks[task].finished:
        job.hashed[task] = HashedRows(is_over=True)
    else:
        job.hashed.pop(task, None)


def _is_hashed(output: Output) -> bool:
    return output.edge == "hash" and output.shares > 1


def _reported(output: Output, report: AttemptReport) -> HashReport | None:
    """What an attempt says of this output: user code may have written that, too."""
    if not _is_hashed(output) or output.vertex not in report.outputs:
        return None
    its = (each for each in report.outputs[output.vertex].hashed if tuple(each.keys) == output.keys)
    return next((each for each in its if len(each.share_rows) == len(each.share_bytes) == output.shares), None)


def _add(shares: Shares, found: HashReport, output: Output) -> None:
    shares.share_rows = [before + more for before, more in zip(shares.share_rows, found.share_rows, strict=True)]
    shares.share_bytes = [before + more for before, more in zip(shares.share_bytes, found.share_bytes, strict=True)]
    for each in found.heaviest[:KEYS_KEPT]:
        if 0 <= each.share < output.shares and len(each.key) == len(output.keys) and each.rows_about > 0:
            place = (each.share, *(None if value is None else value[: KEY_CHARS + 1] for value in each.key))
            known = next((heavy for heavy in shares.heaviest if (heavy.share, *heavy.key) == place), None)
            if known is not None:
                shares.heaviest.remove(known)
            rows = each.rows_about + (known.rows_about if known is not None else 0)
            shares.heaviest.append(each.model_copy(update={"key": list(place[1:]), "rows_about": rows}))
    shares.heaviest.sort(key=lambda heavy: -heavy.rows_about)
    del shares.heaviest[KEYS_KEPT:]


def _judge(plan: Plan, job: Job, task: str, hashed: HashedRows) -> Iterator[SkewedEdge]:
    for number, its in sorted(hashed.outputs.items()):
        rows, sizes = its.share_rows, its.share_bytes
        share = skewed_share(rows, sizes)
        if share is not None and len(job.skewed) < EDGES_MOST:
            output = plan.tasks[task].outputs[number]
            keys = [HeaviestKey(key=each.key, rows=min(each.rows_about, rows[share])) for each in its.heaviest if each.share == share]
            edge = SkewedEdge(
                task=task, vertex=output.vertex, keys=list(output.keys), readers=list(output.consumers), subtask=share,
                shares=output.shares, shares_empty=rows.count(0), rows=rows[share], rows_in_all=sum(rows),
                bytes=sizes[share], bytes_in_all=sum(sizes), heaviest=keys[:KEYS_REPORTED],
            )  # fmt: skip
            if all((each.vertex, each.keys) != (edge.vertex, edge.keys) for each in job.skewed):  # it may run as a whole again
                job.skewed.append(edge)
                yield edge
