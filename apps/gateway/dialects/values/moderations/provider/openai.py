"""OpenAI moderation, provider side: `/moderations` of texts, or of texts and images that are judged together.

Source: OpenAI's API reference, and the types of its SDK 3.52 (read 2026-11-23). The options of a model are facts
(docs/adding-a-provider.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Image, Part, Target, Text
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.canonical.task_options import Judgement
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.reading.answer_errors import never_streamed, read_whole
from apps.gateway.dialects.values.moderations import events_of, moderation_of, texts_of


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/moderations"


def write_request(chat: Chat, target: Target) -> bytes:
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


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read ends with `Failed`."""
    answer = read_whole(body, _Answer, "judgements")
    if isinstance(answer, Failed):
        yield answer
        return
    yield from events_of([_judgement_of(one) for one in answer.results], answer.usage)


def _judgement_of(one: _Result) -> Judgement:
    # A category that a model does not judge by is null.
    categories = {name: flag for name, flag in one.categories.items() if flag is not None}
    scores = {name: score for name, score in one.category_scores.items() if score is not None}
    kinds = one.category_applied_input_types or {name: ["text"] for name in scores}
    return Judgement(
        flagged=one.flagged, categories=categories, category_scores=scores, category_applied_input_types=kinds
    )


class _Result(msgspec.Struct):
    flagged: bool
    categories: dict[str, bool | None]
    category_scores: dict[str, float | None]
    category_applied_input_types: dict[str, list[str]] | None = None


class _Answer(msgspec.Struct):
    results: list[_Result]
    usage: Any = None


read_events = never_streamed


PROVIDER: Final = ProviderDialect(
    name="openai",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
