"""What an attempt reports, checked before it is passed on: user code can write the files that it is read from."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from millrace.core.jobgraph.model import Limits
from millrace.core.jobgraph.parse import measure
from millrace.core.messages.base import empty

REPORT_BYTES_MAX = 700_000  # schemas, and the files that a plan pins
REPORT_DEPTH_MAX = 100  # no record that holds it may be too deep to be read
ERROR_BYTES_MAX = 128 << 10  # sixteen times what errors.describe writes of the longest, as escaped JSON

UNREADABLE = "its process left a report that cannot be read"


class Unfit(Exception):
    """A report that cannot be passed on."""


class _Column(BaseModel):
    name: str
    type: str | dict[str, Any]


class _Schema(BaseModel):
    fields: list[_Column]


class _Output(BaseModel):
    model_config = ConfigDict(strict=True)
    schema_: Annotated[str, AfterValidator(lambda text: _Schema.model_validate_json(text) and text)] = Field(alias="schema")


class _Result(BaseModel):
    model_config = ConfigDict(strict=True)
    columns: list[str]
    types: list[str]


class _Report(BaseModel):
    """What a JobMaster relies on."""

    model_config = ConfigDict(strict=True)
    outputs: dict[str, _Output] = empty(dict)
    result: _Result | None = None
    pinned: dict[str, dict[str, Any]] = empty(dict)
    key_types: dict[str, list[str]] = empty(dict)


def check_shape(spec: dict[str, Any], report: Any) -> None:
    """Raises Unfit for a report that is not the one of an attempt with this spec."""
    try:
        outputs = _Report.model_validate(report).outputs
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise Unfit(f"{UNREADABLE}: {place[:200]}: {first['msg']}") from None
    for output in spec.get("outputs", ()):
        if output["edge"] != "sink" and output["vertex"] not in outputs:
            raise Unfit(f"{UNREADABLE}: it says nothing of {output['vertex']}")


def check_size(report: dict[str, Any]) -> None:
    """Raises Unfit for a report that no record could carry."""
    size = len(json.dumps(report))
    if size > REPORT_BYTES_MAX:
        raise Unfit(f"its schemas and lists of files take {size} bytes; at most {REPORT_BYTES_MAX} can be passed on")
    if reason := measure(report, Limits(depth=REPORT_DEPTH_MAX, input_bytes=REPORT_BYTES_MAX)):
        raise Unfit(f"{UNREADABLE}: {reason}")


def sound(error: Any) -> dict[str, Any] | None:
    """An error as it may be passed on."""
    if error is None:
        return None
    fits = (
        isinstance(error, dict)
        and all(isinstance(error.get(key), kind) for key, kind in (("kind", str), ("retryable", bool), ("message", str)))
        and all(value is None or isinstance(value, (str, int)) for value in error.values())
        and len(json.dumps(error)) <= ERROR_BYTES_MAX
    )
    if fits:
        return dict(error)
    return {"kind": "user", "retryable": False, "message": "its process left an error that cannot be read"}
