"""The gateway's own tools: `chat` and `generate-image` call a model, `list-models` and `list-image-models` list them.

A call is a request in the form of a client's HTTP request. It passes the pipeline like any other of its API key, with
the same limits, rules, guardrails, billing and log. `chat` sends the text as progress to clients that want it. Lists
have only models that the key's access rules allow and for which there is a credential, by the routing's own rules.

One struct for each tool's arguments or results is both parser and JSON schema.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from apps.catalog import catalog_cache
from apps.catalog.model_listing import build_entry
from apps.catalog.offers import Offer
from apps.gateway.access.credentials import credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.events import Event, Failed, Reply, ReplyBuilder, Summary, TextDelta, Waiting
from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media.images import client as openai
from apps.gateway.pipeline import open_chat
from apps.gateway.routing.candidate import Candidate
from apps.gateway.run import ChatRun
from apps.kernel.errors import InternalError, InvalidRequest
from apps.kernel.money import plain
from apps.kernel.rest.routes import route_table
from apps.keys.iam import first_refusal
from apps.mcp.protocol.calls import Caller, CallResult, Progress, UnknownTool, text_block

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
_CHAT_ROUTE: Final = "chat_completions"
_CHAT_PATH: Final = "/v1/chat/completions"
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
_IMAGES_ROUTE: Final = "images_generations"
_IMAGES_PATH: Final = "/v1/images/generations"


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


LIST_MODELS, LIST_IMAGE_MODELS = "list-models", "list-image-models"
_IMAGE: Final = "image"


class ListArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list."""

    family: Annotated[str, Meta(max_length=100, description="Only this family, such as gpt or claude.")] | None = None
    query: Annotated[str, Meta(max_length=100, description="Text in the model's id or name.")] | None = None
    exclude_deprecated: bool = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ListedModel(msgspec.Struct, kw_only=True):
    """A model; prices are the cheapest provider's, in USD per token, as decimals."""

    id: str
    name: str
    family: str
    description: str
    input_modalities: list[str]
    output_modalities: list[str]
    context_length: int
    input_price: str
    output_price: str
    image_price: str
    free: bool
    providers: list[str]


class ListedModels(msgspec.Struct, kw_only=True):
    """The models, and the total number of matches."""

    models: list[ListedModel]
    total: int


def list_models(caller: Caller, arguments: ListArguments) -> CallResult:
    """Return the chat models."""
    return _result(caller.policy, arguments, lambda mode, _: mode == "chat")


def list_image_models(caller: Caller, arguments: ListArguments) -> CallResult:
    """Return the image models."""
    return _result(caller.policy, arguments, lambda mode, outputs: mode == "image_generation" or _IMAGE in outputs)


def _result(policy: Policy, arguments: ListArguments, is_wanted: Any) -> CallResult:
    today, found = datetime.now(UTC).date(), []
    wanted = (arguments.query or "").lower()
    for model in catalog_cache.current().models.values():
        if not is_wanted(model.mode, model.output_modalities):
            continue
        if arguments.family is not None and model.family != arguments.family:
            continue
        if wanted not in model.id.lower() and wanted not in model.name.lower():
            continue
        offers = [
            offer
            for offer in model.offers
            if offer.is_live(today)
            and not (arguments.exclude_deprecated and offer.is_deprecated(today))
            and _is_open_to(policy, offer)
        ]
        if offers:
            found.append(_listed(build_entry(model, offers)))
    answer = ListedModels(models=found[: arguments.limit], total=len(found))
    lines = [f"{model.id}: {model.description}" for model in answer.models]
    if len(found) > arguments.limit:
        lines.append(f"{len(found) - arguments.limit} more: raise limit, or filter by family or query")
    text = "\n".join(lines) or "No matching model is available to this API key."
    return CallResult(content=[text_block(text)], structured=msgspec.to_builtins(answer))


def _is_open_to(policy: Policy, offer: Offer) -> bool:
    """Return whether a caller's request could be sent there."""
    credentials = credentials_for(policy, offer.provider)
    return bool(credentials) and (
        first_refusal(policy.rules, Candidate(offer, credentials[0], offer.model_name)) is None
    )


def _listed(entry: dict[str, Any]) -> ListedModel:
    return ListedModel(
        id=entry["id"],
        name=entry["name"],
        family=entry["family"],
        description=entry["description"],
        input_modalities=list(entry["architecture"]["input_modalities"]),
        output_modalities=list(entry["architecture"]["output_modalities"]),
        context_length=entry["context_length"],
        input_price=entry["pricing"]["prompt"],
        output_price=entry["pricing"]["completion"],
        image_price=entry["pricing"]["image"],
        free=entry["free"],
        providers=[provider["providerId"] for provider in entry["providers"]],
    )


Shape = TypeVar("Shape", bound=msgspec.Struct)


def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a struct."""
    (reference,), parts = msgspec.json.schema_components([shape])
    name = reference["$ref"].rpartition("/")[2]
    whole: dict[str, Any] = parts.pop(name)
    whole.pop("title", None)
    if parts:
        whole["$defs"] = parts
    return whole


def read_arguments(shape: type[Shape], arguments: dict[str, Any]) -> Shape:
    """Return a tool's arguments. Raises InvalidRequest naming the invalid one."""
    try:
        return msgspec.convert(arguments, shape)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        param = place.removesuffix("`").lstrip(".") or None
        words = f"{param}: {problem}" if param else problem
        raise InvalidRequest(f"Invalid arguments: {words}", code="invalid_parameters", param=param) from None


# Hints of a tool that calls a model: costs money, changes nothing, is not repeatable, and reaches external services.
_ASKS: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
# Hints of a tool that only reads the gateway's data.
_TELLS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


def _tool(name: str, title: str, description: str, reads: Any, answers: Any, hints: dict[str, bool]) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema_of(reads),
        "outputSchema": schema_of(answers),
        "annotations": {"title": title, **hints},
    }


_TOOLS: Final = [
    _tool(
        CHAT,
        "Ask a model",
        "Ask a language model of any provider through the gateway. Billed to the credential's project.",
        ChatArguments,
        ChatAnswer,
        _ASKS,
    ),
    _tool(
        LIST_MODELS,
        "List models",
        "List the language models that this credential may use, with prices and context lengths.",
        ListArguments,
        ListedModels,
        _TELLS,
    ),
    _tool(
        GENERATE_IMAGE,
        "Generate images",
        "Have a model generate one to four images. Billed to the credential's project.",
        ImageArguments,
        ImageAnswer,
        _ASKS,
    ),
    _tool(
        LIST_IMAGE_MODELS,
        "List image models",
        "List the image models that this credential may use.",
        ListArguments,
        ListedModels,
        _TELLS,
    ),
]


class GatewayTools:
    """The toolbox at `/mcp`."""

    name = "mcp"
    instructions = (
        "Models of every provider behind one address. list-models and list-image-models list them; chat and "
        "generate-image call them. Each request is billed and logged for the credential's project."
    )

    def list_tools(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the tools, which are the same for all callers."""
        return _TOOLS

    def call_tool(
        self,
        caller: Caller,
        name: str,
        arguments: dict[str, Any],
        progress: Progress | None,
        cancelled: CancelSwitch,
    ) -> CallResult:
        """Call a tool. Raises UnknownTool, ApiError, ClientGone."""
        if name == CHAT:
            return chat(caller, read_arguments(ChatArguments, arguments), progress, cancelled)
        if name == GENERATE_IMAGE:
            return generate_image(caller, read_arguments(ImageArguments, arguments), progress, cancelled)
        if name == LIST_MODELS:
            return list_models(caller, read_arguments(ListArguments, arguments))
        if name == LIST_IMAGE_MODELS:
            return list_image_models(caller, read_arguments(ListArguments, arguments))
        raise UnknownTool
