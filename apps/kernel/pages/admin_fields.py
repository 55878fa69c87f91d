"""Form fields of the admin: amounts without trailing zeros, lists with one item per line, finite JSON numbers."""

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
    """A decimal field without the column's trailing zeros."""

    def prepare_value(self, value: Any) -> Any:
        """Return the displayed text."""
        return plain(value) if isinstance(value, Decimal) else value


class FiniteJsonField(forms.JSONField):
    """JSON whose numbers PostgreSQL can store: no overflow such as 1e400, and no NaN."""

    def to_python(self, value: Any) -> Any:
        """Return the value. Raises ValidationError."""
        read = super().to_python(value)
        try:
            json.dumps(read, allow_nan=False)
        except ValueError:
            raise ValidationError("Numbers must be finite.", code="invalid") from None
        return read


class RowSelect(AutocompleteSelect):
    """An autocomplete for another table's rows. A value that cannot be an id, as in a bad link, selects none."""

    def optgroups(self, name: str, value: Sequence[str], attrs: dict[str, Any] | None = None) -> Any:
        """Return the options: the selected row."""
        return super().optgroups(name, [one for one in value if not one or self._may_be(one)], attrs)

    def _may_be(self, identifier: Any) -> bool:
        field: Any = self.field
        try:
            field.target_field.to_python(identifier)
        except ValidationError:
            return False
        return "\0" not in str(identifier)


class LinesField(forms.CharField):
    """A list of texts, one per line; surrounding spaces and empty lines are ignored."""

    widget = UnfoldAdminTextareaWidget(attrs={"rows": 5})

    def prepare_value(self, value: Any) -> Any:
        """Return the displayed text."""
        return "\n".join(str(one) for one in value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Return the lines."""
        if isinstance(value, list):
            return value
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the lines differ."""
        return bool(self.to_python(initial) != self.to_python(data))
