"""What a schema tells of fields."""

from __future__ import annotations

from pydantic import BaseModel, Field

from millrace.edge.schema import Explained


class Base(BaseModel):
    one: int
    """Of the base."""
    two: int
    """Of the base."""


class Derived(Base):
    one: int = 1
    """Of the class itself."""
    three: int = Field(description="Described.")
    """Not this."""


def test_a_field_has_the_words_of_the_class_that_declares_it_last() -> None:
    found = Derived.model_json_schema(schema_generator=Explained)["properties"]
    told = {name: each["description"] for name, each in found.items()}
    assert told == {"one": "Of the class itself.", "two": "Of the base.", "three": "Described."}
