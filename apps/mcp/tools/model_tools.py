"""The tools `chat` and `generate-image`: each calls a model by a request in the form of a client's HTTP request.

The request passes the pipeline like any other of its API key, with the same limits, rules, guardrails, billing and log.
`chat` sends the text as progress to clients that want it.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from apps.gateway.canonical.events import Event, Failed, Reply, Summary, TextDelta, Waiting
from apps.gateway.canonical.fold import ReplyBuilder
from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media.images import client as openai
from apps.gateway.pipeline import open_chat
from apps.gateway.run import ChatRun
from apps.kernel.errors import InternalError
from apps.kernel.money import plain
from apps.kernel.rest.routes import route_table
from apps.mcp.protocol.toolbox import Caller, CallResult, Progress, text_block

# Source of tool requests in the log, unless the client names another.
_SOURCE: Final = "mcp"


class ToolRequest(ClientRequest):
    """A request that the gateway makes to itself for a tool call; `path` is the API path of the request."""

    def __init__(self, caller: Caller, path: str, wire: dict[str, Any], cancelled: CancelSwitch) -> None:
        self._body = msgspec.json.encode(wire)
        environ: dict[str, Any] = {
            f"HTTP_{name.upper().replace('-', '_')}": value for name, value in caller.headers.items()
        }
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_LENGTH": str(len(self._body))}
        super().__init__(environ, route_table().exact["POST", path])
        self._key, self._cancelled = caller.token, cancelled

    @property
    def presented_key(self) -> str:
        """An internal token for the caller's API key."""
        return self._key

    @property
    def source(self) -> str | None:
        """The source recorded in the log."""
        return super().source or _SOURCE

    def body(self) -> bytes:
        """Return the body."""
        return self._body

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the signal that ends the request: the call's cancellation."""
        return self._cancelled


_UNKNOWN: Final = "image/png"


def picture_block(url: str) -> dict[str, Any]:
    """Return the block of content for a picture, a `data:` or an `https:` URL."""
    if not url.startswith("data:"):
        return {"type": "resource_link", "uri": url, "name": "image"}
    head, _, data = url.removeprefix("data:").partition(",")
    return {"type": "image", "data": data, "mimeType": head.partition(";")[0] or _UNKNOWN}


CHAT: Final = "chat"
_CHAT_ROUTE, _CHAT_PATH = "chat_completions", "/v1/chat/completions"
# Seconds of text per progress message: one for each token would be mostly overhead.
_GATHERED: Final = 0.1


class Turn(msgspec.Struct, forbid_unknown_fields=True):
    """A message of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Meta(min_length=1, description="The text of the message.")]


class ChatArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `chat`."""

    messages: Annotated[list[Turn], Meta(min_length=1, max_length=2_000, description="The conversation so far.")]
    model: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="A model's id (see list-models), provider/model, or auto for the cheapest suitable model.",
        ),
    ] = "auto"
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, description="Maximum tokens of the answer.")] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class TokenCounts(msgspec.Struct, kw_only=True):
    """Tokens as the provider counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(msgspec.Struct, kw_only=True):
    """The model's answer."""

    id: str
    model: str
    provider: str
    content: str
    finish_reason: str | None
    usage: TokenCounts
    cost: Annotated[str, Meta(description="USD, a decimal.")]


def chat(caller: Caller, arguments: ChatArguments, progress: Progress | None, cancelled: CancelSwitch) -> CallResult:
    """Ask a model and return its answer. Raises ApiError."""
    # Progress needs a streamed answer.
    wire = {**msgspec.to_builtins(arguments), "stream": progress is not None}
    call = ToolRequest(
        caller, _CHAT_PATH, {name: value for name, value in wire.items() if value is not None}, cancelled
    )
    try:
        reply, summary = _run(open_chat(call, _CHAT_ROUTE, caller.token, OPENAI.read_request), progress)
    finally:
        call.release_bytes()
    return _chat_result(reply, summary)


def _run(run: ChatRun, progress: Progress | None) -> tuple[Reply, Summary]:
    builder, summary = ReplyBuilder(), None
    teller = None if progress is None else _Teller(progress)
    for event in run.events():
        if type(event) is Failed:
            raise event.error
        if type(event) is Summary:
            summary = event
            continue
        builder.add(event)
        if teller is not None:
            teller.take(event)
    if summary is None:
        raise InternalError("The answer ended without a summary")
    if teller is not None:
        teller.flush()
    return builder.reply(), summary


def _chat_result(reply: Reply, summary: Summary) -> CallResult:
    choice = reply.choices[0] if reply.choices else None
    text = "" if choice is None else choice.text or choice.refusal or ""
    usage = summary.usage
    answer = ChatAnswer(
        id=reply.id,
        model=reply.model,
        provider=reply.provider,
        content=text,
        finish_reason=None if choice is None else choice.finish,
        usage=TokenCounts(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
        ),
        cost=plain(summary.cost["total"]),
    )
    pictures = [] if choice is None else [picture_block(url) for url in choice.images]
    content: list[dict[str, Any]] = [text_block(text), *pictures] if text or not pictures else pictures
    return CallResult(content=content, structured=msgspec.to_builtins(answer))


class _Teller:
    """Sends the text of an answer in pieces; progress is the number of characters, and one for each silence."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._so_far = 0
        self._pieces: list[str] = []
        self._told_at = 0.0

    def take(self, event: Event) -> None:
        """Process an event of the answer."""
        if type(event) is TextDelta and event.choice == 0:
            self._pieces.append(event.text)
            if time.monotonic() - self._told_at >= _GATHERED:
                self.flush()
        elif type(event) is Waiting:
            self._so_far += 1
            self._progress(self._so_far)

    def flush(self) -> None:
        """Send the gathered text."""
        text = "".join(self._pieces)
        if text:
            self._pieces.clear()
            self._so_far += len(text)
            self._told_at = time.monotonic()
            self._progress(self._so_far, message=text)


GENERATE_IMAGE: Final = "generate-image"
_IMAGES_ROUTE, _IMAGES_PATH = "images_generations", "/v1/images/generations"


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
    call = ToolRequest(caller, _IMAGES_PATH, wire, cancelled)
    builder, summary, silences = ReplyBuilder(), None, 0
    try:
        for event in open_chat(call, _IMAGES_ROUTE, caller.token, openai.read_generation).events():
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
