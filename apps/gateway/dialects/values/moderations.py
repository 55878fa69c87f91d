"""Moderation: the facts that a model may state, the client side in OpenAI's format, and formats of providers.

A request to judge content is a chat whose `moderation` says whether its parts are one input. A format of a provider is
a provider side for such chats; it is found by the name that the data files state under `moderations`, else by that of
the provider's chat dialect where the two go together. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from apps.gateway.canonical.chat import Chat, DroppedField, Image, Message, Part, Target, Text
from apps.gateway.canonical.events import Event, Failed, Finished, Reply, ResultsGiven, Started, Summary, UsageReported
from apps.gateway.canonical.task_options import Judgement, Moderation
from apps.gateway.dialects import ProviderDialect, fact, facts_reader
from apps.gateway.dialects.chat.openai.wire import encode, read_failure, write_error
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.answers import count_at, never_streamed, read_whole, unreadable_answer
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    bounded_name,
    filled_string,
    list_of,
    pick,
    record,
    required,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.kernel.usage import Usage


class ModerationCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `moderations`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["openai", "mistral"] | None,
        fact(
            "the moderation dialect: `openai` or `mistral` (`/moderations`, each with its categories)",
            default="`openai` of a provider of that dialect, else the model judges nothing",
        ),
    ] = None
    most: Annotated[int, fact("texts of one call; a request with more is split", ge=1, le=2048)] = 32
    takes: Annotated[frozenset[Literal["images"]], fact("`images`: images beside texts")] = frozenset()


def capabilities_of(facts: Mapping[str, Any]) -> ModerationCapabilities:
    """Return what an offer's facts say of moderation; nothing but the usual where they are silent."""
    return _read(facts) or _NOTHING_STATED


def moderation_of(chat: Chat) -> Moderation:
    """Return what a chat says of how it is to be judged."""
    return chat.moderation or Moderation()


def texts_of(chat: Chat) -> list[str]:
    """Return the texts to judge."""
    return [part.text for part in chat.messages[0].parts if isinstance(part, Text)]


_read = facts_reader("moderations", ModerationCapabilities)
_NOTHING_STATED = ModerationCapabilities()


def events_of(judgements: Sequence[Judgement], usage: Any) -> Iterator[Event]:
    """Yield the events of a whole answer; `usage` is what the provider says that it counted, if it says anything."""
    if not judgements:
        yield unreadable_answer("The provider sent an answer without judgements")
        return
    yield Started()
    yield ResultsGiven(values=list(judgements))
    yield Finished(reason="stop")
    if tokens := count_at(usage, "prompt_tokens"):
        yield UsageReported(usage=Usage(input=tokens))


__all__ = ["read_request", "write_error", "write_reply"]

MAX_INPUTS: Final = 2048
# Parts of one input that are judged together.
MAX_PARTS: Final = 64
# The default of OpenAI's API where a request names no model.
DEFAULT_MODEL: Final = "omni-moderation-latest"


class _Input(NamedTuple):
    """The inputs to judge, and whether all of them are one input."""

    parts: list[Part]
    together: bool = False


def read_request(body: bytes) -> Chat:
    """Return the request to judge content. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"input"}), _read_body)


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the judgements, in the order of their inputs."""
    usage = summary.usage
    return encode(
        {
            "id": f"modr-{reply.log_id}",
            "model": summary.metadata.get("used_model") or reply.model,
            "results": reply.results,
            "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.total_tokens},
            "metadata": summary.metadata,
        }
    )


def _read_body(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _BODY_READERS)
    if "input" not in known:
        raise Malformed("Required", "input")
    judged: _Input = known["input"]
    chosen: dict[str, Any] = {"model": known["model"]} if "model" in known else {}
    take_router_fields(unknown, chosen)
    chosen.setdefault("model", DEFAULT_MODEL)
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "moderation has no such option") for name in unknown]
    dropped_fields = [*chosen.pop("dropped_fields", ()), *dropped]
    return Chat(
        messages=[Message(role="user", parts=judged.parts)],
        task="moderations",
        moderation=Moderation(together=judged.together),
        dropped_fields=dropped_fields or None,
        **chosen,
    )


def _input(value: Any) -> _Input:
    """Read the inputs to judge: a text, several, or the parts of one input."""
    if isinstance(value, str):
        return _Input([Text(text=filled_string(value))])
    if not isinstance(value, list):
        raise Malformed("must be a string, an array of strings, or an array of parts")
    if not value:
        raise Malformed("must not be empty")
    if isinstance(value[0], dict):
        return _Input(list_of(_part, MAX_PARTS)(value), together=True)
    return _Input([Text(text=text) for text in list_of(filled_string, MAX_INPUTS)(value)])


def _part(value: Any) -> Part:
    return _read_part(record(value))


def _text(wire: Record) -> Part:
    return Text(text=required(wire, "text", filled_string))


def _image(wire: Record) -> Part:
    return Image(url=fields.within("image_url", _url, required(wire, "image_url", record)))


def _url(wire: Record) -> str:
    return str(required(wire, "url", _address))


def _address(value: Any) -> str:
    if not filled_string(value).startswith(("https://", "http://", "data:image/")):
        raise Malformed("must be an http(s) address, or a data URL of an image")
    return str(value)


_read_part = pick({"text": _text, "image_url": _image}, "type")
_BODY_READERS: Final[dict[str, Reader[Any]]] = {"input": _input, "model": bounded_name}


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
        judged: list[Any] = [_openai_part(part) for part in chat.messages[0].parts]
    else:
        judged = texts_of(chat)
    return encode({"model": target.model_name, "input": judged})


def _openai_part(part: Part) -> dict[str, Any]:
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
