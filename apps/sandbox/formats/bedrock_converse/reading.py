"""Reads requests as strictly as Bedrock does where a gateway can go wrong: unknown fields, turns, blank text, names and
number of documents, calls without their results, tools that are not declared, credentials that are not well formed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from apps.sandbox.conversation import Conversation, SandboxTool, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.formats.bedrock_converse.shapes import BedrockMessage, BedrockRequest, Block, ToolConfig
from apps.sandbox.refusal import SandboxRefusal

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
    if files and not any(block.text for block in blocks):
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
    return "\n".join(block.text for block in blocks if block.text) + called


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
