"""OpenAPI schema of the endpoints that export a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from apps.kernel.rest.describe import REFUSES, Method
from apps.logs.export import FORMATS


def describe_export(
    query: type[serializers.Serializer[Any]], *, refuses: tuple[int, ...]
) -> Callable[[Method], Method]:
    """Declare that a method answers a file in the requested format, and its refusals."""

    def describe(method: Method) -> Method:
        owner, verb = method.__qualname__.split(".")
        media_types = (form.content_type.partition(";")[0] for form in FORMATS.values())
        described: Method = extend_schema(
            operation_id=f"{verb}{owner}",
            parameters=[query],
            responses={(200, media_type): OpenApiTypes.STR for media_type in media_types},
            extensions={REFUSES: list(refuses)},
        )(method)
        return described

    return describe
