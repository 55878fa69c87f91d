"""OpenAI Images, provider side: `/images/generations` in JSON, `/images/edits` as a multipart form.

The options of a model are facts (docs/adding-a-provider.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    ImageMade,
    OpaqueDelta,
    PartialImage,
    Started,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.media import MULTIPART, Field, boundary_of, write_form
from apps.gateway.dialects.media.images import ECHOED, NAME_OF_EXTRAS, Asked, asked_of, image_request_of, media_type_of
from apps.gateway.dialects.reading.answers import count_at, read_answer, read_ticks, truncated_answer, unreadable_answer
from apps.kernel.usage import Usage, total_usage

_DONE: Final = b"[DONE]"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/images/edits" if image_request_of(chat).edits else "/images/generations"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of a form, which names its boundary."""
    if not image_request_of(chat).edits:
        return {}
    return {"Content-Type": f"{MULTIPART}; boundary={boundary_of(_fields(asked_of(chat, target), chat, target))}"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    asked = asked_of(chat, target)
    if asked.edits and "moderation" in asked.options:
        target.note_dropped("moderation", "edits have no such option")
    if asked.edits:
        fields = _fields(asked, chat, target)
        return write_form(fields, boundary_of(fields))
    return encode({"model": target.model_name, "prompt": asked.prompt, **_options(asked), **_streaming(chat)})


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer, each image as a choice of its own.

    One that cannot be read, or holds an error, ends with `Failed`.
    """
    try:
        answer = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    if failure := find_failure(answer):
        yield failed(answer, failure)
        return
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        yield unreadable_answer("The provider sent an answer without images")
        return
    yield Started(created=_created(answer, "created"))
    echo = {name: answer[name] for name in ECHOED if isinstance(answer.get(name), str)}
    if echo:
        yield OpaqueDelta(dialect=NAME_OF_EXTRAS, data=echo, of="reply")
    made = 0
    for item in data:
        url = _url_of(item, media_type_of(echo.get("output_format")))
        if url is None:
            continue
        revised = item.get("revised_prompt")
        if isinstance(revised, str) and revised:
            yield OpaqueDelta(choice=made, dialect=NAME_OF_EXTRAS, data={"revised_prompt": revised})
        yield ImageMade(choice=made, url=url)
        yield Finished(choice=made, reason="stop")
        made += 1
    if (usage := _read_usage(answer.get("usage"), made)) is not None:
        yield UsageReported(usage=usage)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer, whose images come one after the other, with unfinished ones ahead.

    Counts come with each image. One that cannot be read, or holds an error, ends with `Failed`.
    """
    begun, made, counts = False, 0, list[Usage]()
    for piece in _pieces_in(frames):
        if isinstance(piece, Event):
            yield piece
            if type(piece) is Failed:
                return
            continue
        url = _url_of(piece, media_type_of(_word(piece, "output_format")))
        if url is None:
            continue
        if not begun:
            begun = True
            yield Started(created=_created(piece, "created_at"))
        kind = _word(piece, "type") or ""
        if kind.endswith(".partial_image"):
            yield PartialImage(choice=made, url=url, index=count_at(piece, "partial_image_index"))
        elif kind.endswith(".completed"):
            if echo := {name: word for name in ECHOED if (word := _word(piece, name))}:
                yield OpaqueDelta(dialect=NAME_OF_EXTRAS, data=echo, of="reply")
            yield ImageMade(choice=made, url=url)
            yield Finished(choice=made, reason="stop")
            made += 1
            if (more := _read_usage(piece.get("usage"), 1)) is not None:
                counts.append(more)
    if not made:
        yield truncated_answer()
    elif counts:
        yield UsageReported(usage=total_usage(counts))


def _pieces_in(frames: Iterable[bytes]) -> Iterator[Any]:
    """Yield what each frame holds; of silence and of errors the event that it amounts to, of which `Failed` is last."""
    for frame in frames:
        if frame == _DONE:
            return
        if not frame:
            yield Waiting()
            continue
        try:
            piece = read_answer(frame)
        except ValueError:
            yield unreadable_answer("The provider sent invalid JSON")
            return
        failure = find_failure(piece)
        yield failed(piece, failure) if failure else piece


def _streaming(chat: Chat) -> dict[str, Any]:
    """Return what asks for a stream."""
    if not chat.stream:
        return {}
    partial_images = image_request_of(chat).partial_images
    return {"stream": True} if partial_images is None else {"stream": True, "partial_images": partial_images}


def _options(asked: Asked) -> dict[str, Any]:
    """Return all fields except model, prompt and files: null is never sent. Edits keep the default moderation."""
    options: dict[str, Any] = {"n": asked.number} if asked.number > 1 else {}
    if "response_format" in asked.capabilities.takes:
        options["response_format"] = "b64_json"
    edited = {name: value for name, value in asked.options.items() if name != "moderation"}
    return options | (edited if asked.edits else asked.options)


def _fields(asked: Asked, chat: Chat, target: Target) -> list[Field]:
    """Return the fields of a form; several images are an array, as OpenAI's own clients write it."""
    fields: list[Field] = [("model", target.model_name), ("prompt", asked.prompt)]
    options = _options(asked) | _streaming(chat)
    fields += [(name, "true" if value is True else str(value)) for name, value in options.items()]
    name = "image" if len(asked.inputs) == 1 else "image[]"
    fields += [(name, image) for image in asked.inputs]
    if asked.mask is not None:
        fields.append(("mask", asked.mask))
    return fields


def _url_of(item: Any, media_type: str) -> str | None:
    """Return an image as a URL: of its bytes, or where it lies."""
    if not isinstance(item, dict):
        return None
    data, url = item.get("b64_json"), item.get("url")
    if isinstance(data, str) and data:
        return f"data:{media_type};base64,{data}"
    return url if isinstance(url, str) and url else None


def _read_usage(reported: Any, made: int) -> Usage | None:
    """Return the counts, None where there are none. Output is images unless the provider says otherwise."""
    if not isinstance(reported, dict):
        return None
    read, written = count_at(reported, "input_tokens"), count_at(reported, "output_tokens")
    stated = read_ticks(reported)
    if not read and not written:
        return None if stated is None else Usage(images=made, reported_cost=stated)
    read_parts, written_parts = reported.get("input_tokens_details"), reported.get("output_tokens_details")
    images_in = min(count_at(read_parts, "image_tokens"), read)
    cached = min(count_at(read_parts, "cached_tokens"), read - images_in)
    text_out = min(count_at(written_parts, "text_tokens"), written)
    return Usage(
        input=read - images_in - cached,
        cache_read=cached,
        image_input=images_in,
        output=text_out,
        image_output=written - text_out,
        images=made,
        reported_cost=stated,
    )


def _created(record: dict[str, Any], name: str) -> int:
    """Return a time in Unix seconds, 0 where there is none."""
    value = record.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _word(record: Any, name: str) -> str | None:
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, str) and value else None


PROVIDER: Final = ProviderDialect(
    name="openai",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
