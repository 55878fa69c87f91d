"""Plain chat: a made-up client format, complete in one file, which the guide to new formats shows.

A request is `{"model", "question", "length", "live"}`; the answer `{"answer"}`, or a line of JSON for each piece of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.canonical.events import Event, Failed, Reply, Summary, TextDelta
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, boolean, filled_string, integer
from apps.gateway.endpoints.answering import answer_chat
from apps.kernel.errors import ApiError
from apps.kernel.rest.envelopes import Family

_encode = msgspec.json.Encoder().encode
_READERS: Final = {
    "model": filled_string,
    "question": filled_string,
    "length": integer(1, 1_000_000),
    "seed": integer(0, 1_000_000),
    "live": boolean,
}


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest naming the field."""
    return fields.read_body(body, frozenset({"question"}), _read)


def _read(wire: dict[str, Any]) -> Chat:
    known, _ = fields.read_known(wire, _READERS)
    for name in ("model", "question"):
        if name not in known:
            raise Malformed("Required", name)
    question = Message(role="user", parts=[Text(text=known["question"])])
    return Chat(
        model=known["model"],
        messages=[question],
        max_tokens=known.get("length"),
        seed=known.get("seed"),
        stream=known.get("live", False),
        dialect="plainchat",
    )


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer."""
    return _encode({"answer": reply.choices[0].text})


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a line for each piece of the text, and one for a failure."""
    for event in events:
        if isinstance(event, TextDelta):
            yield _encode({"piece": event.text}) + b"\n"
        elif isinstance(event, Failed):
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
    field_names={"max_tokens": "length", "messages": "question", "stream": "live"},
    custom_tool_dialects=None,
)
ERRORS: Final = Family("plainchat", error_body, "PlainChatError")


def plain_chat(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""
    return answer_chat(request, "plain_chat", CLIENT)
