"""The tool `generate-image`: has a model generate images."""
# alone: one tool; box.py lists all of them

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from apps.gateway.canonical.events import Failed, Summary, Waiting
from apps.gateway.canonical.fold import ReplyBuilder
from apps.gateway.client.client_disconnect import CancelSwitch
from apps.gateway.dialects.media.images import client as openai
from apps.gateway.pipeline import open_chat
from apps.kernel.errors import InternalError
from apps.kernel.money import plain
from apps.mcp.protocol.toolbox import Caller, CallResult, Progress, text_block
from apps.mcp.tools.tool_request import ToolRequest, picture_block

NAME: Final = "generate-image"
_ROUTE, _PATH = "images_generations", "/v1/images/generations"


class ImageArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `generate-image`."""

    prompt: Annotated[str, Meta(min_length=1, max_length=32_000, description="The content of the image.")]
    model: Annotated[
        str, Meta(min_length=1, max_length=255, description="A model's id (see list-image-models), or auto.")
    ] = "auto"
    size: Annotated[str, Meta(pattern=r"^(auto|\d{2,5}x\d{2,5})$", description="auto, or 1024x1024.")] | None = None
    aspect_ratio: Annotated[str, Meta(pattern=r"^\d{1,2}:\d{1,2}$", description="16:9, for example.")] | None = None
    quality: Literal["auto", "standard", "hd", "low", "medium", "high"] | None = None
    n: Annotated[int, Meta(ge=1, le=4, description="How many pictures.")] = 1


class ImageAnswer(msgspec.Struct, kw_only=True):
    """The generated images; the images themselves are content blocks, in this order."""

    id: str
    model: str
    provider: str
    images: Annotated[list[str], Meta(description="The type of each image, or its address.")]
    cost: Annotated[str, Meta(description="USD, a decimal.")]


def generate_image(
    caller: Caller, arguments: ImageArguments, progress: Progress | None, cancelled: CancelSwitch
) -> CallResult:
    """Generate images and return them. Raises ApiError."""
    wire = {name: value for name, value in msgspec.to_builtins(arguments).items() if value is not None}
    call = ToolRequest(caller, _PATH, wire, cancelled)
    builder, summary, silences = ReplyBuilder(), None, 0
    try:
        for event in open_chat(call, _ROUTE, caller.token, openai.read_generation).events():
            if type(event) is Failed:
                raise event.error
            if type(event) is Summary:
                summary = event
                continue
            builder.add(event)
            if type(event) is Waiting and progress is not None:
                silences += 1
                progress(silences, message="The model is drawing")
    finally:
        call.release_bytes()
    if summary is None:
        raise InternalError("The answer ended without a summary")
    reply = builder.reply()
    blocks = [picture_block(url) for choice in reply.choices for url in choice.images]
    texts = [text_block(choice.text) for choice in reply.choices if choice.text]
    answer = ImageAnswer(
        id=reply.id,
        model=reply.model,
        provider=reply.provider,
        images=[block.get("mimeType") or block["uri"] for block in blocks],
        cost=plain(summary.cost["total"]),
    )
    return CallResult(content=[*blocks, *texts], structured=msgspec.to_builtins(answer))
