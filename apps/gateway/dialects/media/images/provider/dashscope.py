"""Alibaba DashScope images, provider side: a chat of one message, answered by image URLs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Finished, ImageMade, Started, UsageReported
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.media.images import asked_of
from apps.gateway.dialects.reading.answers import read_answer, unreadable_answer
from apps.kernel.usage import Usage


def path(chat: Chat, target: Target) -> str:
    """Return the path on the provider's host."""
    return "/api/v1/services/aigc/multimodal-generation/generation"


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes: beside the base URL, which is that of the chats in OpenAI's format."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}{path(chat, target)}"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    asked = asked_of(chat, target)
    parameters: dict[str, Any] = {"n": asked.number, "watermark": False}
    if "size" in asked.options:
        parameters["size"] = asked.options["size"].replace("x", "*")
    if "seed" in asked.options:
        parameters["seed"] = asked.options["seed"]
    message = {"role": "user", "content": [{"text": asked.prompt}]}
    return encode({"model": target.model_name, "input": {"messages": [message]}, "parameters": parameters})


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    try:
        answer = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    output = answer.get("output") if isinstance(answer, dict) else None
    if not output and (failure := find_failure(answer)):
        yield failed(answer, failure)
        return
    choices = output.get("choices") if isinstance(output, dict) else None
    if not isinstance(choices, list):
        yield unreadable_answer("The provider sent an answer without images")
        return
    yield Started()
    addresses = [address for choice in choices for address in _addresses_in(choice)]
    for number, address in enumerate(addresses):
        yield ImageMade(choice=number, url=address)
        yield Finished(choice=number, reason="stop")
    yield UsageReported(usage=Usage(images=len(addresses)))


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer: none is ever asked for."""
    yield unreadable_answer("The provider streamed an answer that was requested whole")


def _addresses_in(choice: Any) -> Iterator[str]:
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(address := part.get("image"), str) and address:
            yield address


PROVIDER: Final = ProviderDialect(
    name="dashscope",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    url=url,
)
