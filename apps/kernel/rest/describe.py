"""OpenAPI description of an endpoint, declared at its method, for the document at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers

Method = TypeVar("Method", bound=Callable[..., Any])
Field = serializers.Field[Any, Any, Any, Any]
# Key of an operation's refusals until the document is assembled.
REFUSES = "x-refuses"


def described(
    answer: Mapping[str, Field] | str,
    *,
    body: type[serializers.Serializer[Any]] | None = None,
    query: type[serializers.Serializer[Any]] | None = None,
    refuses: tuple[int, ...] = (),
    status: int = 200,
) -> Callable[[Method], Method]:
    """Declare a method's answer (fields, or the name of a hand-written schema), its input, and its own refusals.

    Refusals that follow from these (400 for a body, 401, 413, 415, 500, ...) are added automatically.
    """

    def describe(method: Method) -> Method:
        view, verb = method.__qualname__.split(".")
        # In the API: a view whose name would clash with another class has this ending.
        owner = view.removesuffix("Endpoint")
        name = f"{owner}{verb.title()}Answer"
        shape: Any = {"$ref": f"#/components/schemas/{answer}"}
        if not isinstance(answer, str):
            shape = inline_serializer(name=name, fields=dict(answer))
        statement = extend_schema(
            operation_id=f"{verb}{owner}",
            request=body,
            parameters=[query] if query else None,
            responses={status: shape},
            extensions={REFUSES: list(refuses)},
        )
        described_method: Method = statement(method)
        return described_method

    return describe


def message_field() -> Field:
    """Return the field of a message for people."""
    return serializers.CharField()


class PaginationShape(serializers.Serializer[Any]):
    """The end of a page: pass `nextCursor` as `cursor` for the next page; null on the last page."""

    nextCursor = serializers.CharField(allow_null=True)  # noqa: N815 - the name on the wire
    hasMore = serializers.BooleanField()  # noqa: N815 - the name on the wire
    limit = serializers.IntegerField(min_value=1, max_value=100)
