"""The form of a mapping in the admin: a field for each price that an operator may override; the tables of a card
(tiers, regions, tools) share one field of JSON.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextareaWidget

from apps.catalog.price_cards import read_card, write_card
from apps.kernel.money import plain
from apps.kernel.pages.admin import PlainDecimalField

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

_MILLION = "USD per million tokens"
# Units of prices with a single amount.
UNITS = {
    "input": _MILLION,
    "output": _MILLION,
    "cached_input": _MILLION,
    "cache_write": _MILLION,
    "cache_write_1h": _MILLION,
    "reasoning": _MILLION,
    "image_input": _MILLION,
    "image_output": _MILLION,
    "audio_input": _MILLION,
    "audio_output": _MILLION,
    "cached_audio": _MILLION,
    "cached_image": _MILLION,
    "image": "USD per generated image",
    "request": "USD per request",
    "web_search": "USD per search",
    "grounded_request": "USD per request with web search",
    "characters": "USD per million characters of speech input",
    "audio_minute": "USD per minute of audio",
    "audio_minimum": "minimum billed seconds per recording",
    "search_unit": "USD per search unit of reranking",
}
# Tables of a price card, and the form field that sets them.
TABLES = ("tiers", "service_tiers", "regions", "tools", "search_sizes")
TABLES_FIELD = "override_tables"
_NAMES = [f"override_{name}" for name in UNITS]
# Three per line of the form.
OVERRIDES = (*(tuple(_NAMES[first : first + 3]) for first in range(0, len(_NAMES), 3)), (TABLES_FIELD,))


def _field(name: str) -> PlainDecimalField:
    return PlainDecimalField(
        required=False,
        min_value=0,
        label=name.replace("_", " ").capitalize(),
        widget=UnfoldAdminDecimalFieldWidget,
    )


class MappingForm(_Form):
    """A mapping with typed price overrides; an empty field keeps the file's price."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stated, overrides = self.instance.prices or {}, self.instance.price_overrides or {}
        for name, unit in UNITS.items():
            field = self.fields.get(f"override_{name}")
            if field is None:
                continue
            own = stated.get(name)
            field.help_text = f"{unit}. {f'File: {own}.' if own is not None else 'Not in the file.'}"
            if overrides.get(name) is not None:
                self.initial.setdefault(f"override_{name}", Decimal(str(overrides[name])))
        if (field := self.fields.get(TABLES_FIELD)) is not None:
            own = {name: stated[name] for name in TABLES if stated.get(name)}
            field.help_text = (
                f"JSON with any of {', '.join(TABLES)}, each in place of the file's. "
                f"{f'File: {json.dumps(own)}.' if own else 'Not in the file.'}"
            )
            set_here = {name: overrides[name] for name in TABLES if overrides.get(name) is not None}
            self.initial.setdefault(TABLES_FIELD, set_here or None)

    def clean(self) -> dict[str, Any]:
        """Combine and validate the overrides. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kept = self.instance.price_overrides or {}
        replaced = {*UNITS, *(TABLES if TABLES_FIELD in self.fields else ())}
        overrides = {name: price for name, price in kept.items() if name not in replaced or price is None}
        overrides |= self._tables(cleaned.get(TABLES_FIELD))
        for name in UNITS:
            given = cleaned.get(f"override_{name}")
            if given is not None:
                overrides[name] = plain(given)
                self._check(name, plain(given))
        self.instance.price_overrides = overrides
        return cleaned

    def _tables(self, given: Any) -> dict[str, Any]:
        """Return the tables as a row stores them; invalid ones are errors of the field."""
        if given in (None, {}):
            return {}
        try:
            if not isinstance(given, dict) or set(given) - set(TABLES):
                raise ValueError(f"only {', '.join(TABLES)} can be set here")
            card = write_card(read_card(given))
        except (ValueError, TypeError) as error:
            self.add_error(TABLES_FIELD, str(error))
            return {}
        return {name: card.get(name, given[name]) for name in given}

    def _check(self, name: str, price: str) -> None:
        try:
            read_card({name: price})
        except ValueError as error:
            self.add_error(f"override_{name}", str(error))


# As if each were declared in the class.
MappingForm.declared_fields.update(
    {f"override_{name}": _field(name) for name in UNITS}
    | {TABLES_FIELD: forms.JSONField(required=False, label="Prices in tables", widget=UnfoldAdminTextareaWidget)}
)
