"""What an endpoint takes and gives, stated at its method, for the document at `/openapi.json`.

Knows how a statement is written. Must never change what a method does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers

Method = TypeVar("Method", bound=Callable[..., Any])
Field = serializers.Field[Any, Any, Any, Any]
# The member of an operation that lists its refusals until the document is put together.
REFUSES = "x-refuses"


def described(
    answer: Mapping[str, Field] | str,
    *,
    body: type[serializers.Serializer[Any]] | None = None,
    query: type[serializers.Serializer[Any]] | None = None,
    refuses: tuple[int, ...] = (),
) -> Callable[[Method], Method]:
    """State what a method answers (fields, or the name of a hand-kept schema), what it reads, and its own refusals.

    Refusals that follow from the rest (400 for a body, 401, 413, 415, 500, ...) go without saying.
    """

    def describe(method: Method) -> Method:
        owner, verb = method.__qualname__.split(".")
        name = f"{owner}{verb.title()}Answer"
        shape: Any = {"$ref": f"#/components/schemas/{answer}"}
        if not isinstance(answer, str):
            shape = inline_serializer(name=name, fields=dict(answer))
        statement = extend_schema(
            operation_id=f"{verb}{owner}",
            request=body,
            parameters=[query] if query else None,
            responses={200: shape},
            extensions={REFUSES: list(refuses)},
        )
        described_method: Method = statement(method)
        return described_method

    return describe


def message_field() -> Field:
    """Return the field of what is said to people."""
    return serializers.CharField()


class PaginationShape(serializers.Serializer[Any]):
    """Where a page ends: `nextCursor` is the `cursor` of the next one, null on the last."""

    nextCursor = serializers.CharField(allow_null=True)  # noqa: N815 - the name on the wire
    hasMore = serializers.BooleanField()  # noqa: N815 - the name on the wire
    limit = serializers.IntegerField(min_value=1, max_value=100)
