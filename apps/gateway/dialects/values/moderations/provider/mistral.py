"""Mistral moderation, provider side: `/moderations` of texts, with categories of its own.

Sources: docs.mistral.ai (moderation, and `mistral-moderation-2411` among the deprecated models) and the types of
Mistral's SDK 3.7 (read 2026-11-23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.canonical.task_options import Judgement
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.reading.answer_errors import never_streamed, read_whole
from apps.gateway.dialects.values.moderations import events_of, moderation_of, texts_of

# Mistral's name of a category, and OpenAI's of the same one. Both have `sexual`; categories that are wider or narrower
# at the other (`hate_and_discrimination`, `violence_and_threats`) is not the same, and keeps its own name alone.
_SAME: Final = {"selfharm": "self-harm"}

T = TypeVar("T")


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/moderations"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Texts that are to be judged together are one."""
    texts = texts_of(chat)
    return encode({"model": target.model_name, "input": ["\n".join(texts)] if moderation_of(chat).together else texts})


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_whole(body, _Answer, "judgements")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([_judgement_of(one) for one in answer.results], answer.usage)


def _judgement_of(one: _Result) -> Judgement:
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


class _Result(msgspec.Struct):
    categories: dict[str, bool]
    category_scores: dict[str, float]


class _Answer(msgspec.Struct):
    results: list[_Result]
    usage: Any = None


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="mistral",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
