"""Stability AI images, provider side: a multipart form to `/v2beta/stable-image/…`, one image back.

An edit is the same call with an image and a strength: how far the answer may go away from it, 0 to 1 (platform.
stability.ai/docs/api-reference, read 2026-11-23). A model's path is a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, ImageMade, Started, UsageReported
from apps.gateway.dialects import Failure, ProviderDialect
from apps.gateway.dialects.chat.openai.wire import find_failure
from apps.gateway.dialects.media import MULTIPART, Field, boundary_of, write_form
from apps.gateway.dialects.media.images import asked_of, image_request_of, media_type_of, sniff_base64
from apps.gateway.dialects.reading.answers import read_answer, unreadable_answer
from apps.kernel.usage import Usage

_FILTERED = "CONTENT_FILTERED"
_MAX_MESSAGE_LENGTH = 2_000
# How far an edit goes away from its image, by the client's `input_fidelity`; there is no usual one.
_STRENGTHS: Final = {"low": "0.65", "high": "0.35"}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/v2beta/stable-image/{asked_of(chat, target).capabilities.path}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {"Content-Type": f"{MULTIPART}; boundary={boundary_of(_fields(chat, target))}"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    fields = _fields(chat, target)
    return write_form(fields, boundary_of(fields))


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read ends with `Failed`."""
    try:
        answer = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    answer = answer if isinstance(answer, dict) else {}
    data, reason = answer.get("image"), answer.get("finish_reason")
    if reason == _FILTERED:
        # A blurred image comes with it, which is not paid.
        yield Started()
        yield Finished(reason="content_filter", native=_FILTERED)
        return
    if not isinstance(data, str) or not data:
        yield unreadable_answer("The provider sent an answer without an image")
        return
    yield Started()
    yield ImageMade(url=f"data:{sniff_base64(data) or media_type_of(None)};base64,{data}")
    yield Finished(reason="stop", native=reason if isinstance(reason, str) else None)
    yield UsageReported(usage=Usage(images=1))


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer: none is ever asked for."""
    yield unreadable_answer("The provider streamed an answer that was requested whole")


def read_failure(status: int, body: bytes) -> Failure:
    """Return what the provider says in an answer that is not 2xx."""
    try:
        answer: Any = read_answer(body)
    except ValueError:
        answer = None
    stated = answer if isinstance(answer, dict) else {}
    words = [word for word in stated.get("errors") or () if isinstance(word, str)]
    name = stated.get("name")
    if words:
        return Failure(message="; ".join(words)[:_MAX_MESSAGE_LENGTH], code=name if isinstance(name, str) else None)
    return find_failure(answer) or Failure(message=f"The provider answered with status {status}")


def _fields(chat: Chat, target: Target) -> list[Field]:
    image_request = image_request_of(chat)
    if image_request.edits:
        for name in ("size", "aspect_ratio"):
            if getattr(image_request, name) is not None:
                target.note_dropped(name, "this model's edits have the shape of the image")
        shapeless = msgspec.structs.replace(image_request, size=None, aspect_ratio=None)
        chat = msgspec.structs.replace(chat, image_request=shapeless)
    asked = asked_of(chat, target)
    options = dict(asked.options)
    fidelity = options.pop("input_fidelity", "low")
    fields: list[Field] = [("prompt", asked.prompt)]
    if "model" in asked.capabilities.takes:
        fields.append(("model", target.model_name))
        if image_request.edits:
            fields.append(("mode", "image-to-image"))
    if image_request.edits:
        fields += [("image", asked.inputs[0]), ("strength", _STRENGTHS.get(fidelity, _STRENGTHS["low"]))]
    return fields + [(name, str(value)) for name, value in options.items()]


PROVIDER: Final = ProviderDialect(
    name="stability",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
