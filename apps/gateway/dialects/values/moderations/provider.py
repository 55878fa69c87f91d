"""Moderation dialects, provider side: write requests, read judgements; and how the dialect of an offer is found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from apps.gateway.canonical.chat import Chat, Image, Part, Target, Text
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.canonical.task_options import Judgement
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.reading.answers import never_streamed, read_whole
from apps.gateway.dialects.values.moderations import capabilities_of, events_of, moderation_of, texts_of

# --- OpenAI moderation, provider side: `/moderations` of texts, or of texts and images that are judged together.
#
# Source: OpenAI's API reference, and the types of its SDK 3.52 (read 2026-11-23). The options of a model are facts
# (docs/adding-a-provider.md).


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/moderations"


def write_openai_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    if moderation_of(chat).together:
        judged: list[Any] = [_part(part) for part in chat.messages[0].parts]
    else:
        judged = texts_of(chat)
    return encode({"model": target.model_name, "input": judged})


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "text", "text": part.text if isinstance(part, Text) else ""}


def read_openai_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_whole(body, _OpenAIAnswer, "judgements")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([_openai_judgement_of(one) for one in answer.results], answer.usage)


def _openai_judgement_of(one: _OpenAIResult) -> Judgement:
    # A category that a model does not judge by is null.
    categories = {name: flag for name, flag in one.categories.items() if flag is not None}
    scores = {name: score for name, score in one.category_scores.items() if score is not None}
    kinds = one.category_applied_input_types or {name: ["text"] for name in scores}
    return Judgement(
        flagged=one.flagged, categories=categories, category_scores=scores, category_applied_input_types=kinds
    )


class _OpenAIResult(msgspec.Struct):
    flagged: bool
    categories: dict[str, bool | None]
    category_scores: dict[str, float | None]
    category_applied_input_types: dict[str, list[str]] | None = None


class _OpenAIAnswer(msgspec.Struct):
    results: list[_OpenAIResult]
    usage: Any = None


OPENAI: Final = ProviderDialect(
    name="openai",
    path=path,
    write_request=write_openai_request,
    read_reply=read_openai_reply,
    read_events=never_streamed,
    read_failure=read_failure,
)


# --- Mistral moderation, provider side: `/moderations` of texts, with categories of its own.
#
# Sources: docs.mistral.ai (moderation, and `mistral-moderation-2411` among the deprecated models) and the types of
# Mistral's SDK 3.7 (read 2026-11-23).

# Mistral's name of a category, and OpenAI's of the same one. Both have `sexual`; categories that are wider or narrower
# at the other (`hate_and_discrimination`, `violence_and_threats`) is not the same, and keeps its own name alone.
_SAME: Final = {"selfharm": "self-harm"}

T = TypeVar("T")


def write_mistral_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Texts that are to be judged together are one."""
    texts = texts_of(chat)
    return encode({"model": target.model_name, "input": ["\n".join(texts)] if moderation_of(chat).together else texts})


def read_mistral_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_whole(body, _MistralAnswer, "judgements")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([_mistral_judgement_of(one) for one in answer.results], answer.usage)


def _mistral_judgement_of(one: _MistralResult) -> Judgement:
    categories, scores = _named(one.categories), _named(one.category_scores)
    return Judgement(
        flagged=any(categories.values()),
        categories=categories,
        category_scores=scores,
        category_applied_input_types={name: ["text"] for name in scores},
    )


def _named(given: Mapping[str, T]) -> dict[str, T]:
    """Return the values by category, also under OpenAI's name where that means the same."""
    return {**given, **{other: given[own] for own, other in _SAME.items() if own in given}}


class _MistralResult(msgspec.Struct):
    categories: dict[str, bool]
    category_scores: dict[str, float]


class _MistralAnswer(msgspec.Struct):
    results: list[_MistralResult]
    usage: Any = None


MISTRAL: Final = ProviderDialect(
    name="mistral",
    path=path,
    write_request=write_mistral_request,
    read_reply=read_mistral_reply,
    read_events=never_streamed,
    read_failure=read_failure,
)


PROVIDERS: Final = {one.name: one for one in (OPENAI, MISTRAL)}


# Providers of these chat dialects are asked in the format of the same name, without saying so.
_SAME_NAME: Final = frozenset({"openai"})


def find_moderation_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked to judge content; None where none is stated or known."""
    name = capabilities_of(facts).dialect or (chat_dialect if chat_dialect in _SAME_NAME else None)
    return None if name is None else PROVIDERS.get(name)
