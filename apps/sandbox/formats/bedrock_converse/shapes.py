"""The shapes of Converse's requests, as AWS states them: a field that is not named here is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

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


class BedrockDocument(Strict):
    """A document."""

    format: Literal["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"]
    name: DocumentName
    source: BedrockSource


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


class BedrockToolResult(Strict):
    """A tool's result."""

    tool_use_id: Identity
    content: list[Block]
    status: Literal["success", "error"] = "success"


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


class BedrockMessage(Strict):
    """A turn."""

    role: Literal["user", "assistant"]
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
    service_tier: Tier | None = None
