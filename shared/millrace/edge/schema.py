"""JSON Schemas with what the docstrings below the fields say.

pydantic can read those itself when a class is made, from its source. That is a third of the time in which every process loads the
messages, and only a reader of a schema needs it.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema


class Explained(GenerateJsonSchema):
    """For `model_json_schema(schema_generator=Explained)`: a field that has no description has its docstring."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        for base in model.__mro__:  # the words of the class that declares it last
            for name, words in _docstrings(base).items() if issubclass(base, BaseModel) else ():
                alias = model.model_fields[name].alias or name
                made["properties"][alias].setdefault("description", words)
        return made


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Field -> what stands below it, of those declared in this class itself."""
    if model is BaseModel:
        return {}
    [declared] = ast.parse(inspect.getsource(model)).body
    assert isinstance(declared, ast.ClassDef)
    found = {}
    for field, below in pairwise(declared.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            words = ast.literal_eval(below.value)
            found[field.target.id] = inspect.cleandoc(words)
    return found
