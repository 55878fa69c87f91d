"""The form of a mapping in the admin: a field for each price that an operator sets over the file's, instead of JSON.

Knows fields. What a price may be, `price_cards.py` knows.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from apps.catalog.price_cards import read_card
from apps.kernel.admin_fields import PlainDecimalField
from apps.kernel.money import plain

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

_MILLION = "USD per million tokens"
# What each price is for; every price of a card but its tiers.
UNITS = {
    "input": _MILLION,
    "output": _MILLION,
    "cached_input": _MILLION,
    "cache_write": _MILLION,
    "reasoning": _MILLION,
    "image_input": _MILLION,
    "image_output": _MILLION,
    "audio_input": _MILLION,
    "audio_output": _MILLION,
    "image": "USD per picture made",
    "request": "USD per request",
    "web_search": "USD per search",
    "characters": "USD per million characters read aloud",
    "audio_minute": "USD per minute listened to",
    "search_unit": "USD per search unit of reranking",
}
_NAMES = [f"override_{name}" for name in UNITS]
# Three on a line of the form.
OVERRIDES = tuple(tuple(_NAMES[first : first + 3]) for first in range(0, len(_NAMES), 3))


def _field(name: str) -> PlainDecimalField:
    return PlainDecimalField(
        required=False,
        min_value=0,
        label=name.replace("_", " ").capitalize(),
        widget=UnfoldAdminDecimalFieldWidget,
    )


class MappingForm(_Form):
    """A mapping whose price overrides are typed; an empty field leaves the file's price, tiers stay as they are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stated, overrides = self.instance.prices or {}, self.instance.price_overrides or {}
        for name, unit in UNITS.items():
            field = self.fields.get(f"override_{name}")
            if field is None:
                continue
            own = stated.get(name)
            field.help_text = f"{unit}. {f'The file says {own}.' if own is not None else 'The file states none.'}"
            if overrides.get(name) is not None:
                self.initial.setdefault(f"override_{name}", Decimal(str(overrides[name])))

    def clean(self) -> dict[str, Any]:
        """Put the overrides together, and hold them to what a card may state. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kept = self.instance.price_overrides or {}
        overrides = {name: price for name, price in kept.items() if name not in UNITS or price is None}
        for name in UNITS:
            given = cleaned.get(f"override_{name}")
            if given is not None:
                overrides[name] = plain(given)
                self._check(name, plain(given))
        self.instance.price_overrides = overrides
        return cleaned

    def _check(self, name: str, price: str) -> None:
        try:
            read_card({name: price})
        except ValueError as error:
            self.add_error(f"override_{name}", str(error))


# As if each were written out in the class.
MappingForm.declared_fields.update({f"override_{name}": _field(name) for name in UNITS})
