"""Image formats: the facts that a model may state, how its format is found, and a request as every format writes it.

A request for images is a chat whose `image_request` describes them. A format is a provider side (`write_request`,
`read_reply` …) for such chats, found by the name that the data files state under `images`. A model that generates
images in a chat is called in its provider's own dialect. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Image, Target, Text
from apps.gateway.canonical.task_options import ImageRequest
from apps.gateway.dialects import ProviderDialect, fact, facts_reader, find_dialect, find_provider_dialect
from apps.gateway.dialects.media import ImageFile
from apps.gateway.dialects.reading.fields import image_type_of
from apps.kernel.errors import InvalidRequest

# Sizes of a free choice: multiples of so many pixels, the longer side this long, and no longer than thrice the other.
_STEP, _LONGER_SIDE, _SLIMMEST = 16, 1536, 3
_TWO_NUMBERS = re.compile(r"(\d{1,5}(?:\.\d{1,2})?)[x:](\d{1,5}(?:\.\d{1,2})?)")


ImageOption = Literal[
    "any_size",
    "background",
    "input_fidelity",
    "mask",
    "model",
    "moderation",
    "output_compression",
    "resolution",
    "response_format",
    "seed",
    "stream",
    "style",
    "user",
]
Size = Annotated[str, Meta(pattern=r"^\d{2,5}x\d{2,5}$")]
Ratio = Annotated[str, Meta(pattern=r"^\d{1,2}(\.\d)?:\d{1,2}(\.\d)?$")]
Host = Annotated[str, Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$", max_length=253)]
Word = Annotated[str, Meta(min_length=1, max_length=40)]


class ImageCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `images`. A model supports only the stated options."""

    dialect: Annotated[
        str,
        fact(
            "the image dialect: `openai` (its images API), `stability`, `dashscope`, `bfl`; or `chat`, a model that "
            "generates images when it is chatted to in the provider's usual dialect"
        ),
    ]
    path: Annotated[
        str,
        fact(
            "where the dialect has a path for each model (`stability`)",
            default="none",
            pattern=r"^[a-z0-9/_-]{0,80}$",
        ),
    ] = ""
    hosts: Annotated[
        tuple[Host, ...],
        fact(
            "hosts of the provider, each with all below it, where its jobs are asked after and its images lie (`bfl`), "
            "beside the one that is asked"
        ),
    ] = ()
    most: Annotated[int, fact("how many images it makes at a time", ge=1, le=10)] = 1
    inputs: Annotated[int, fact("how many images it works from; 0: it only makes new ones", ge=0, le=16)] = 0
    takes: Annotated[
        frozenset[ImageOption],
        fact(
            "`mask`, `background` (transparent), `any_size` (multiples of 16); hints that are dropped otherwise: "
            "`style`, `input_fidelity`, `output_compression`, `moderation`, `seed`, `user`; `resolution` "
            "(`image_config.image_size`); `response_format`, `model`: must be stated there; `stream`: streams, with "
            "partial images"
        ),
    ] = frozenset()
    sizes: Annotated[tuple[Size, ...], fact("sizes that it makes exactly")] = ()
    aspect_ratios: Annotated[
        tuple[Ratio, ...], fact("ratios that it takes; where stated, it gets a ratio and never a size")
    ] = ()
    qualities: Annotated[tuple[Word, ...], fact("words for the quality")] = ()
    formats: Annotated[tuple[Literal["png", "jpeg", "webp"], ...], fact("values of `output_format`")] = ()


class Need(NamedTuple):
    """Something a request needs: its name for people, the client's field, and whether a model has it."""

    name: str
    param: str
    can: Callable[[ImageCapabilities], bool]


class Shape(NamedTuple):
    """The shape to send to a model: `size` or `aspect_ratio`; `exact` when the model makes the requested size."""

    field: str
    value: str
    is_exact: bool


def capabilities_of(facts: Mapping[str, Any]) -> ImageCapabilities | None:
    """Return what an offer's facts say of images, None where they say nothing: it makes none."""
    return _read(facts)


def needs_of(chat: Chat, image_request: ImageRequest) -> list[Need]:
    """Return what a model must be able to do for a request; mere wishes are not among it, nor is how many images a
    call makes: there may be several calls."""
    needs: list[Need] = []
    inputs = sum(isinstance(part, Image) for message in chat.messages for part in message.parts)
    if image_request.edits:
        needs.append(Need("image editing", "images", lambda model: model.inputs > 0))
        needs.append(Need(f"{inputs} images to work from", "images", lambda model: model.inputs >= inputs))
    if image_request.mask is not None:
        needs.append(Need("a mask", "mask", lambda model: "mask" in model.takes))
    if (quality := image_request.quality) not in (None, "standard"):
        needs.append(Need(f"quality {quality}", "quality", lambda model: quality in model.qualities))
    if image_request.background == "transparent":
        needs.append(Need("a transparent background", "background", lambda model: "background" in model.takes))
    if (form := image_request.output_format) is not None:
        needs.append(Need(f"output format {form}", "output_format", lambda model: form in model.formats))
    if image_request.resolution is not None:
        needs.append(
            Need(
                f"image size {image_request.resolution}",
                "image_config.image_size",
                lambda model: "resolution" in model.takes,
            )
        )
    if image_request.aspect_ratio is not None:
        ratio = image_request.aspect_ratio
        needs.append(
            Need(f"aspect ratio {ratio}", "aspect_ratio", lambda model: shape_of(image_request, model) is not None)
        )
    elif image_request.size is not None:
        needs.append(
            Need(f"size {image_request.size}", "size", lambda model: shape_of(image_request, model) is not None)
        )
    return needs


def shape_of(image_request: ImageRequest, model: ImageCapabilities) -> Shape | None:
    """Return how to tell a model the shape that is asked for, None when it has no such shape, or none is asked for."""
    if image_request.aspect_ratio is not None:
        return _shape_by_ratio(image_request.aspect_ratio, model)
    if image_request.size is None:
        return None
    if not model.aspect_ratios:
        taken = image_request.size in model.sizes or "any_size" in model.takes
        return Shape("size", image_request.size, is_exact=True) if taken else None
    # It takes ratios; `sizes` are the sizes of the images that it makes for them.
    if image_request.size in model.sizes:
        return _nearest_ratio(image_request.size, model)
    ratio = ratio_of(image_request.size)
    named = next((one for one in model.aspect_ratios if ratio_of(one) == ratio), None)
    return None if named is None else Shape("aspect_ratio", named, is_exact=False)


def ratio_of(text: str) -> Fraction | None:
    """Return width by height of `1536x1024` or `3:2`, None when it is neither."""
    found = _TWO_NUMBERS.fullmatch(text)
    if found is None or not (width := Fraction(found[1])) or not (height := Fraction(found[2])):
        return None
    return width / height


def _shape_by_ratio(text: str, model: ImageCapabilities) -> Shape | None:
    ratio = ratio_of(text)
    if named := next((one for one in model.aspect_ratios if ratio_of(one) == ratio), None):
        return Shape("aspect_ratio", named, is_exact=True)
    if model.aspect_ratios or ratio is None:
        return None
    if size := next((one for one in model.sizes if ratio_of(one) == ratio), None):
        return Shape("size", size, is_exact=True)
    if "any_size" in model.takes and (size := _size_of(ratio)):
        return Shape("size", size, is_exact=True)
    return None


def _nearest_ratio(size: str, model: ImageCapabilities) -> Shape:
    """Return the ratio that comes out as a size: the two differ by a few pixels (832x1248 is 2:3, 864x1184 is 3:4)."""
    wanted = ratio_of(size) or Fraction(1)
    ratios = [(one, ratio) for one in model.aspect_ratios if (ratio := ratio_of(one)) is not None]
    return Shape("aspect_ratio", min(ratios, key=lambda pair: abs(pair[1] / wanted - 1))[0], is_exact=True)


def _size_of(ratio: Fraction) -> str | None:
    """Return the largest size of exactly this ratio within the bounds; None when there is none."""
    if not Fraction(1, _SLIMMEST) <= ratio <= _SLIMMEST:
        return None
    unit = _STEP * max(ratio.numerator, ratio.denominator)
    times = _LONGER_SIDE // unit
    return f"{ratio.numerator * _STEP * times}x{ratio.denominator * _STEP * times}" if times else None


_read = facts_reader("images", ImageCapabilities)


IN_CHAT: Final = "chat"
_PACKAGE: Final = f"{__name__}.provider"


def find_image_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked for images; None when it makes none, or it is not spoken here."""
    capabilities = capabilities_of(facts)
    if capabilities is None:
        return None
    return find_dialect(chat_dialect) if capabilities.dialect == IN_CHAT else find_image_format(capabilities.dialect)


def prepare_for_target(chat: Chat, target: Target) -> Chat:
    """Return a chat as its target is to be asked: a model that makes images in chats gets a chat, and one that does not
    stream them is asked for them whole, also where the client gets a stream."""
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        return chat
    if chat.stream and "stream" not in capabilities.takes:
        chat = replace(chat, stream=False)
    return image_request_as_chat(chat, target) if capabilities.dialect == IN_CHAT else chat


def find_image_format(name: str) -> ProviderDialect | None:
    """Return the image dialect of this name, None when the gateway does not speak it."""
    return find_provider_dialect(_PACKAGE, name)


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


_CONFIGURED = {"aspect_ratio": "aspect_ratio", "resolution": "image_size", "quality": "image_quality", "seed": "seed"}


def image_request_as_chat(chat: Chat, target: Target) -> Chat:
    """Return the chat that asks for these images; wishes that the model does not take are noted as dropped."""
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        return chat
    options = options_of(chat, image_request_of(chat), capabilities, target)
    config: dict[str, Any] = {word: options[name] for name, word in _CONFIGURED.items() if name in options}
    return msgspec.structs.replace(
        chat,
        modalities=["text", "image"],
        image_config=config or None,
        n=chat.n if (chat.n or 1) > 1 else None,
        seed=None,
        user=options.get("user"),
        task="chat",
        image_request=None,
    )


# The name under which an answer keeps fields for image clients alone: `revised_prompt`, and echoed fields.
NAME_OF_EXTRAS: Final = "images"
ECHOED: Final = ("background", "output_format", "quality", "size")


def media_type_of(output_format: str | None) -> str:
    """Return the media type of an `output_format`; unstated it is PNG."""
    return f"image/{output_format or 'png'}"


def sniff_base64(text: str) -> str | None:
    """Return the media type that an image's first bytes tell, of an image in base64."""
    try:
        return image_type_of(b64decode(text[:24]))
    except ValueError:
        return None
