"""Stability AI images, provider side: a multipart form to `/v2beta/stable-image/…`, one image back.

Knows the wire. Must never know a model: which path a model has is a fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, ImageMade, Started, UsageReported
from apps.gateway.dialects import Failure
from apps.gateway.dialects.answer_errors import read_answer, unreadable_answer
from apps.gateway.dialects.images.provider.image_answer import media_type_of, sniff_base64
from apps.gateway.dialects.images.provider.image_request import asked_of
from apps.gateway.dialects.images.provider.multipart_form import MULTIPART, Field, boundary_of, write_form
from apps.gateway.dialects.openai.shared.failures import find_failure
from apps.kernel.usage import Usage

NAME: Final = "stability"
FRAMING: Final = "sse"
_FILTERED = "CONTENT_FILTERED"
_MOST_WORDS = 2_000


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/v2beta/stable-image/{asked_of(chat, target).abilities.path}"


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
        yield unreadable_answer("The provider sent what is not JSON")
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
    yield unreadable_answer("The provider streamed what was not to be streamed")


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
        return Failure(message="; ".join(words)[:_MOST_WORDS], code=name if isinstance(name, str) else None)
    return find_failure(answer) or Failure(message=f"The provider answered with status {status}")


def _fields(chat: Chat, target: Target) -> list[Field]:
    asked = asked_of(chat, target)
    fields: list[Field] = [("prompt", asked.prompt)]
    if "model" in asked.abilities.takes:
        fields.append(("model", target.model_name))
    return fields + [(name, str(value)) for name, value in asked.options.items()]
