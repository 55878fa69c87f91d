"""Image requests as every image dialect writes them: the prompt, the input images, the options that a model takes."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, NamedTuple

from apps.gateway.canonical.chat import Chat, Image, Target, Text
from apps.gateway.canonical.images import ImageRequest
from apps.gateway.dialects.media.images.provider.capabilities import ImageCapabilities, capabilities_of, shape_of
from apps.gateway.dialects.media.multipart_form import ImageFile
from apps.kernel.errors import InvalidRequest

_WISHES = ("style", "input_fidelity", "output_compression", "moderation")


class Asked(NamedTuple):
    """A request for images, and the options of it that a model takes, by the client's names for them."""

    prompt: str
    inputs: list[ImageFile]
    mask: ImageFile | None
    number: int
    edits: bool
    options: dict[str, Any]
    capabilities: ImageCapabilities


def asked_of(chat: Chat, target: Target) -> Asked:
    """Return the request for a target; unsupported hints are noted as dropped."""
    image_request = image_request_of(chat)
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        raise InvalidRequest("This model makes no images", code="unsupported_feature", param="model")
    return Asked(
        prompt=prompt_of(chat),
        inputs=[read_data_url(part.url) for part in _parts_of(chat) if isinstance(part, Image)],
        mask=None if image_request.mask is None else read_data_url(image_request.mask),
        number=chat.n or 1,
        edits=image_request.edits,
        options=options_of(chat, image_request, capabilities, target),
        capabilities=capabilities,
    )


def image_request_of(chat: Chat) -> ImageRequest:
    """Return what the images are to be like; a chat without that is none for here."""
    return chat.image_request or ImageRequest()


def prompt_of(chat: Chat) -> str:
    """Return the words that ask for images."""
    return "\n".join(part.text for part in _parts_of(chat) if isinstance(part, Text))


def options_of(chat: Chat, image_request: ImageRequest, model: ImageCapabilities, target: Target) -> dict[str, Any]:
    """Return the options that a model takes. Required options were checked before the model was chosen."""
    options: dict[str, Any] = {}
    # `standard` is what a model without a choice of qualities makes anyway, and `opaque` its background.
    if image_request.quality is not None and image_request.quality in model.qualities:
        options["quality"] = image_request.quality
    if image_request.background is not None and "background" in model.takes:
        options["background"] = image_request.background
    if image_request.output_format is not None:
        options["output_format"] = image_request.output_format
    if image_request.resolution is not None:
        options["resolution"] = image_request.resolution
    for name in _WISHES:
        _wish(name, getattr(image_request, name), options, model, target)
    _wish("seed", chat.seed, options, model, target)
    _wish("user", chat.user, options, model, target)
    for name in chat.extra or ():
        target.note_dropped(name, "it is not known here, and could change what an image costs")
    shape = shape_of(image_request, model)
    if shape is not None:
        options[shape.field] = shape.value
        if not shape.is_exact:
            target.note_dropped("size", f"this model makes images of {shape.value} in a size of its own")
    return options


def read_data_url(url: str) -> ImageFile:
    """Return what a data URL holds; it was looked at when the request was read."""
    head, _, data = url.partition(",")
    return ImageFile(head.removeprefix("data:").partition(";")[0], b64decode(data))


def _wish(name: str, value: Any, options: dict[str, Any], model: ImageCapabilities, target: Target) -> None:
    if value is None:
        return
    if name in model.takes:
        options[name] = value
    else:
        target.note_dropped(name, "this model has no such option")


def _parts_of(chat: Chat) -> list[Any]:
    return [part for message in chat.messages for part in message.parts]
