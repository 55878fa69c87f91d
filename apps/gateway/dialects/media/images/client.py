"""OpenAI Images, client side: reads requests for generations and edits, with their inputs, and writes replies."""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Image, Message, Text
from apps.gateway.canonical.events import (
    Event,
    Failed,
    ImageMade,
    OpaqueDelta,
    PartialImage,
    Reply,
    Started,
    Summary,
    Waiting,
)
from apps.gateway.canonical.task_options import ImageRequest
from apps.gateway.dialects.chat.openai.wire import encode, write_error, write_error_object
from apps.gateway.dialects.media import FormField
from apps.gateway.dialects.media.images import ECHOED, NAME_OF_EXTRAS, ratio_of
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Reader,
    Record,
    boolean,
    bounded_name,
    filled_string,
    image_type_of,
    integer,
    one_of,
    optional,
    record,
)
from apps.gateway.dialects.reading.fields import record as an_object
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

MAX_INPUTS = 16
_DATA_URL = re.compile(r"data:image/[\w.+-]{1,40}(?:;[\w.+=-]{1,80}){0,4};base64,", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_IMAGES = ("image", "image[]", "file")
# Bytes of a field that is no file.
_MAX_TEXT_LENGTH = 1_000_000


def read_inputs(value: Any) -> list[str]:
    """Read `images`. Raises Malformed, or InvalidRequest in the specification's own words."""
    if value is None:
        raise Malformed("Required", "images")
    if not isinstance(value, list):
        raise Malformed("must be an array", "images")
    if not 1 <= len(value) <= MAX_INPUTS:
        raise Malformed(f"must hold 1 to {MAX_INPUTS} images", "images")
    return [_read_input(f"images[{place}]", item) for place, item in enumerate(value)]


def read_mask(value: Any) -> str:
    """Read `mask`, which is written like one of `images`."""
    return _read_input("mask", value)


def read_files(form: list[FormField]) -> tuple[list[str], str | None, dict[str, str]]:
    """Return the images of a form, its mask, and its other fields. Raises Malformed."""
    inputs: list[str] = []
    mask: str | None = None
    rest: dict[str, str] = {}
    for field in form:
        if field.name in _IMAGES:
            inputs.append(_read_file(field))
        elif field.name == "mask":
            if mask is not None:
                raise Malformed("must be given once", "mask")
            mask = _read_file(field)
        elif field.filename is not None:
            raise Malformed("must not be a file", field.name[:64])
        elif field.name in rest:
            raise Malformed("must be given once", field.name[:64])
        else:
            rest[field.name] = _text(field)
    if not inputs:
        raise Malformed("Required", "image")
    if len(inputs) > MAX_INPUTS:
        raise Malformed(f"must hold 1 to {MAX_INPUTS} images", "image")
    return inputs, mask, rest


def data_url_of(data: bytes) -> str | None:
    """Return an image as a data URL with the type that its bytes show; None for other bytes."""
    media_type = image_type_of(data)
    return None if media_type is None else f"data:{media_type};base64,{b64encode(data).decode()}"


def _read_input(place: str, item: Any) -> str:
    """Return an https URL as it is, and a data URL with the type that its bytes tell."""
    try:
        url = record(item).get("image_url")
    except Malformed as refusal:
        raise refusal.under(place) from None
    if url is None:
        raise Malformed("Required", f"{place}.image_url")
    if isinstance(url, str) and url[:8].lower() == "https://" and len(url) > len("https://"):
        return url
    head = _DATA_URL.match(url) if isinstance(url, str) else None
    if head is None:
        raise _not_an_image(place)
    text = _BLANKS.sub("", url[head.end() :])
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise _not_an_image(place) from None
    media_type = image_type_of(data)
    if media_type is None:
        raise InvalidRequest(
            f"{place}.image_url is invalid: it holds no PNG, JPEG, WebP or GIF image", param=f"{place}.image_url"
        )
    return f"data:{media_type};base64,{text}"


def _read_file(field: FormField) -> str:
    if field.filename is None:
        raise Malformed("must be a file", field.name)
    url = data_url_of(field.data)
    if url is None:
        raise Malformed("must be a PNG, JPEG, WebP or GIF image", field.name)
    return url


def _text(field: FormField) -> str:
    if len(field.data) > _MAX_TEXT_LENGTH:
        raise Malformed("is too long", field.name[:64])
    try:
        return field.data.decode()
    except UnicodeDecodeError:
        raise Malformed("must be UTF-8", field.name[:64]) from None


def _not_an_image(place: str) -> InvalidRequest:
    param = f"{place}.image_url"
    return InvalidRequest(f"{param} must be an https URL or a base64 data URL", param=param)


_PING: Final = b": ping\n\n"
_UNSTATED: Final = "auto"


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer. The last image waits for the counts, which its event bears."""
    image_request = chat.image_request or ImageRequest()
    family = "image_edit" if image_request.edits else "image_generation"
    about: Record = {name: getattr(image_request, name) or _UNSTATED for name in ECHOED}
    created, last = 0, None
    for event in events:
        match event:
            case Waiting():
                yield _PING
            case Started():
                created = event.created
            case OpaqueDelta(of="reply", dialect=dialect) if dialect == NAME_OF_EXTRAS:
                about |= event.data
            case PartialImage() if event.index < (image_request.partial_images or 0):
                image = _image_event(f"{family}.partial_image", event.url, about, created)
                yield _frame(image | {"partial_image_index": event.index})
            case ImageMade():
                if last is not None:
                    yield _frame(last)
                last = _image_event(f"{family}.completed", event.url, about, created)
            case Failed():
                yield _frame({"type": "error", "error": write_error_object(event.error)})
            case Summary() if last is not None:
                yield _frame(last | {"usage": usage_object(event.usage)})


def _image_event(kind: str, url: str, about: Record, created: int) -> Record:
    head, _, data = url.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0]
    shared = {name: about[name] for name in ECHOED}
    if shared["output_format"] == _UNSTATED:
        shared["output_format"] = media_type.rpartition("/")[2] or "png"
    return {"type": kind, "b64_json": data, "created_at": created, **shared}


def _frame(record: Record) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(record["type"]).encode(), encode(record))


__all__ = ["read_edit", "read_edit_form", "read_generation", "usage_object", "write_error", "write_reply"]

AUTO = "auto"
MAX_IMAGES = 10
_SIZE = re.compile(r"[1-9]\d{1,4}x[1-9]\d{1,4}")
_QUALITIES = ("standard", "hd", "low", "medium", "high", "xhigh", "max", AUTO)


def read_generation(body: bytes) -> Chat:
    """Return the request for new images. Raises InvalidRequest."""
    return _refusing(lambda: _read(_object_of(body), edits=False, inputs=[]))


def read_edit(body: bytes) -> Chat:
    """Return the request to change images, which are URLs still. Raises InvalidRequest."""

    def read() -> Chat:
        wire = _object_of(body)
        inputs = read_inputs(wire.pop("images", None))
        mask = wire.pop("mask", None)
        return _read(wire, edits=True, inputs=inputs, mask=None if mask is None else read_mask(mask))

    return _refusing(read)


def read_edit_form(form: list[FormField]) -> Chat:
    """Return the request to change images that a form makes. Raises InvalidRequest."""

    def read() -> Chat:
        inputs, mask, wire = read_files(form)
        return _read(_typed(wire), edits=True, inputs=inputs, mask=mask)

    return _refusing(read)


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return the whole answer; usage is included where the provider counts it."""
    data: list[Record] = []
    for choice in reply.choices:
        own = choice.extra.get(NAME_OF_EXTRAS, {})
        revised = {"revised_prompt": own["revised_prompt"]} if "revised_prompt" in own else {}
        data += [{**_image_data(url), **revised} for url in choice.images]
    wire: Record = {"created": reply.created, "data": data}
    image_request = chat.image_request or ImageRequest()
    asked = {name: value for name in ECHOED if (value := getattr(image_request, name)) is not None}
    wire |= asked if image_request.edits else {}
    wire |= reply.extra.get(NAME_OF_EXTRAS, {})
    if summary.usage.total_tokens and not summary.usage.estimated:
        wire["usage"] = usage_object(summary.usage)
    return encode(wire)


def _image_data(url: str) -> Record:
    """Return an image on the wire: its bytes, or the address at which the gateway serves it."""
    return {"b64_json": url.partition(",")[2]} if url.startswith("data:") else {"url": url}


def _refusing(read: Callable[[], Chat]) -> Chat:
    """Read; a refusal is worded as the specification has it."""
    try:
        return read()
    except Malformed as refusal:
        words = f"Invalid request parameters: {refusal.at}: {refusal.problem}"
        raise InvalidRequest(words, code="invalid_parameters", param=refusal.at) from None


def _object_of(body: bytes) -> Record:
    wire = fields.read_json(body)
    fields.check_beside(wire, body, frozenset({"images"}))
    return wire


def _read(wire: Record, *, edits: bool, inputs: list[str], mask: str | None = None) -> Chat:
    known: dict[str, Any] = {}
    readers = _EDIT if edits else _GENERATION
    unknown: list[str] = []
    for name, value in wire.items():
        if value is None:
            continue
        if name in readers:
            known[name] = fields.within(name, readers[name], value)
        else:
            unknown.append(name)
    if "prompt" not in known:
        raise Malformed("Required", "prompt")
    _check_stream(known)
    config: Record = known.get("image_config") or {}
    options = {name: known[name] for name in _OPTIONS if known.get(name) not in (None, AUTO)}
    image_request = ImageRequest(edits=edits, mask=mask, **options, as_links=bool(known.get("image_links")))
    image_request.partial_images = known.get("partial_images")
    image_request.aspect_ratio = image_request.aspect_ratio or config.get("aspect_ratio")
    image_request.resolution = config.get("image_size")
    image_request.quality = image_request.quality or config.get("image_quality")
    return Chat(
        model=known.get("model") or AUTO,
        messages=[Message(role="user", parts=[*map(_image, inputs), Text(text=known["prompt"])])],
        n=_count(known.get("n"), config.get("n")),
        stream=bool(known.get("stream")),
        seed=config.get("seed"),
        user=known.get("user"),
        # Not sent on: an unknown field could change the cost of an image.
        extra=dict.fromkeys(unknown) or None,
        task="images",
        image_request=image_request,
    )


def _image(url: str) -> Image:
    return Image(url=url)


def _count(stated: int | None, configured: int | None) -> int | None:
    if stated is not None and configured is not None and stated != configured:
        raise Malformed("contradicts image_config.n", "n")
    return stated if stated is not None else configured


def _check_stream(known: dict[str, Any]) -> None:
    """Refuse links in a stream."""
    if known.get("stream") and known.get("image_links"):
        raise InvalidRequest(
            "image_links must be false: the events of a stream contain the images themselves",
            code="unsupported_feature",
            param="image_links",
        )


def _typed(wire: dict[str, str]) -> Record:
    """Return a form's fields as JSON would have them; an invalid number stays a text, and is refused as one."""
    typed: Record = {}
    for name, value in wire.items():
        field, _, inner = name.partition("[")
        whole = re.fullmatch(r"-?\d{1,18}", value)
        if whole and field in {"n", "output_compression", "partial_images", "image_config"}:
            read: Any = int(value)
        else:
            read = {"true": True, "false": False}.get(value, value) if field in _FORM_BOOLEANS else value
        if inner.endswith("]") and field == "image_config":
            typed.setdefault(field, {})[inner[:-1]] = read
        elif value:
            typed[name] = read
    return typed


def _size(value: Any) -> str:
    if value == AUTO or (isinstance(value, str) and _SIZE.fullmatch(value)):
        return str(value)
    raise Malformed("must be auto or WIDTHxHEIGHT, such as 1024x1024")


def _aspect_ratio(value: Any) -> str:
    if value == AUTO or (isinstance(value, str) and ":" in value and ratio_of(value) is not None):
        return str(value)
    raise Malformed("must be WIDTH:HEIGHT, such as 16:9")


def _response_format(value: Any) -> str:
    if value != "b64_json":
        raise Malformed("must be b64_json; for links to the images, set image_links to true")
    return str(value)


def _image_config(value: Any) -> Record:
    wire = an_object(value)
    return {
        "aspect_ratio": _unless_auto(optional(wire, "aspect_ratio", _aspect_ratio)),
        "image_size": _unless_auto(optional(wire, "image_size", filled_string)),
        "image_quality": _unless_auto(optional(wire, "image_quality", one_of(*_QUALITIES))),
        "n": optional(wire, "n", integer(1, MAX_IMAGES)),
        "seed": optional(wire, "seed", integer(0, 2**32 - 1)),
    }


def _unless_auto(value: str | None) -> str | None:
    return None if value == AUTO else value


_FORM_BOOLEANS = frozenset({"stream", "image_links"})
_OPTIONS = (
    *("size", "aspect_ratio", "quality", "style", "background", "input_fidelity"),
    *("output_format", "output_compression", "moderation"),
)
_GENERATION: dict[str, Reader[Any]] = {
    "prompt": filled_string,
    "model": bounded_name,
    "n": integer(1, MAX_IMAGES),
    "size": _size,
    "aspect_ratio": _aspect_ratio,
    "quality": one_of(*_QUALITIES),
    "style": one_of("vivid", "natural"),
    "response_format": _response_format,
    "image_links": boolean,
    "background": one_of("transparent", "opaque", AUTO),
    "output_format": one_of("png", "jpeg", "webp"),
    "output_compression": integer(0, 100),
    "moderation": one_of("low", AUTO),
    "user": fields.string,
    "stream": boolean,
    "partial_images": integer(0, 3),
    "image_config": _image_config,
}
_EDIT: dict[str, Reader[Any]] = _GENERATION | {"input_fidelity": one_of("high", "low")}


def usage_object(usage: Usage) -> Record:
    """Return counts as clients read them."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "text_tokens": usage.prompt_tokens - usage.image_input,
            "image_tokens": usage.image_input,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "text_tokens": usage.completion_tokens - usage.image_output,
            "image_tokens": usage.image_output,
        },
        "total_tokens": usage.total_tokens,
    }
