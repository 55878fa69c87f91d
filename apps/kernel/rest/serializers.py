"""Shapes on the wire: camelCase names, text that is text, money as decimal strings.

Knows how a column's name becomes a field's. Must never know a domain.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from apps.kernel.money import MoneyField, plain

_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?")


def camel(name: str) -> str:
    """Return a column's name as it is written on the wire."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


class CamelSerializer(serializers.Serializer[Any]):
    """A shape of its own. Knows nothing of a table."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields under their names on the wire."""
        return _renamed(super().get_fields())


def _renamed(
    fields: dict[str, serializers.Field[Any, Any, Any, Any]],
) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """Rename the fields; a value still comes from, and goes to, the column its field was named after."""
    for name, field in fields.items():
        if field.source is None and camel(name) != name:
            field.source = name
    return {camel(name): field for name, field in fields.items()}


class Text(serializers.CharField):
    """A string; a number or a boolean is not taken for one."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text. Raises ValidationError."""
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Money(serializers.Field[Decimal, Any, str, Any]):
    """USD as a decimal string: not negative, below a trillion, at most twelve digits after the point."""

    default_error_messages = {"invalid": 'Must be a decimal string such as "12.50", not negative'}

    def __init__(self, *, max_digits: int | None = None, decimal_places: int | None = None, **options: Any) -> None:
        # A column's bounds, which are those of every amount.
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> Decimal:
        """Return the exact amount. Raises ValidationError."""
        if not (isinstance(data, str) and _AMOUNT.fullmatch(data)):
            self.fail("invalid")
        return Decimal(data)

    def to_representation(self, value: Decimal) -> str:
        """Return the shortest exact text."""
        return plain(value)


class CamelModelSerializer(serializers.ModelSerializer[Any]):
    """The columns of a table, as `Meta.fields` lists them."""

    serializer_field_mapping = {**serializers.ModelSerializer.serializer_field_mapping, MoneyField: Money}

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields under their names on the wire."""
        return _renamed(super().get_fields())
