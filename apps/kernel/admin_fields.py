"""Form fields of the admin: amounts without the zeros of their columns, lists as one line each.

Knows how values are typed and shown. Must never know what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib.admin.widgets import AutocompleteSelect
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.kernel.money import plain


class PlainDecimalField(forms.DecimalField):
    """A decimal to be typed, shown without the zeros that its column has at the end."""

    def prepare_value(self, value: Any) -> Any:
        """Return what the field shows."""
        return plain(value) if isinstance(value, Decimal) else value


class FiniteJsonField(forms.JSONField):
    """JSON whose numbers PostgreSQL can keep: none that is too large to be one, such as 1e400, and no NaN."""

    def to_python(self, value: Any) -> Any:
        """Return the value. Raises ValidationError."""
        read = super().to_python(value)
        try:
            json.dumps(read, allow_nan=False)
        except ValueError:
            raise ValidationError("Numbers must be finite.", code="invalid") from None
        return read


class RowSelect(AutocompleteSelect):
    """Another table's row, found while one types. What cannot be an id, as a link may have it, is no row's."""

    def optgroups(self, name: str, value: Sequence[str], attrs: dict[str, Any] | None = None) -> Any:
        """Return what can be chosen: the row that is."""
        return super().optgroups(name, [one for one in value if not one or self._may_be(one)], attrs)

    def _may_be(self, identifier: Any) -> bool:
        field: Any = self.field
        try:
            field.target_field.to_python(identifier)
        except ValidationError:
            return False
        return "\0" not in str(identifier)


class LinesField(forms.CharField):
    """A list of texts, one a line; blanks around them and empty lines count for nothing."""

    widget = UnfoldAdminTextareaWidget(attrs={"rows": 5})

    def prepare_value(self, value: Any) -> Any:
        """Return what the field shows."""
        return "\n".join(str(one) for one in value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Return the lines."""
        if isinstance(value, list):
            return value
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Tell whether the lines differ."""
        return bool(self.to_python(initial) != self.to_python(data))
