"""OpenAI moderation, client side: reads requests, writes judgements."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from apps.gateway.canonical.chat import Chat, DroppedField, Image, Message, Part, Text
from apps.gateway.canonical.events import Reply, Summary
from apps.gateway.canonical.task_options import Moderation
from apps.gateway.dialects.chat.openai.wire import encode, write_error
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    filled_string,
    list_of,
    pick,
    record,
    required,
)
from apps.gateway.dialects.reading.router_fields import take_router_fields

__all__ = ["read_request", "write_error", "write_reply"]

MAX_INPUTS: Final = 2048
# Parts of one input that are judged together.
MAX_PARTS: Final = 64
_MAX_NAME_LENGTH: Final = 512
# The default of OpenAI's API where a request names no model.
DEFAULT_MODEL: Final = "omni-moderation-latest"


class _Input(NamedTuple):
    """The inputs to judge, and whether all of them are one input."""

    parts: list[Part]
    together: bool = False


def read_request(body: bytes) -> Chat:
    """Return the request to judge content. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"input"}), _read)


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


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
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


def _name(value: Any) -> str:
    if len(filled_string(value)) > _MAX_NAME_LENGTH:
        raise Malformed(f"must be at most {_MAX_NAME_LENGTH} characters long")
    return str(value)


_read_part = pick({"text": _text, "image_url": _image}, "type")
_READERS: Final[dict[str, Reader[Any]]] = {"input": _input, "model": _name}
