"""Public price lists, read with suspicion: LiteLLM's, models.dev's, OpenRouter's and LLM Gateway's.

A list is JSON from an address or a file that the operator names. It is bounded in bytes and time. A price that cannot
be meant makes its entry invalid; a document in another form makes the list invalid.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, NamedTuple

from apps.catalog.price_cards import DEAREST_MILLION, MILLION_PLACES

# Bytes of a list, seconds until it is read, and seconds without a byte. LiteLLM's list has 3.5 MB.
MAX_BYTES, MAX_SECONDS, MAX_SILENCE = 8_000_000, 60.0, 10.0
# Tokens of a context; more is a mistake.
MAX_TOKENS = 100_000_000
_MILLION = Decimal(1_000_000)
_FINEST = Decimal(1).scaleb(-MILLION_PLACES)


class InvalidList(ValueError):
    """A list that cannot be read; the message says why."""


class Abilities(NamedTuple):
    """Limits and features of a chat model, in the words of our files; token limits are None if unknown."""

    context: int | None
    max_output: int | None
    features: tuple[str, ...]
    inputs: tuple[str, ...]


class Listed(NamedTuple):
    """A model in a list: the provider and the model as the list calls them, and USD per million tokens by the name of
    our price. `tiers` are those of long prompts; None if the list never states any. `fault` says why the entry is
    invalid. `abilities` is None for models other than chats, and in lists that do not state any."""

    provider: str
    name: str
    prices: dict[str, Decimal]
    tiers: tuple[dict[str, Any], ...] | None = None
    deactivated: date | None = None
    fault: str = ""
    abilities: Abilities | None = None


class PriceList(NamedTuple):
    """A list that was read."""

    source: str
    entries: list[Listed]


def fetch_list(kind: str, place: str) -> PriceList:
    """Return the list at an http(s) address or in a file. Raises InvalidList."""
    if kind not in KINDS:
        raise InvalidList(f"{kind[:40]} is not a kind of price list; the kinds are {', '.join(KINDS)}")
    is_address = place.startswith(("http://", "https://"))
    try:
        content = _download(place) if is_address else _read_file(Path(place))
    except OSError as error:  # Those of `requests` are such, too.
        raise InvalidList(f"{kind}: {type(error).__name__} while reading {place}") from error
    return read_list(kind, content)


def read_list(kind: str, content: bytes) -> PriceList:
    """Return the list in a document. Raises InvalidList."""
    try:
        document = json.loads(content, parse_float=Decimal, parse_int=Decimal, parse_constant=Decimal)
    except (ValueError, RecursionError, InvalidOperation) as error:
        start = content[:40].decode("utf-8", "replace").strip()
        raise InvalidList(f"{kind}: not JSON; it begins with {start!r}") from error
    entries = list(KINDS[kind](document))
    if not entries:
        raise InvalidList(f"{kind}: no model has a price; the document is not a list of this kind")
    return PriceList(kind, entries)


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(iter(lambda: file.read(65_536), b""))


def _download(address: str) -> bytes:
    # Here and not above: the set-up loads this module, and downloads nothing.
    import requests

    ends = time.monotonic() + MAX_SECONDS
    with requests.get(address, stream=True, timeout=MAX_SILENCE, allow_redirects=False) as answer:
        if answer.status_code != requests.codes.ok:
            raise InvalidList(f"{address}: HTTP status {answer.status_code}; redirects are not followed")
        return _bounded(answer.iter_content(65_536), ends)


def _bounded(chunks: Iterator[bytes], ends: float | None = None) -> bytes:
    content = b""
    for chunk in chunks:
        content += chunk
        if len(content) > MAX_BYTES:
            raise InvalidList(f"more than {MAX_BYTES:,} bytes")
        if ends is not None and time.monotonic() > ends:
            raise InvalidList(f"took more than {MAX_SECONDS:.0f} seconds")
    return content


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _price(field: str, stated: Any, factor: Decimal) -> Decimal:
    """Return a price in USD per million tokens. Raises ValueError naming the field."""
    try:
        price = Decimal(stated) if isinstance(stated, str | Decimal) else Decimal("NaN")
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or not 0 <= price <= DEAREST_MILLION / factor:
        raise ValueError(f"{field} is {str(stated)[:40]}, not between 0 and {DEAREST_MILLION} USD per million tokens")
    # Lists state binary fractions, with more digits than any price has.
    return (price * factor).quantize(_FINEST)


def _prices(table: dict[str, Any], fields: dict[str, str], factor: Decimal) -> dict[str, Decimal]:
    return {ours: _price(field, table[field], factor) for field, ours in fields.items() if table.get(field) is not None}


_LITELLM_FIELDS: Final = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
}
_LITELLM_TIER: Final = re.compile(r"(\w+)_above_(\d{1,6})k_tokens")
# Names of one provider that are not in its file.
_LITELLM_PROVIDERS: Final = {"bedrock_converse": "bedrock", "cohere_chat": "cohere", "jina_ai": "jina"}


def _litellm(document: Any) -> Iterator[Listed]:
    for key, entry in _table(document).items():
        stated = _table(entry)
        provider = stated.get("litellm_provider")
        if not isinstance(provider, str) or "input_cost_per_token" not in stated:
            continue
        own = provider.partition("-")[0] if provider.startswith(("vertex_ai-", "fireworks_ai-")) else provider
        own = _LITELLM_PROVIDERS.get(own, own)
        prefix, _, rest = key.partition("/")
        name = rest if rest and prefix in (provider, own) else key
        try:
            prices = _prices(stated, _LITELLM_FIELDS, _MILLION)
            ends = _day(stated.get("deprecation_date"))
            yield Listed(own, name, prices, _litellm_tiers(stated), ends, abilities=_litellm_abilities(stated))
        except ValueError as error:
            yield Listed(own, name, {}, fault=str(error))


_LITELLM_FEATURES: Final = {
    "supports_vision": ("vision",),
    "supports_function_calling": ("tools",),
    "supports_parallel_function_calling": ("parallel_tools",),
    "supports_tool_choice": ("tool_choice",),
    "supports_reasoning": ("reasoning",),
    "supports_response_schema": ("structured_outputs", "json_output"),
    "supports_prompt_caching": ("prompt_cache",),
}


def _litellm_abilities(stated: dict[str, Any]) -> Abilities | None:
    if stated.get("mode") != "chat":
        return None
    features = [ours for name, words in _LITELLM_FEATURES.items() if stated.get(name) is True for ours in words]
    inputs = ["text", *(["image"] if "vision" in features else [])]
    inputs += ["pdf"] if stated.get("supports_pdf_input") is True else []
    sizes = (_tokens(stated.get("max_input_tokens")), _tokens(stated.get("max_output_tokens")))
    return Abilities(*sizes, tuple(features), tuple(inputs))


def _tokens(stated: Any) -> int | None:
    is_size = isinstance(stated, Decimal) and stated.is_finite() and 1 <= stated <= MAX_TOKENS
    return int(stated) if is_size and stated == int(stated) else None


def _litellm_tiers(stated: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    tiers: dict[int, dict[str, Any]] = {}
    for field, price in stated.items():
        found = _LITELLM_TIER.fullmatch(field)
        if found and (ours := _LITELLM_FIELDS.get(found[1])) and price is not None:
            above = int(found[2]) * 1000
            tier = tiers.setdefault(above, {"above_input_tokens": above})
            tier[ours] = _price(field, price, _MILLION)
    return tuple(tiers[above] for above in sorted(tiers))


_MODELSDEV_FIELDS: Final = {
    "input": "input",
    "output": "output",
    "cache_read": "cached_input",
    "cache_write": "cache_write",
}


def _modelsdev(document: Any) -> Iterator[Listed]:
    for provider, found in _table(document).items():
        for name, entry in _table(_table(found).get("models")).items():
            cost = _table(_table(entry).get("cost"))
            if "input" not in cost:
                continue
            try:
                prices = _prices(cost, _MODELSDEV_FIELDS, Decimal(1))
                yield Listed(provider, name, prices, abilities=_modelsdev_abilities(entry))
            except ValueError as error:
                yield Listed(provider, name, {}, fault=str(error))


_MODELSDEV_FEATURES: Final = {
    "tool_call": ("tools",),
    "reasoning": ("reasoning",),
    "structured_output": ("structured_outputs", "json_output"),
}
_INPUTS: Final = ("text", "image", "audio", "video", "pdf")


def _modelsdev_abilities(entry: dict[str, Any]) -> Abilities | None:
    modalities, limit = _table(entry.get("modalities")), _table(entry.get("limit"))
    stated = modalities.get("input")
    inputs = [name for name in _INPUTS if name in stated] if isinstance(stated, list) else []
    if modalities.get("output") != ["text"] or "text" not in inputs or entry.get("status") == "deprecated":
        return None
    features = [ours for name, words in _MODELSDEV_FEATURES.items() if entry.get(name) is True for ours in words]
    features += ["vision"] if "image" in inputs else []
    sizes = _tokens(limit.get("context")), _tokens(limit.get("output"))
    return Abilities(*sizes, tuple(features), tuple(inputs))


# OpenRouter's words, which LLM Gateway follows.
_PRICING_FIELDS: Final = {
    "prompt": "input",
    "completion": "output",
    "input_cache_read": "cached_input",
    "input_cache_write": "cache_write",
}


def _priced(provider: str, name: Any, pricing: dict[str, Any]) -> Iterator[Listed]:
    if not isinstance(name, str) or "prompt" not in pricing:
        return
    try:
        yield Listed(provider, name, _prices(pricing, _PRICING_FIELDS, _MILLION))
    except ValueError as error:
        yield Listed(provider, name, {}, fault=str(error))


def _openrouter(document: Any) -> Iterator[Listed]:
    for row in _rows(_table(document).get("data")):
        yield from _priced("openrouter", row.get("id"), _table(row.get("pricing")))


def _llmgateway(document: Any) -> Iterator[Listed]:
    for row in _rows(_table(document).get("data")):
        for found in _rows(row.get("providers")):
            if isinstance(provider := found.get("providerId"), str):
                yield from _priced(provider, found.get("modelName"), _table(found.get("pricing")))


def _day(stated: Any) -> date | None:
    try:
        return date.fromisoformat(stated) if isinstance(stated, str) else None
    except ValueError:
        return None


KINDS: Final[dict[str, Callable[[Any], Iterator[Listed]]]] = {
    "litellm": _litellm,
    "modelsdev": _modelsdev,
    "openrouter": _openrouter,
    "llmgateway": _llmgateway,
}
