"""Examples of JSON Schemas, read back by the library that wrote the schema, and value by value."""

from __future__ import annotations

import enum
from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from apps.sandbox.example import example_of


class Color(enum.StrEnum):
    """An enumeration, which becomes a reference."""

    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=7, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = Field(min_length=2)


class Tree(BaseModel):
    name: str
    parent: Tree | None
    children: list[Tree]
    by_name: Tree | None = None


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    color: Color
    pet: Cat | Dog = Field(discriminator="kind")
    tree: Tree
    code: Annotated[str, Field(min_length=6, max_length=8)]
    short: Annotated[str, Field(max_length=2)]
    digits: Annotated[str, Field(pattern=r"^\d{4}$")]
    share: Annotated[float, Field(gt=0, lt=1)]
    even: Annotated[int, Field(multiple_of=4, gt=5)]
    below: Annotated[int, Field(lt=-3)]
    born: date
    seen: datetime
    key: UUID
    maybe: int | None
    pair: tuple[int, str]
    several: set[int] = Field(min_length=3)
    nothing: None
    flag: bool
    anything: Any
    free: dict[str, int]


def test_an_example_of_everything_is_accepted_by_its_model() -> None:
    example = example_of(Everything.model_json_schema())
    read = Everything.model_validate(example)
    assert read.color is Color.RED
    assert read.pet == Cat(kind="cat", lives=7)
    assert (read.code, read.short, read.digits) == ("codexx", "sh", "1234")
    assert (read.share, read.even, read.below) == (0.5, 8, -4)
    assert (read.maybe, read.pair, read.several, read.nothing, read.flag) == (1, (1, "pair2"), {1, 2, 3}, None, True)
    assert example == example_of(Everything.model_json_schema())


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": ["null", "integer"]}, 1),
        ({"enum": ["b", "a"]}, "b"),
        ({"const": {"a": 1}}, {"a": 1}),
        ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, True),
        (
            {"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"type": "string"}}}]},
            {"a": None, "b": "b"},
        ),
        ({"type": "object", "required": ["only"]}, {"only": "only"}),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, []),
        ({"type": "number", "multipleOf": 0.25, "minimum": 0.3}, 1.0),
        ({"type": "integer", "minimum": 1.5, "maximum": 2.5}, 2),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5}, 4),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string", "format": "email"}}}, "user@example.com"),
        (True, "text"),
    ],
)
def test_examples(schema: dict[str, Any] | bool, value: Any) -> None:
    example = example_of(schema)
    assert (example, type(example)) == (value, type(value))
