"""services/task_manager/slot/attempt_wire.py: the models of an attempt's wire as TypedDicts, for a Python without pydantic."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from millrace.core.messages import attempts, progress

from .asyncapi import _sentences

MODELS = (
    attempts.Decided, progress.AttemptProgress, attempts.Fault, attempts.FolderRuns, attempts.InputSpec,
    attempts.SourceSpec, attempts.SinkSpec, attempts.SparkAppSpec, attempts.VertexSpec, attempts.OutputSpec,
    attempts.PinnedSource, attempts.ModuleSpec, attempts.QueryPlace, attempts.AttemptSpec, attempts.HeavyKey,
    attempts.HashReport, attempts.OutputReport, attempts.ResultRows,
    attempts.FilesLeft, attempts.OwnTime, attempts.AttemptReport,
)  # fmt: skip
HEAD = '''\
"""Any process of a slot: what an attempt is given, what it reports, why it failed.

Made by `python -m tests.docs` from the models of `millrace.core.messages.attempts`, for a slot's Python may have no
pydantic. A key that is NotRequired may be absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

FaultKind = {kinds}
'''


def text() -> str:
    head = HEAD.replace("{kinds}", _written(attempts.FaultKind))
    return "\n\n".join([head, *(_typed_dict(model) for model in MODELS)])


def _typed_dict(model: type[BaseModel]) -> str:
    lines = [f"class {model.__name__}(TypedDict):", f'    """{_sentences(model)}"""', ""]
    for name, field in model.model_fields.items():
        lines.append(f"    {field.alias or name}: {_type_of(field)}")
    return "\n".join(lines) + "\n"


def _type_of(field: FieldInfo) -> str:
    written = _written(field.annotation)
    return written if field.is_required() else f"NotRequired[{written}]"


def _written(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _written(args[0])
    if origin in (Union, types.UnionType):
        return " | ".join(map(_written, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]".replace("'", '"')
    if origin is tuple:  # of any length; JSON has lists alone
        return f"list[{_written(args[0])}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_written, args))}]"
    if annotation is type(None):
        return "None"
    return "Any" if annotation is Any else str(annotation.__name__)
