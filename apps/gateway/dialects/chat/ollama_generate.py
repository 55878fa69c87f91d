"""Ollama's `/api/generate`: the client side of the dialect, for clients that send a prompt in place of messages.

A prompt is a chat of one message, behind the instructions (`system`); answers differ in their shape alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.dialects.chat import ollama
from apps.gateway.dialects.chat.ollama.read_request import NothingAsked, read_fields, read_images
from apps.gateway.dialects.chat.ollama.write_reply import as_response, write_events_as, write_reply_as
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Reader, Record, boolean, string
from apps.kernel.errors import InvalidRequest

NAME: Final = "ollama_generate"
_TEXTS: Final = frozenset({"prompt", "system", "images", "format", "context", "template"})


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest naming the field; NothingAsked without a prompt."""
    return fields.read_body(body, _TEXTS, _read)


def _read(wire: Record) -> Chat:
    known, unknown = read_fields(wire, _READERS)
    if known.pop("suffix", ""):
        why = "suffix: a chat model cannot write what comes before a given text"
        raise InvalidRequest(why, code="unsupported_feature", param="suffix")
    prompt, images = known.pop("prompt", ""), known.pop("images", [])
    system = known.pop("system", "")
    if not prompt and not images:
        raise NothingAsked(known["model"], wire.get("keep_alive"), "prompt")
    for name in ("raw", "template"):
        # Each model's provider applies the model's own template.
        if value := known.pop(name, None):
            unknown[name] = value
    if not unknown.get("context", True):
        del unknown["context"]
    instructions = [Message(role="system", parts=[Text(text=system)])] if system else []
    question = Message(role="user", parts=[*([Text(text=prompt)] if prompt else []), *images])
    return Chat(messages=[*instructions, question], extra=unknown or None, dialect=NAME, **known)


_READERS: Final[dict[str, Reader[Any]]] = {
    "prompt": string,
    "system": string,
    "suffix": string,
    "template": string,
    "raw": boolean,
    "images": read_images,
}


CLIENT: Final = replace(
    ollama.CLIENT,
    read_request=read_request,
    write_reply=partial(write_reply_as, as_response),
    write_events=partial(write_events_as, as_response),
    field_names={**ollama.CLIENT.field_names, "messages": "prompt"},
    counts_messages_alike=False,
)
