"""OpenRouter's `provider` object: which providers shall answer, in which order, at what price, with which promises."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final

from apps.gateway.canonical.preferences import MaxPrice
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, boolean, list_of, one_of, optional, record, string
from apps.gateway.dialects.reading.router_fields.reading import (
    NO_PROMISE,
    RouterReading,
    Taker,
    bounded_name,
    refuse,
    tuple_of,
    wish,
)

MAX_PROVIDERS = 50
_HIGHEST_PRICE = 1_000_000
_UNKNOWN: Final = "not known of any provider here"
_SORTS: Final = ("price", "throughput", "latency")


def _provider_name(value: Any) -> str:
    return bounded_name(value).lower()


def take_provider(reading: RouterReading, value: Any) -> None:
    for name, inner in record(value).items():
        if inner is None:
            continue
        take = _PROVIDER_TAKERS.get(name)
        if take is None:
            reading.drop(f"provider.{name[: fields.MAX_NAME_TOLD]}", _UNKNOWN)
        else:
            fields.within(name, partial(take, reading), inner)


def _take_sort(reading: RouterReading, value: Any) -> None:
    by = value
    if isinstance(value, dict):
        by = value.get("by")
        if value.get("partition") not in (None, "model"):
            reading.drop("provider.sort.partition", "the models are asked in the order in which they are named")
    if by is not None:
        reading.want(sort=one_of(*_SORTS)(by))


def _take_data_collection(reading: RouterReading, value: Any) -> None:
    if one_of("allow", "deny")(value) == "deny":
        reading.want(no_data_collection=True)


def _take_distillable(reading: RouterReading, value: Any) -> None:
    if boolean(value):
        refuse("provider.enforce_distillable_text", f"Whether a model's text may be distilled {NO_PROMISE}")


def _take_quantizations(reading: RouterReading, value: Any) -> None:
    if list_of(string, MAX_PROVIDERS)(value):
        reading.drop("provider.quantizations", "how a provider quantizes its models is not known here")


def _take_max_price(reading: RouterReading, value: Any) -> None:
    wire = record(value)
    for name in wire.keys() - set(MaxPrice.__struct_fields__):
        reading.drop(f"provider.max_price.{name[: fields.MAX_NAME_TOLD]}", _UNKNOWN)
    prices = {name: optional(wire, name, _price) for name in MaxPrice.__struct_fields__}
    if any(price is not None for price in prices.values()):
        reading.want(max_price=MaxPrice(**prices))


def _price(value: Any) -> Decimal:
    try:
        price = Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except InvalidOperation:
        price = None
    if price is None or not price.is_finite():
        raise Malformed("must be a number")
    if not 0 <= price <= _HIGHEST_PRICE:
        raise Malformed(f"must be between 0 and {_HIGHEST_PRICE}")
    return price


_PROVIDER_TAKERS: Final[dict[str, Taker]] = {
    **{name: wish(name, tuple_of(_provider_name, MAX_PROVIDERS)) for name in ("order", "only", "ignore")},
    "sort": _take_sort,
    "allow_fallbacks": wish("allow_fallbacks", boolean),
    "require_parameters": wish("require_parameters", boolean),
    "data_collection": _take_data_collection,
    "zdr": wish("zero_data_retention", boolean),
    "enforce_distillable_text": _take_distillable,
    "quantizations": _take_quantizations,
    "max_price": _take_max_price,
}
