"""Base class of management endpoints, JSON in, JSON out; and the OpenAPI description of an endpoint.

A description is declared at its method, for the document at `/openapi.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, TypeVar

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from apps.kernel.json_bounds import Bounds, OutOfBounds, decode_within

# Limits of a body: more than the longest list of rules that an endpoint accepts.
BODY_BOUNDS = Bounds(values=10_000, depth=32, name=1_024, digits=1_024)


class JsonParser(BaseParser):
    """Strict JSON: UTF-8 regardless of the header, no NaN, within limits."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the value. Raises ParseError."""
        try:
            return decode_within(stream.read(), BODY_BOUNDS)
        except OutOfBounds as passed:
            raise ParseError(f"The request body {passed}") from passed
        except (ValueError, RecursionError) as error:  # Text that is not UTF-8 is a ValueError of its own.
            raise ParseError("The request body is not valid JSON") from error


class JsonAlone(BaseContentNegotiation):
    """Always answers JSON, whatever the client accepts."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """Return the parser for the request's content type."""
        media_type = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == media_type), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the JSON renderer."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class Endpoint(APIView):
    """A management endpoint. Views parse, call an action or a query, and present."""

    parser_classes = [JsonParser]
    content_negotiation_class = JsonAlone

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer; then break the reference cycles of view, request and response."""
        response = super().dispatch(request, *args, **kwargs)
        if isinstance(response, Response):
            response.add_post_render_callback(self._let_go)
        elif not response.streaming:
            self._let_go(response)
        return response

    def _let_go(self, response: Any) -> None:
        # They refer to each other, and middleware's objects refer to Django's request: without this, everything would
        # stay until the next garbage collection.
        for name in ("user", "auser", "_messages"):
            vars(self.request._request).pop(name, None)
        response.renderer_context = self.request.parser_context = {}
        del self.request, self.response

    def read(self, shape: type[BaseSerializer[Any]], **about: Any) -> dict[str, Any]:
        """Return the validated request body; `about` is the serializer's context. Raises ValidationError."""
        body = self.request.data
        if not isinstance(body, Mapping):
            raise ValidationError("Must be a JSON object")
        return _read(shape, body, about)

    def read_query(self, shape: type[BaseSerializer[Any]]) -> dict[str, Any]:
        """Return the validated query; the last of repeated names counts. Raises ValidationError."""
        return _read(shape, self.request.query_params.dict(), {})


def _read(shape: type[BaseSerializer[Any]], given: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    serializer = shape(data=given, context=dict(about))
    try:
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)
    finally:
        # A reference cycle between the serializer and its fields.
        vars(serializer).pop("fields", None)


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
