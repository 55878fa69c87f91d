"""Plain chat: a made-up client format, complete in one file, which the guide to new formats shows.

A request is `{"model", "question", "length", "seed", "live"}`; the answer `{"answer", "used"}`, or a line of JSON for
each piece of the text and a last one with the tokens used. Text is all that the format has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.canonical.events import Choice, Event, Failed, RefusalDelta, Reply, Summary, TextDelta, Waiting
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, boolean, bounded_name, filled_string, integer
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.gateway.endpoints.answering import answer_chat
from apps.kernel.errors import ApiError
from apps.kernel.rest.envelopes import Family

_encode = msgspec.json.Encoder().encode
_READERS: Final = {
    "model": bounded_name,
    "question": filled_string,
    "length": integer(1, 1_000_000),
    "seed": integer(0, 1_000_000),
    "live": boolean,
}


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"question"}), _read)


def _read(wire: dict[str, Any]) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
    take_router_fields(unknown, known)
    for name in ("model", "question"):
        if name not in known:
            raise Malformed("Required", name)
    question = Message(role="user", parts=[Text(text=known.pop("question"))])
    return Chat(
        messages=[question],
        max_tokens=known.pop("length", None),
        stream=known.pop("live", False),
        # Reported to the client as dropped.
        extra=unknown or None,
        dialect="plainchat",
        **known,
    )


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer."""
    choice = reply.choices[0] if reply.choices else Choice()
    return _encode({"answer": (choice.text or "") + (choice.refusal or ""), "used": summary.usage.total_tokens})


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a line for each piece of the text, and one for the end or for a failure."""
    for event in events:
        match event:
            case TextDelta() | RefusalDelta():
                yield _encode({"piece": event.text}) + b"\n"
            case Waiting():
                yield _encode({"piece": ""}) + b"\n"
            case Summary():
                yield _encode({"used": event.usage.total_tokens}) + b"\n"
            case Failed():
                yield write_error(event.error) + b"\n"


def error_body(error: ApiError) -> dict[str, Any]:
    """Return an error as the format's clients read it."""
    return {"problem": error.message, "at": error.param}


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return _encode(error_body(error))


CLIENT: Final = replace(
    openai.CLIENT,
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    write_error=write_error,
    stream_type="application/x-ndjson",
    field_names={"max_tokens": "length", "messages": "question", "stream": "live"},
    # The format has no `messages[0]`.
    counts_messages_alike=False,
    custom_tool_dialects=None,
)
ERRORS: Final = Family("plainchat", error_body, "PlainChatError")


def plain_chat(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""
    return answer_chat(request, "plain_chat", CLIENT)
