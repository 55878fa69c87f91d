"""The form of a mapping in the admin: a field for each price that an operator may override; the tables of a card
(tiers, regions, tools) share one field of JSON.

Changed prices are saved once the operator has seen what a usual request costs before and after. They take effect at
once, or at a stated time (`price_history.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from django import forms
from django.http import QueryDict
from django.utils import timezone
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextareaWidget

from apps.catalog.billed_prices import bill_offer, find_factor_of
from apps.catalog.price_cards import read_card, write_card
from apps.catalog.price_history import find_waiting
from apps.catalog.price_words import LABELS
from apps.kernel.money import plain
from apps.kernel.pages.admin import PlainDecimalField, usd
from apps.kernel.prices import TOKEN_PRICES, PriceCard

# Tokens of the requests whose cost is shown: a usual one, and one that reaches the tiers of long prompts.
USUAL: Final = 10_000
LONG: Final = 300_000
ANSWER: Final = 1_000
_PRICED_TOKENS: Final = Decimal(1_000_000)


def cost_lines(before: PriceCard | None, after: PriceCard) -> list[str]:
    """Return lines with the cost of a usual request before and after, and of a long one if prices depend on length.

    `before` is None for an offer that is not served yet.
    """
    has_tiers = bool(after.tiers or (before is not None and before.tiers))
    return [
        f"A request with {size:,} tokens of prompt and {ANSWER:,} of answer: "
        f"{'not served' if before is None else f'{usd(_cost(before, size))} USD'} → {usd(_cost(after, size))} USD"
        for size in (USUAL, *((LONG,) if has_tiers else ()))
    ]


def _cost(card: PriceCard, prompt: int) -> Decimal:
    reached = [tier for tier in card.tiers if prompt > tier.above_input_tokens]
    tier = max(reached, key=lambda one: one.above_input_tokens, default=None)

    def price(name: str) -> Decimal:
        own = getattr(tier, name, None) if tier is not None else None
        return own if own is not None else getattr(card, name) or Decimal(0)

    return (price("input") * prompt + price("output") * ANSWER) / _PRICED_TOKENS


if TYPE_CHECKING:
    from django.forms import TextInput

    _Form = forms.ModelForm[Any]
else:
    from unfold.widgets import UnfoldAdminTextInputWidget as TextInput

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
# When changed prices take effect, and the hash of the change that the operator has seen.
EFFECTIVE_FIELD, SEEN_FIELD = "prices_effective_at", "seen_prices"
# Two per line of the form: three are too narrow for a price and its unit.
OVERRIDES = (
    *(tuple(_NAMES[first : first + 2]) for first in range(0, len(_NAMES), 2)),
    TABLES_FIELD,
    EFFECTIVE_FIELD,
    SEEN_FIELD,
)


class _MomentInput(TextInput):
    input_type = "datetime-local"

    def format_value(self, value: Any) -> Any:
        """Return the value as browsers read it, to the minute."""
        return f"{value:%Y-%m-%dT%H:%M}" if isinstance(value, datetime) else super().format_value(value)


def _field(name: str) -> PlainDecimalField:
    return PlainDecimalField(
        required=False,
        min_value=0,
        label=LABELS[name],
        widget=UnfoldAdminDecimalFieldWidget,
    )


class MappingForm(_Form):
    """A mapping with typed price overrides; an empty field keeps the file's price.

    `new_overrides` are those that the form states, after `clean`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stated, overrides = self.instance.prices or {}, self.instance.price_overrides or {}
        factor = self._find_factor()
        for name, unit in UNITS.items():
            field = self.fields.get(f"override_{name}")
            if field is None:
                continue
            own = stated.get(name)
            field.help_text = f"{unit}. {f'File: {own}.' if own is not None else 'Not in the file.'}"
            if factor is not None and own is not None and name in TOKEN_PRICES:
                billed = plain(Decimal(str(own)) * factor)
                field.help_text += f" Billed at the provider's address: {billed}; a price set here is billed as it is."
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

    def _find_factor(self) -> Decimal | None:
        """Return the factor of the provider's address; None without one, and for a new row."""
        if self.instance._state.adding:
            return None
        try:
            return find_factor_of(self.instance.provider, self.instance.model_id, self.instance.facts)
        except (ValueError, TypeError):
            return None

    def clean(self) -> dict[str, Any]:
        """Combine and validate the overrides, and show a change before it is saved. Raises ValidationError."""
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
        changed = self._is_change(overrides)
        self._check_time(cleaned.get(EFFECTIVE_FIELD), changed)
        if changed and not self.errors:
            self._require_seen(overrides, cleaned.get(EFFECTIVE_FIELD))
        self.new_overrides = overrides
        if not cleaned.get(EFFECTIVE_FIELD):
            self.instance.price_overrides = overrides
        return cleaned

    def _is_change(self, overrides: Mapping[str, Any]) -> bool:
        """Return whether the overrides differ from those of a stored row; a new row has nothing to compare."""
        return not self.instance._state.adding and overrides != (self.instance.price_overrides or {})

    def _check_time(self, at: datetime | None, changed: bool) -> None:
        if at is None:
            return
        waiting = None if self.instance._state.adding else find_waiting(self.instance)
        if not changed:
            self.add_error(EFFECTIVE_FIELD, "No price differs from the current one. Change a price, or clear the time.")
        elif at <= timezone.now():
            self.add_error(EFFECTIVE_FIELD, "Must be in the future. Clear it to change the prices at once.")
        elif waiting is not None:
            self.add_error(EFFECTIVE_FIELD, f"A change is scheduled already: {waiting}. Withdraw it first.")

    def _require_seen(self, overrides: Mapping[str, Any], at: datetime | None) -> None:
        """Show what the change costs, unless the operator has seen it. Raises ValidationError."""
        seen = sha256(json.dumps([overrides, str(at)], sort_keys=True).encode()).hexdigest()
        if self.cleaned_data.get(SEEN_FIELD) == seen:
            return
        # The next click confirms the change that is shown.
        data = cast(QueryDict, self.data).copy()
        data[self.add_prefix(SEEN_FIELD)] = seen
        self.data = data
        try:
            lines = cost_lines(bill_offer(self.instance).card, bill_offer(self.instance, overrides).card)
        except (ValueError, TypeError) as error:
            lines = [f"Its cost cannot be shown: {error}"]
        when = "at once" if at is None else f"on {at:%Y-%m-%d at %H:%M} UTC"
        raise forms.ValidationError(
            [
                "Not saved yet. Check the new prices, then save again.",
                *(f"{one}." for one in lines),
                f"The prices change {when}.",
            ],
            code="not_seen",
        )

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
    | {
        TABLES_FIELD: forms.JSONField(required=False, label="Prices in tables", widget=UnfoldAdminTextareaWidget),
        EFFECTIVE_FIELD: forms.DateTimeField(
            required=False,
            label="New prices from (UTC)",
            widget=_MomentInput,
            help_text="When changed prices take effect, within a minute. Empty: at once.",
        ),
        SEEN_FIELD: forms.CharField(
            required=False, max_length=64, widget=forms.HiddenInput, help_text="The change that the operator has seen."
        ),
    }
)
