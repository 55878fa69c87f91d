"""Amazon Bedrock's Converse: `POST /model/<model>/converse`, and `/converse-stream` as AWS's binary event stream."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec
from msgspec import Meta, Struct, field

from apps.sandbox.conversation import Conversation, SandboxAnswer, SandboxChoice, SandboxTool, SandboxUsage, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.scenario import SandboxRefusal, Scenario

PATH = re.compile("/model/.+/converse(-stream)?")
MODELS_PATH = "/foundation-models"
STREAM_TYPE = "application/vnd.amazon.eventstream"


Identity = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.:-]{1,64}$")]
Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
DocumentName = Annotated[str, Meta(pattern=r"^(?!.*  )[a-zA-Z0-9 ()\[\]-]{1,200}$")]
Base64 = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/]+={0,2}$")]


class Strict(Struct, forbid_unknown_fields=True, rename="camel"):
    """An object of AWS's."""


class BedrockSource(Strict):
    """Bytes."""

    bytes: Base64


class BedrockImage(Strict):
    """A picture."""

    format: Literal["png", "jpeg", "gif", "webp"]
    source: BedrockSource


class BedrockText(Strict):
    """A text."""

    text: str


class DocumentSource(Strict):
    """A document's bytes, text or pieces: one of these."""

    bytes: Base64 | None = None
    text: str | None = None
    content: list[BedrockText] | None = None


class CitationsConfig(Strict):
    """Whether an answer cites."""

    enabled: bool


class BedrockDocument(Strict):
    """A document."""

    name: DocumentName
    source: DocumentSource
    format: Literal["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"] | None = None
    context: str | None = None
    citations: CitationsConfig | None = None


class BedrockSearchResult(Strict):
    """A result of a search of the client's."""

    source: str
    title: str
    content: list[BedrockText]
    citations: CitationsConfig | None = None


class GuardedText(Strict):
    """A text for a guardrail, which the model reads as well."""

    text: str
    qualifiers: list[Literal["grounding_source", "query", "guard_content"]] = []


class GuardContent(Strict):
    """Content for a guardrail: one of these."""

    text: GuardedText | None = None
    image: BedrockImage | None = None


class CitationsContent(Strict):
    """An earlier answer's text with its citations."""

    content: list[BedrockText] = []
    citations: list[dict[str, Any]] = []


class Media(Strict):
    """Sound or video."""

    format: str
    source: BedrockSource


class CachePoint(Strict):
    """The end of the cached prefix."""

    type: Literal["default"]
    ttl: Literal["5m", "1h"] | None = None


class ToolUse(Strict):
    """A call."""

    tool_use_id: Identity
    name: Name
    input: dict[str, Any]
    type: Literal["server_tool_use"] | None = None


class BedrockToolResult(Strict):
    """A tool's result."""

    tool_use_id: Identity
    content: list[Block]
    status: Literal["success", "error"] = "success"
    type: str | None = None


class ReasoningText(Strict):
    """Thinking."""

    text: str
    signature: str | None = None


class BedrockReasoning(Strict):
    """Thinking, or what only its maker can read of it."""

    reasoning_text: ReasoningText | None = None
    redacted_content: Base64 | None = None


class Block(Strict):
    """A part of a message: one of these."""

    text: str | None = None
    image: BedrockImage | None = None
    document: BedrockDocument | None = None
    video: Media | None = None
    audio: Media | None = None
    json: dict[str, Any] | None = None
    tool_use: ToolUse | None = None
    tool_result: BedrockToolResult | None = None
    reasoning_content: BedrockReasoning | None = None
    cache_point: CachePoint | None = None
    guard_content: GuardContent | None = None
    search_result: BedrockSearchResult | None = None
    citations_content: CitationsContent | None = None

    @property
    def words(self) -> str:
        """The text that the model reads in it."""
        if self.text is not None:
            return self.text
        if self.json is not None:
            return msgspec.json.encode(self.json).decode()
        if self.guard_content is not None and self.guard_content.text is not None:
            return self.guard_content.text.text
        found = self.search_result or self.citations_content
        return "" if found is None else "\n".join(piece.text for piece in found.content)


class BedrockMessage(Strict):
    """A turn."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], Meta(min_length=1)]


class Schema(Strict):
    """A tool's parameters."""

    json: dict[str, Any]


class Spec(Strict):
    """A tool."""

    name: Name
    input_schema: Schema
    description: Annotated[str, Meta(min_length=1)] = " "
    strict: bool = False


class BedrockTool(Strict):
    """A tool, or the end of the cached prefix."""

    tool_spec: Spec | None = None
    cache_point: CachePoint | None = None


class BedrockNamedTool(Strict):
    """The name of a tool."""

    name: Name


class BedrockToolChoice(Strict):
    """Whether tools are called: one of these."""

    auto: dict[str, Any] | None = None
    any: dict[str, Any] | None = None
    tool: BedrockNamedTool | None = None


class ToolConfig(Strict):
    """Tools and the choice among them."""

    tools: Annotated[list[BedrockTool], Meta(min_length=1)]
    tool_choice: BedrockToolChoice | None = None


class Inference(Strict):
    """Limits and sampling."""

    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[Annotated[str, Meta(min_length=1)]] = []


class JsonSchema(Strict):
    """A schema, as text."""

    schema: str
    name: str = ""
    description: str = ""


class Structure(Strict):
    """The format that an answer must have."""

    json_schema: JsonSchema


class TextFormat(Strict):
    """The form of an answer."""

    type: Literal["json_schema"]
    structure: Structure


class Output(Strict):
    """Requirements for an answer."""

    text_format: TextFormat | None = None


class Tier(Strict):
    """How soon to answer, at what price."""

    type: Literal["priority", "default", "flex", "reserved"]


class BedrockRequest(Strict):
    """A request."""

    messages: Annotated[list[BedrockMessage], Meta(min_length=1)]
    system: list[Block] = []
    inference_config: Inference = field(default_factory=Inference)
    tool_config: ToolConfig | None = None
    additional_model_request_fields: dict[str, Any] = {}
    output_config: Output = field(default_factory=Output)
    request_metadata: dict[str, str] = {}
    additional_model_response_field_paths: list[str] = []
    service_tier: Tier | None = None


SIGNATURE = "c2FuZGJveCBzaWduYXR1cmU="
"""The signature on every thought of the sandbox's, insisted on when one comes back."""

_SIGNED = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w{16,128})/\d{8}/[a-z0-9-]+/bedrock/aws4_request, "
    r"SignedHeaders=[a-z0-9;-]*host[a-z0-9;-]*x-amz-date[a-z0-9;-]*, Signature=[0-9a-f]{64}"
)
_KINDS = {"image": "image", "audio": "audio clip", "video": "video", "document": "file"}
_SHARES = ((2_000, "low"), (8_000, "medium"))
_requests = msgspec.json.Decoder(BedrockRequest)


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key, or the id of the key that signed, if there is one."""
    presented = headers.get("authorization", "").strip()
    if presented.startswith("Bearer "):
        return presented.removeprefix("Bearer ").strip() or None
    signed = _SIGNED.fullmatch(presented)
    return signed[1] if signed and "x-amz-date" in headers else None


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request, which the path says."""
    model, streamed = _split(path)
    return Glance(model, streamed, wants_usage=True)


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Bedrock's manner."""
    try:
        request = _requests.decode(body)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"The request is malformed. {error}") from error
    _check(request)
    model, streamed = _split(path)
    config = request.tool_config
    specs = [tool.tool_spec for tool in config.tools if tool.tool_spec] if config else []
    form = request.output_config.text_format
    native: dict[str, Any] = request.additional_model_request_fields.get("tool_choice", {})
    return Conversation(
        model=model,
        turns=tuple(_turns(request)),
        tools=tuple(SandboxTool(spec.name, spec.description, spec.input_schema.json) for spec in specs),
        tool_choice=_tool_choice(config, native),
        parallel_calls=not native.get("disable_parallel_tool_use"),
        schema=msgspec.json.decode(form.structure.json_schema.schema) if form else None,
        max_tokens=request.inference_config.max_tokens,
        stop=tuple(request.inference_config.stop_sequences),
        effort=_effort(request.additional_model_request_fields),
        streamed=streamed,
        wants_usage=True,
    )


def _split(path: str) -> tuple[str, bool]:
    rest, _, method = path.rpartition("/")
    return rest.removeprefix("/model/"), method == "converse-stream"


def _check(request: BedrockRequest) -> None:
    """Refuse turns, texts, documents and calls that Bedrock refuses, in its words."""
    documents: set[str] = set()
    awaited: set[str] = set()
    before = "assistant"
    for place, message in enumerate(request.messages):
        at = f"messages.{place}.content"
        if message.role == before:
            first = "A conversation must start with a user message." if place == 0 else "Roles must alternate."
            raise SandboxRefusal(400, first)
        before = message.role
        _check_blocks(message.content, at, documents)
        results = {block.tool_result.tool_use_id for block in message.content if block.tool_result}
        if results != awaited:
            raise SandboxRefusal(
                400, f"{at}: The number of toolResult blocks must match that of the toolUse blocks before."
            )
        awaited = {block.tool_use.tool_use_id for block in message.content if block.tool_use}
        if (results or awaited) and request.tool_config is None:
            raise SandboxRefusal(
                400, "The toolConfig field must be defined when using toolUse and toolResult content blocks."
            )
    if awaited:
        raise SandboxRefusal(400, "Expected toolResult blocks for the last toolUse blocks.")
    _check_blocks(request.system, "system", documents)


def _check_blocks(blocks: list[Block], at: str, documents: set[str]) -> None:
    if any(block.text is not None and not block.text.strip() for block in blocks):
        raise SandboxRefusal(
            400, f"The text field in the ContentBlock object at {at} is blank. Add text and try again."
        )
    files = [block.document for block in blocks if block.document]
    if files and not any(block.words for block in blocks):
        raise SandboxRefusal(400, f"{at}: A text block must be included with a document.")
    for file in files:
        if file.name in documents:
            raise SandboxRefusal(400, f"{at}: Two documents have the name {file.name}.")
        documents.add(file.name)
    for block in blocks:
        thought = block.reasoning_content.reasoning_text if block.reasoning_content else None
        if thought and thought.signature != SIGNATURE:
            raise SandboxRefusal(400, f"{at}: Invalid `signature` in `thinking` block")


def _turns(request: BedrockRequest) -> Iterator[Turn]:
    """Yield the turns, a tool's result as a turn of its own."""
    if request.system:
        yield Turn("system", _text_of(request.system))
    names = {
        block.tool_use.tool_use_id: block.tool_use.name
        for message in request.messages
        for block in message.content
        if block.tool_use
    }
    for message in request.messages:
        for block in message.content:
            if result := block.tool_result:
                yield Turn("tool", _text_of(result.content), name=names.get(result.tool_use_id))
        yield from _said(message)


def _said(message: BedrockMessage) -> Iterator[Turn]:
    others = [block for block in message.content if not block.tool_result and not block.cache_point]
    if others:
        kinds = Counter(word for block in others for name, word in _KINDS.items() if getattr(block, name))
        yield Turn(message.role, _text_of(others), attachments=tuple(kinds.items()))


def _text_of(blocks: list[Block]) -> str:
    called = "".join(
        block.tool_use.name + msgspec.json.encode(block.tool_use.input).decode() for block in blocks if block.tool_use
    )
    return "\n".join(words for block in blocks if (words := block.words)) + called


def _tool_choice(config: ToolConfig | None, native: dict[str, Any]) -> str:
    choice = config.tool_choice if config else None
    if choice is not None and native:
        raise SandboxRefusal(400, "The tool_choice field conflicts with toolConfig.toolChoice.")
    if native:
        kind = str(native.get("type"))
        return f"={native.get('name')}" if kind == "tool" else {"any": "required"}.get(kind, kind)
    if choice is None or choice.auto is not None:
        return "auto"
    return "required" if choice.tool is None else f"={choice.tool.name}"


def _effort(fields: dict[str, Any]) -> str | None:
    """Return how much to think, in any of the forms that models of different makers have."""
    thinking = fields.get("thinking", {})
    if thinking.get("type") == "adaptive":
        effort = fields.get("output_config", {}).get("effort", "high")
        return "xhigh" if effort == "max" else str(effort)
    if thinking.get("type") == "enabled":
        return next((word for most, word in _SHARES if thinking["budget_tokens"] <= most), "high")
    nova = fields.get("reasoningConfig", {})
    found = (
        nova.get("maxReasoningEffort")
        or fields.get("reasoning", {}).get("effort")
        or fields.get("reasoning_effort")
        or fields.get("reasoning_config")
    )
    return None if found is None else str(found)


_TEXT = 7


def frame(kind: str, payload: dict[str, Any], *, exception: bool = False) -> bytes:
    """Return the frame of an event, or of an exception."""
    word = "exception" if exception else "event"
    names = {f":{word}-type": kind, ":content-type": "application/json", ":message-type": word}
    headers = b"".join(_header(name, value) for name, value in names.items())
    body = msgspec.json.encode(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = prelude + struct.pack(">I", crc32(prelude)) + headers + body
    return whole + struct.pack(">I", crc32(whole))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + bytes([_TEXT]) + len(value).to_bytes(2) + value.encode()


ARGUMENT_DELTA = 8
"""Characters of a call's arguments in one delta, where the scenario does not say."""

_PADDING = "abcdefghij"
_METRICS = {"latencyMs": 1}
_EXTRA = {"xSandbox": {"note": "an unknown field"}}
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "content_filtered"}
_EXCEPTIONS = {
    400: "validationException",
    424: "modelStreamErrorException",
    429: "throttlingException",
    500: "internalServerException",
    503: "serviceUnavailableException",
}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    choice = answer.choices[0]
    reply = {
        "metrics": _METRICS,
        "output": {"message": {"role": "assistant", "content": list(_blocks(choice))}},
        "stopReason": _STOPS[choice.finish],
        "usage": _usage(answer.usage),
    }
    return msgspec.json.encode(reply | (_EXTRA if scenario.extra else {}))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the frames, from `messageStart` to `metadata`."""
    choice = answer.choices[0]
    extra = _EXTRA if scenario.extra else {}
    events = [frame("messageStart", {"p": _PADDING, "role": "assistant"} | extra)]
    for index, block in enumerate(_blocks(choice)):
        events += _streamed(index, block, scenario)
    events.append(frame("messageStop", {"p": _PADDING, "stopReason": _STOPS[choice.finish]}))
    return [*events, frame("metadata", {"metrics": _METRICS, "p": _PADDING, "usage": _usage(answer.usage)})]


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    return msgspec.json.encode({"modelSummaries": [{"modelId": name, "modelName": name} for name in names]})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Bedrock's error body."""
    return msgspec.json.encode({"message": refusal.message})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error as an exception's frame."""
    name = _EXCEPTIONS.get(refusal.status, "internalServerException")
    return frame(name, {"message": refusal.message}, exception=True)


def _blocks(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    if choice.reasoning:
        yield {"reasoningContent": {"reasoningText": {"text": choice.reasoning, "signature": SIGNATURE}}}
    if choice.text:
        yield {"text": choice.text}
    for call in choice.calls:
        arguments = msgspec.Raw(call.arguments.encode())
        yield {"toolUse": {"input": arguments, "name": call.name, "toolUseId": call.id}}


def _streamed(index: int, block: dict[str, Any], scenario: Scenario) -> Iterator[bytes]:
    if use := block.get("toolUse"):
        start = {"toolUse": {"name": use["name"], "toolUseId": use["toolUseId"]}}
        yield frame("contentBlockStart", {"contentBlockIndex": index, "start": start})
        pieces = scenario.pieces_of(bytes(use["input"]).decode(), usual=ARGUMENT_DELTA)
        deltas: list[dict[str, Any]] = [{"toolUse": {"input": piece}} for piece in pieces]
    elif thought := block.get("reasoningContent"):
        deltas = [{"reasoningContent": {"text": text}} for text in scenario.pieces_of(thought["reasoningText"]["text"])]
        deltas.append({"reasoningContent": {"signature": SIGNATURE}})
    else:
        deltas = [{"text": piece} for piece in scenario.pieces_of(block["text"])]
    for delta in deltas:
        yield frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": _PADDING})
    yield frame("contentBlockStop", {"contentBlockIndex": index})


def _usage(usage: SandboxUsage | None) -> dict[str, Any]:
    if usage is None:
        return {"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}
    counts: dict[str, Any] = {
        "inputTokens": usage.prompt - usage.cached - usage.cache_write,
        "outputTokens": usage.completion,
        "totalTokens": usage.prompt + usage.completion,
    }
    if usage.cached or usage.cache_write:
        counts |= {"cacheReadInputTokens": usage.cached, "cacheWriteInputTokens": usage.cache_write}
        counts["cacheDetails"] = [{"inputTokens": usage.cache_write, "ttl": "5m"}]
    return counts
