"""Model variants: the endings of model names that say how to choose or ask, as OpenRouter's clients write them.

`:free` only without a price, `:nitro` the fastest first, `:floor` the cheapest first, `:online` with a web search,
`:thinking` with reasoning. A model's own name is never split.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from apps.catalog.catalog_cache import Catalog
from apps.catalog.resolve import resolve as resolve_name
from apps.gateway.canonical.chat import Chat, ReasoningRequest
from apps.gateway.canonical.preferences import SortBy
from apps.gateway.routing.candidates import AUTO
from apps.gateway.routing.custom_providers import is_custom
from apps.kernel.errors import ApiError

VARIANTS: Final = frozenset({"free", "nitro", "floor", "online", "thinking"})
_SORTS: Final[dict[str, SortBy]] = {"nitro": "throughput", "floor": "price"}


class Alternative(msgspec.Struct, frozen=True):
    """A model to ask: its name in the catalog, and what the ending of the client's name said."""

    model: str
    field: str
    sort: SortBy | None = None
    free_only: bool = False
    variants: frozenset[str] = frozenset()


def read_alternative(catalog: Catalog, name: str, field: str) -> Alternative:
    """Return what a client means by a model's name that it wrote in `field`."""
    bare, variants = name, set[str]()
    while ":" in bare and not _is_a_name(catalog, bare):
        rest, _, ending = bare.rpartition(":")
        if ending not in VARIANTS:
            return Alternative(name, field)
        bare = rest
        variants.add(ending)
    sort = next((_SORTS[variant] for variant in sorted(variants) if variant in _SORTS), None)
    return Alternative(bare, field, sort, "free" in variants, frozenset(variants))


def without_provider(catalog: Catalog, name: str) -> str:
    """Return a model's name without the provider in it, for a client that names providers elsewhere."""
    if name == AUTO or is_custom(name) or "/" not in name:
        return name
    try:
        resolved = resolve_name(catalog, name)
    except ApiError:
        # Told where it is resolved.
        return name
    if resolved.provider is None:
        return name
    if resolved.name in catalog.models or resolved.name in catalog.aliases:
        return resolved.name
    # An edition's own name means nothing without its provider, and the model's id means another price.
    return resolved.model.id if resolved.offers is resolved.model.offers else name


def ask_for_variants(chat: Chat, alternatives: list[Alternative]) -> None:
    """Make a chat ask for what the endings of its models' names ask for; what it says itself goes before."""
    variants = frozenset().union(*(one.variants for one in alternatives))
    if "online" in variants and not chat.web_search:
        chat.web_search, chat.source = True, None
    if "thinking" in variants:
        asked = chat.reasoning or ReasoningRequest()
        if asked.effort is None and asked.max_tokens is None:
            chat.reasoning, chat.source = replace(asked, effort="medium"), None


def _is_a_name(catalog: Catalog, name: str) -> bool:
    return name in catalog.models or name in catalog.aliases or name in catalog.prefixed or is_custom(name)
