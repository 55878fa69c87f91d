"""The request of OpenAI's Responses as strict structs: a field that is not named here is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

Id = Annotated[str, Meta(min_length=1, max_length=64)]


class Strict(Struct, forbid_unknown_fields=True):
    """An object of OpenAI's: a field that is not named here is an error."""


class ContentPart(Struct):
    type: Literal["input_text", "input_image", "input_audio", "input_file", "output_text", "refusal"]
    text: str = ""
    refusal: str = ""


class MessageItem(Struct, tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]
    id: Id | None = None
    status: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(Strict, tag="function_call"):
    call_id: Id
    name: str
    arguments: str
    namespace: str | None = None
    id: Id | None = None
    status: str | None = None


class CustomCall(Strict, tag="custom_tool_call"):
    call_id: Id
    name: str
    input: str
    namespace: str | None = None
    id: Id | None = None


class CustomResult(Strict, tag="custom_tool_call_output"):
    call_id: Id
    output: str | list[ContentPart]


class FunctionResult(Strict, tag="function_call_output"):
    call_id: Id
    output: str | list[ContentPart]
    id: Id | None = None
    status: str | None = None


class ReasoningText(Strict):
    type: Literal["summary_text", "reasoning_text"]
    text: str


class ReasoningItem(Strict, tag="reasoning"):
    id: Id
    summary: list[ReasoningText]
    content: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    status: str | None = None


class ReasoningOptions(Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


class ConfigurationUpdate(Strict, tag="configuration_update"):
    reasoning: ReasoningOptions | None = None
    text: dict[str, Any] | None = None
    id: Id | None = None


Item = MessageItem | FunctionCall | CustomCall | FunctionResult | CustomResult | ReasoningItem | ConfigurationUpdate


class OfferedTool(Strict):
    type: Literal["function", "web_search", "custom", "namespace"]
    name: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,128}$")] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: dict[str, Any] | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None
    user_location: dict[str, Any] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    filters: dict[str, Any] | None = None
    external_web_access: bool | None = None
    format: dict[str, Any] | None = None
    tools: list[OfferedTool] | None = None


class ToolPointer(Strict):
    type: str
    name: str | None = None


class ChosenTool(Strict):
    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[ToolPointer] | None = None


class TextForm(Strict):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextOptions(Strict):
    format: TextForm | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


Include = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class ResponseRequest(Strict):
    model: str
    input: str | list[Raw]
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    include: list[Include] | None = None
    max_output_tokens: Annotated[int, Meta(ge=16)] | None = None
    max_tool_calls: int | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[dict[str, Any]] | None = None
    user: Id | None = None
    safety_identifier: Id | None = None
    metadata: dict[str, str] | None = None
    moderation: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    prompt_cache_key: Id | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    prompt_cache_options: dict[str, Any] | None = None
