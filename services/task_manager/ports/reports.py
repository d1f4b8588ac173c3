"""What an attempt reports, checked before it is passed on: user code can write the files that it is read from."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from millrace.core.faults import fault
from millrace.core.jobgraph.model import Limits
from millrace.core.jobgraph.parse import measure
from millrace.core.messages.attempts import AttemptReport, AttemptSpec, Fault, OwnTime
from millrace.core.messages.progress import AttemptProgress

from ..slot import wire

REPORT_BYTES_MAX = 700_000  # schemas, and the files that a plan pins
REPORT_DEPTH_MAX = 100  # no record that holds it may be too deep to be read
SPENT_MS_MAX = 1 << 53
ERROR_BYTES_MAX = 128 << 10  # sixteen times what errors.describe writes of the longest, as escaped JSON

UNREADABLE = "its process left a report that cannot be read"


class Unfit(Exception):
    """A report that cannot be passed on."""


class _Column(BaseModel):
    name: str
    type: str | dict[str, Any]


class _Schema(BaseModel):
    fields: list[_Column]


def checked(spec: AttemptSpec, left: Any) -> AttemptReport:
    """The report that an attempt with this spec left. Raises Unfit."""
    try:
        report = AttemptReport.model_validate(_sound_parts(left))
        if report.spent is not None:
            report = report.model_copy(update={"spent": _bounded(report.spent)})
        for vertex, output in report.outputs.items():
            try:
                _Schema.model_validate_json(output.spark_schema)
            except ValidationError as error:
                raise _unfit(error, f"outputs.{vertex}.schema") from None
    except ValidationError as error:
        raise _unfit(error) from None
    if report.result is not None and not {"columns", "types"} <= report.result.model_fields_set:
        raise Unfit(f"{UNREADABLE}: its result has no columns")
    for asked in spec.outputs:
        if asked.edge != "sink" and asked.vertex not in report.outputs:
            raise Unfit(f"{UNREADABLE}: it says nothing of {asked.vertex}")
    return report


def _sound_parts(left: Any) -> Any:
    """What an attempt says of files is not its to say. Of its progress what none of ours reports is left out."""
    if not isinstance(left, dict):
        return left
    return {
        name: value
        for name, value in left.items()
        if name != "files" and (name != "progress" or wire.progress_is_sound(value))
    }


def _bounded(spent: OwnTime) -> OwnTime:
    """Its known fields, where they can be lengths of time."""
    lengths = {name: getattr(spent, name) for name in OwnTime.model_fields}
    return OwnTime(**{name: ms for name, ms in lengths.items() if ms is not None and 0 <= ms <= SPENT_MS_MAX})


def _unfit(error: ValidationError, where: str = "") -> Unfit:
    first = error.errors(include_url=False, include_input=False)[0]
    place = where or ".".join(map(str, first["loc"])) or "the whole"
    return Unfit(f"{UNREADABLE}: {place[:200]}: {first['msg']}")


def check_size(report: dict[str, Any]) -> None:
    """Raises Unfit for a report that no record could carry."""
    size = len(json.dumps(report))
    if size > REPORT_BYTES_MAX:
        raise Unfit(f"its schemas and lists of files take {size} bytes; at most {REPORT_BYTES_MAX} can be passed on")
    if reason := measure(report, Limits(depth=REPORT_DEPTH_MAX, input_bytes=REPORT_BYTES_MAX)):
        raise Unfit(f"{UNREADABLE}: {reason}")


def sound(error: Any) -> Fault | None:
    """An error as it may be passed on."""
    if error is None:
        return None
    try:
        progress = error.get("progress") if isinstance(error, dict) else None
        error = {name: value for name, value in error.items() if name != "progress"} if isinstance(error, dict) else error
        found = Fault.model_validate(error)
        if wire.progress_is_sound(progress):
            found = found.model_copy(update={"progress": AttemptProgress.model_validate(progress)})
        plain = all(value is None or isinstance(value, (str, int)) for value in error.values())
        if plain and {"kind", "retryable", "message"} <= error.keys() and len(json.dumps(error)) <= ERROR_BYTES_MAX:
            return found
    except ValidationError:
        pass
    return fault("user", "its process left an error that cannot be read")
