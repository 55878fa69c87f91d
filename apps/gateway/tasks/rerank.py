"""Task `rerank`: puts documents in the order of their relevance to a query.

A request of this kind is a chat of one message, whose first part is the query and whose others are the documents.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from apps.billing.pricing import cost_of
from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.values.rerank import capabilities_of, documents_of, find_rerank_dialect, query_of, results_of
from apps.gateway.tasks import CallPart, ModelMode, Requirement, specialist_task
from apps.gateway.token_estimate import estimate_prompt_tokens, estimate_tokens
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage

_MODE: Final = ModelMode("rerank", "reranking")
# A search unit is a query over so many documents; a document that has more tokens, the query's among them, counts as
# several (500 tokens, as others quote cohere.com/pricing; for holds and estimates alone).
UNIT_DOCUMENTS: Final = 100
UNIT_TOKENS: Final = 500
# However long a query is, so much of a document goes with it.
_LEAST_TOKENS: Final = 100
_PLACE: Final = re.compile(r"messages\[0\]\.content\[(\d+)\]\.text")


def _requirements_of(chat: Chat) -> list[Requirement]:
    """Return how many documents an offer must take: rankings of parts do not make one of all."""
    count = len(documents_of(chat))
    return [Requirement(f"{count} documents", lambda offer: count <= capabilities_of(offer.facts).most, "documents")]


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    return find_rerank_dialect(offer.facts, offer.dialect)


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    """Return what the request costs: prices by the token and by the search unit are not alike."""
    return cost_of(_used(chat, estimate_prompt_tokens(chat), offer.prices), offer.prices).total


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    return _used(chat, prompt_tokens, offer.prices)


def _usage_without_counts(chat: Chat, prompt: int, written: int, images: int, prices: PriceCard) -> Usage:
    return _used(chat, prompt, prices, estimated=True)


def _used(chat: Chat, prompt_tokens: int, prices: PriceCard, *, estimated: bool = False) -> Usage:
    """Return the paid usage: search units where they have a price, else tokens."""
    if prices.search_unit is None:
        return Usage(input=prompt_tokens, estimated=estimated)
    return Usage(search_units=search_units_of(chat), estimated=estimated)


def search_units_of(chat: Chat) -> int:
    """Return about how many search units a request is."""
    room = max(UNIT_TOKENS - estimate_tokens(query_of(chat)), _LEAST_TOKENS)
    chunks = sum(max(-(-estimate_tokens(document) // room), 1) for document in documents_of(chat))
    return -(-chunks // UNIT_DOCUMENTS)


def _path_for_client(path: str) -> str:
    return _PLACE.sub(lambda found: f"documents[{int(found[1]) - 1}]" if found[1] != "0" else "query", path)


def _split(chat: Chat, offer: Offer) -> list[CallPart]:
    """Return the one call that a ranking takes."""
    return [CallPart(chat, results_of(chat), find_fault_among(len(documents_of(chat))))]


def find_fault_among(count: int) -> Callable[[list[Any]], str | None]:
    """Return what tells what is wrong with a ranking of so many documents."""

    def find_fault(ranked: list[Any]) -> str | None:
        places = [place for place, _ in ranked]
        if min(places) < 0 or max(places) >= count:
            return f"ranked a document that is not among the {count} of the request"
        return "ranked a document twice" if len(set(places)) < len(places) else None

    return find_fault


TASK = specialist_task(
    _MODE,
    name="rerank",
    requirements_of=_requirements_of,
    find_dialect=_find_dialect,
    list_price=_list_price,
    usage_before_answer=_usage_before_answer,
    files_to_screen=lambda chat: (),
    path_for_client=_path_for_client,
    split=_split,
    may_bring_media=False,
    usage_without_counts=_usage_without_counts,
)
