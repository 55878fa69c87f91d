"""Task `embeddings`: turns texts into vectors.

A request of this kind is a chat of one message, each part of which is an input. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.values.embeddings import EmbeddingCapabilities, capabilities_of, embedding_of, texts_of
from apps.gateway.dialects.values.embeddings.provider import find_embedding_dialect
from apps.gateway.tasks import AttachedFile, CallPart, ModelMode, Requirement, specialist_task
from apps.gateway.token_estimate import estimate_tokens, estimate_usage
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import ZERO
from apps.kernel.usage import Usage

_MODE: Final = ModelMode("embedding", "embedding")
# An estimate may be twice what the model counts.
_DOUBT: Final = 2
_PLACE: Final = re.compile(r"messages\[0\]\.content(\[\d+\])\.text")


def _requirements_of(chat: Chat) -> list[Requirement]:
    """Return what an offer must take: tokens, the length of vectors, and an input as long as the longest."""
    embedding = embedding_of(chat)
    if embedding.tokens is not None:
        count, doubt = max(map(len, embedding.tokens)), 1
        needs = [Requirement("arrays of tokens as inputs", _can(lambda model: "tokens" in model.takes), "input")]
    else:
        count, doubt, needs = estimate_tokens(max(texts_of(chat), key=len)), _DOUBT, []
    fits = _fits(count, doubt)
    needs.append(Requirement(f"inputs of {'about ' if doubt > 1 else ''}{count} tokens", fits, "input"))
    if (wanted := embedding.dimensions) is not None:
        needs.append(Requirement(f"{wanted} dimensions", _gives(wanted), "dimensions"))
    return needs


def _can(test: Callable[[EmbeddingCapabilities], bool]) -> Callable[[Offer], bool]:
    return lambda offer: test(capabilities_of(offer.facts))


def _fits(count: int, doubt: int) -> Callable[[Offer], bool]:
    return lambda offer: offer.context_length is None or count <= offer.context_length * doubt


def _gives(wanted: int) -> Callable[[Offer], bool]:
    return lambda offer: capabilities_of(offer.facts).takes_dimensions(wanted, offer.facts.get("dimensions"))


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    return find_embedding_dialect(offer.facts, offer.dialect)


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    return offer.prices.input or ZERO


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    return Usage(input=prompt_tokens)


def _files_to_screen(chat: Chat) -> Sequence[AttachedFile]:
    """Return no files. Raises InvalidRequest for tokens, in which no rule can find anything."""
    if embedding_of(chat).tokens is not None:
        raise InvalidRequest(
            "input: the guardrails of this organization cannot read arrays of tokens; send the texts",
            code="guardrail_blocked",
            param="input",
        )
    return ()


def _path_for_client(path: str) -> str:
    return _PLACE.sub(r"input\1", path)


def _split(chat: Chat, offer: Offer) -> list[CallPart]:
    """Return the calls that an offer's provider takes for all inputs, in their order."""
    embedding, capabilities = embedding_of(chat), capabilities_of(offer.facts)
    message = chat.messages[0]
    inputs: Sequence[object] = message.parts if embedding.tokens is None else embedding.tokens
    most = capabilities.most_inputs(embedding.dimensions or offer.facts.get("dimensions"))
    if len(inputs) <= most and not capabilities.most_tokens:
        return [CallPart(chat, len(inputs))]
    parts = []
    for start, end in _cuts(chat, len(inputs), most, capabilities.most_tokens):
        if embedding.tokens is None:
            part = replace(chat, messages=[replace(message, parts=message.parts[start:end])])
        else:
            part = replace(chat, embedding=replace(embedding, tokens=embedding.tokens[start:end]))
        parts.append(CallPart(part, end - start))
    return parts


def _cuts(chat: Chat, count: int, most: int, most_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield where parts begin and end: none has more inputs than `most`, nor, by an estimate, too many tokens."""
    if not most_tokens:
        yield from ((start, min(start + most, count)) for start in range(0, count, most))
        return
    tokens = embedding_of(chat).tokens
    sizes = map(len, tokens) if tokens is not None else map(estimate_tokens, texts_of(chat))
    start = together = 0
    for place, size in enumerate(sizes):
        if place > start and (place - start == most or together + size > most_tokens):
            yield start, place
            start, together = place, 0
        together += size
    yield start, count


TASK = specialist_task(
    _MODE,
    name="embeddings",
    requirements_of=_requirements_of,
    find_dialect=_find_dialect,
    list_price=_list_price,
    usage_before_answer=_usage_before_answer,
    files_to_screen=_files_to_screen,
    path_for_client=_path_for_client,
    split=_split,
    may_bring_media=True,
    # Vectors are not paid for, whatever they weigh.
    usage_without_counts=lambda chat, prompt, written, images, prices: estimate_usage(prompt, 0, 0, prices),
)
