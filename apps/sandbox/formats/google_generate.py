"""Google's `generateContent`: `POST /v1beta/models/<model>:generateContent`, and `:streamGenerateContent?alt=sse`; the
same below a project and location, as Google Cloud has it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from apps.sandbox.conversation import Conversation, SandboxAnswer, SandboxChoice, SandboxTool, SandboxUsage, Turn
from apps.sandbox.formats import Glance
from apps.sandbox.generated_media import size_of
from apps.sandbox.scenario import SandboxRefusal, Scenario

PLACES = "(?:/v1beta/models|/v1(?:beta1)?/projects/[^/]+/locations/[^/]+/publishers/google/models)"
PATH = re.compile(f"{PLACES}/[^/]+:(generateContent|streamGenerateContent)")
MODELS_PATH = "/v1beta/models"
STREAM_TYPE = "text/event-stream"


# Google's documented value for calls that the model did not make itself.
SKIPPED = b64encode(b"skip_thought_signature_validator").decode()


def signature_of(call_id: str) -> str:
    """Return the signature of a call; base64 with characters and padding that ids do not have."""
    return b64encode(b"\xfb\xff" + f"sandbox:{call_id}".encode()).decode()


def is_signature_of(call_id: str | None, signature: str) -> bool:
    """Return whether it is the signature of a call; clients may leave out ids, and then it is that of any call."""
    if call_id is None:
        return signature.startswith(signature_of("")[:12])
    return signature == signature_of(call_id)


_LEVELS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high", "XHIGH": "xhigh"}


class _Strict(Struct, forbid_unknown_fields=True, rename="camel"):
    """An object of Google's: a field that is not named here is an error."""


class _Blob(_Strict):
    mime_type: str
    data: Annotated[str, Meta(pattern="^[A-Za-z0-9+/_-]*={0,2}$")]


class _FileData(_Strict):
    file_uri: str
    mime_type: str | None = None


class _FunctionCall(_Strict):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class _FunctionResponse(_Strict):
    name: str
    response: dict[str, Any]
    id: str | None = None
    parts: list[dict[str, Any]] = []


class _Part(_Strict):
    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    inline_data: _Blob | None = None
    file_data: _FileData | None = None
    function_call: _FunctionCall | None = None
    function_response: _FunctionResponse | None = None
    executable_code: dict[str, Any] | None = None
    code_execution_result: dict[str, Any] | None = None
    video_metadata: dict[str, Any] | None = None
    part_metadata: dict[str, Any] | None = None
    speech_metadata: dict[str, str] | None = None


class _Content(_Strict):
    parts: Annotated[list[_Part], Meta(min_length=1)]
    role: Literal["user", "model", "function"] = "user"


class _Declaration(_Strict):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.:-]{0,127}$")]
    description: str = ""
    parameters_json_schema: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    behavior: str | None = None


class _Tool(_Strict):
    function_declarations: list[_Declaration] = []
    google_search: dict[str, Any] | None = None
    code_execution: dict[str, Any] | None = None
    url_context: dict[str, Any] | None = None


class _Calling(_Strict):
    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"]
    allowed_function_names: list[str] = []


class _ToolConfig(_Strict):
    function_calling_config: _Calling | None = None
    include_server_side_tool_invocations: bool = False


class _Thinking(_Strict):
    thinking_level: Literal["MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"] | None = None
    thinking_budget: Annotated[int, Meta(ge=-1)] | None = None
    include_thoughts: bool = False


class _Config(_Strict):
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: float | None = None
    top_k: float | None = None
    candidate_count: Annotated[int, Meta(ge=1, le=8)] = 1
    stop_sequences: Annotated[list[str], Meta(max_length=5)] = []
    seed: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool = False
    logprobs: int | None = None
    response_mime_type: Literal["text/plain", "application/json"] = "text/plain"
    response_json_schema: dict[str, Any] | None = None
    response_schema: dict[str, Any] | None = None
    media_resolution: str | None = None
    speech_config: dict[str, Any] | None = None
    response_modalities: list[Literal["TEXT", "IMAGE", "AUDIO"]] = []
    image_config: dict[str, str] | None = None
    thinking_config: _Thinking | None = None


class _Request(_Strict):
    contents: Annotated[list[_Content], Meta(min_length=1)]
    system_instruction: _Content | None = None
    tools: list[_Tool] = []
    tool_config: _ToolConfig | None = None
    generation_config: _Config = msgspec.field(default_factory=_Config)
    service_tier: Literal["standard", "flex", "priority"] | None = None
    safety_settings: list[dict[str, str]] = []
    cached_content: str | None = None


_requests = msgspec.json.Decoder(_Request)


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key or the access token, if there is one."""
    return headers.get("x-goog-api-key", "").strip() or headers.get("authorization", "").removeprefix("Bearer ") or None


def glance(path: str, body: bytes) -> Glance | None:
    """Return model and manner of the request, which the path says."""
    model, _, method = path.rpartition("/")[2].rpartition(":")
    return Glance(model, method == "streamGenerateContent", wants_usage=True)


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400) in Google's manner."""
    try:
        request = _requests.decode(body)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid JSON payload received. {error}") from error
    _check_calls(request.contents)
    if not path.startswith("/v1beta/models/"):
        _check_at_cloud(request)
    model, _, method = path.rpartition("/")[2].rpartition(":")
    config = request.generation_config
    tools = tuple(
        SandboxTool(
            declared.name,
            declared.description,
            declared.parameters_json_schema or _json_schema(declared.parameters or {"type": "object"}),
        )
        for tool in request.tools
        for declared in tool.function_declarations
    )
    instructions = [request.system_instruction] if request.system_instruction else []
    return Conversation(
        model=model,
        turns=(
            *(Turn("system", "\n".join(part.text or "" for part in content.parts)) for content in instructions),
            *_turns(request.contents),
        ),
        tools=tools,
        tool_choice=_tool_choice(request.tool_config, tools),
        schema=(config.response_json_schema or _json_schema(config.response_schema or {}))
        if config.response_mime_type == "application/json"
        else None,
        max_tokens=config.max_output_tokens,
        stop=tuple(config.stop_sequences),
        choices=config.candidate_count,
        effort=_effort(config.thinking_config),
        streamed=method == "streamGenerateContent",
        wants_usage=True,
        speaks=config.response_modalities == ["AUDIO"],
        picture=size_of((config.image_config or {}).get("aspectRatio")),
    )


def _json_schema(schema: Any) -> Any:
    """Return a schema of Google's, whose types are in capitals, as JSON Schema."""
    if isinstance(schema, list):
        return [_json_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value.lower() if name == "type" and isinstance(value, str) else _json_schema(value)
        for name, value in schema.items()
    }


def _turns(contents: list[_Content]) -> Iterator[Turn]:
    """Yield the turns, a tool's result as a turn of its own."""
    for content in contents:
        for part in content.parts:
            if result := part.function_response:
                said = "\n".join(map(_words, result.response.values()))
                yield Turn("tool", said, name=result.name)
        others = [part for part in content.parts if part.function_response is None]
        if others:
            text = "\n".join(_text(part) for part in others if part.text or part.function_call)
            kinds = Counter(kind for part in others if (kind := _kind(part)))
            yield Turn("assistant" if content.role == "model" else "user", text, attachments=tuple(kinds.items()))


def _words(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(part: _Part) -> str:
    if call := part.function_call:
        return call.name + msgspec.json.encode(call.args).decode()
    return "" if part.thought else part.text or ""


def _kind(part: _Part) -> str | None:
    source = part.inline_data or part.file_data
    if source is None:
        return None
    kind = (source.mime_type or "").partition("/")[0]
    return {"image": "image", "audio": "audio clip"}.get(kind, "file")


def _check_calls(contents: list[_Content]) -> None:
    """Refuse calls without their signature or without as many results, and results without as many calls."""
    awaited = 0
    for content in contents:
        calls = [part for part in content.parts if part.function_call]
        if calls:
            _check_seal(calls[0])
        results = sum(part.function_response is not None for part in content.parts)
        if results != awaited:
            raise SandboxRefusal(
                400,
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn.",
            )
        awaited = len(calls)


def _check_at_cloud(request: _Request) -> None:
    """Refuse what only AI Studio knows."""
    if request.service_tier is not None:
        raise SandboxRefusal(400, 'Invalid JSON payload received. Unknown name "serviceTier"')
    if request.tool_config and request.tool_config.include_server_side_tool_invocations:
        raise SandboxRefusal(400, 'Invalid JSON payload received. Unknown name "includeServerSideToolInvocations"')


def _check_seal(part: _Part) -> None:
    call, signature = part.function_call, part.thought_signature
    if call is None or signature == SKIPPED:
        return
    if signature is None:
        raise SandboxRefusal(400, f"Function call is missing a thought_signature in functionCall parts: `{call.name}`")
    # Some clients write base64 in the alphabet for URLs, which Google reads as well.
    if not is_signature_of(call.id, signature.replace("-", "+").replace("_", "/")):
        raise SandboxRefusal(400, "Thought signature is not valid.")


def _tool_choice(config: _ToolConfig | None, tools: tuple[SandboxTool, ...]) -> str:
    calling = config.function_calling_config if config else None
    if calling is None or not tools:
        return "auto"
    names = calling.allowed_function_names
    if not {tool.name for tool in tools}.issuperset(names):
        raise SandboxRefusal(400, "allowed_function_names must be a subset of the declared functions.")
    if calling.mode == "ANY" and len(names) == 1:
        return f"={names[0]}"
    return {"ANY": "required", "NONE": "none"}.get(calling.mode, "auto")


def _effort(thinking: _Thinking | None) -> str | None:
    if thinking is None:
        return None
    if thinking.thinking_level and thinking.thinking_budget is not None:
        raise SandboxRefusal(400, "You can only set only one of thinking budget and thinking level.")
    if thinking.thinking_level:
        return _LEVELS[thinking.thinking_level]
    return "medium" if thinking.thinking_budget else None


_FINISHES = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_EXTRA = {"xSandbox": {"note": "an unknown field"}}


def write_reply(answer: SandboxAnswer, scenario: Scenario) -> bytes:
    """Return the body of a plain reply."""
    candidates = [
        _candidate(index, _whole(choice), _FINISHES[choice.finish]) for index, choice in enumerate(answer.choices)
    ]
    return msgspec.json.encode(_envelope(answer, candidates, scenario))


def write_events(answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
    """Return the chunks; the last of each candidate says why it ended. Counts are on every chunk: so far."""
    candidates: list[dict[str, Any]] = []
    for index, choice in enumerate(answer.choices):
        parts = _blobs("audio/L16;codec=pcm;rate=24000", answer.sound) or _parts(choice, scenario)
        candidates += [_candidate(index, [part]) for part in parts]
        candidates.append(_candidate(index, [{"text": ""}], _FINISHES[choice.finish]))
    events: list[bytes] = []
    for place, candidate in enumerate(candidates, 1):
        so_far = replace(answer, usage=_so_far(answer.usage, place, len(candidates)))
        events.append(b"data: " + msgspec.json.encode(_envelope(so_far, [candidate], scenario)) + b"\r\n\r\n")
    return events


def _so_far(usage: SandboxUsage | None, place: int, chunks: int) -> SandboxUsage | None:
    """Return what has been counted with one of the chunks; all of it with the last that says anything."""
    if usage is None or place >= chunks - 1:
        return usage
    written = usage.completion * place // (chunks - 1)
    return replace(usage, completion=written, reasoning=min(usage.reasoning, written), painted=0)


def write_models(names: Iterable[str]) -> bytes:
    """Return the list of models."""
    methods = ["generateContent", "countTokens"]
    models = [{"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods} for name in names]
    return msgspec.json.encode({"models": models})


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return Google's error body."""
    error: dict[str, Any] = {
        "code": refusal.status,
        "message": refusal.message,
        "status": _STATUSES.get(refusal.status, "UNKNOWN"),
    }
    if refusal.code:
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": refusal.code}]
    return msgspec.json.encode({"error": error})


def write_error_event(refusal: SandboxRefusal) -> bytes:
    """Return the error body as an event."""
    return b"data: " + write_error(refusal) + b"\r\n\r\n"


def _envelope(answer: SandboxAnswer, candidates: list[dict[str, Any]], scenario: Scenario) -> dict[str, Any]:
    envelope: dict[str, Any] = {"candidates": candidates}
    if answer.usage:
        envelope["usageMetadata"] = _usage(answer.usage)
    return envelope | {"modelVersion": answer.model, "responseId": answer.id} | (_EXTRA if scenario.extra else {})


def _candidate(index: int, parts: list[dict[str, Any]], finish: str | None = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}}
    return candidate | ({"finishReason": finish} if finish else {}) | {"index": index}


def _whole(choice: SandboxChoice) -> list[dict[str, Any]]:
    thought = [{"text": choice.reasoning, "thought": True}] if choice.reasoning else []
    text = [{"text": choice.text}] if choice.text is not None else []
    return [*thought, *text, *_blobs("image/png", choice.pictures), *_calls(choice)]


def _parts(choice: SandboxChoice, scenario: Scenario) -> Iterator[dict[str, Any]]:
    for piece in scenario.pieces_of(choice.reasoning or ""):
        yield {"text": piece, "thought": True}
    for piece in scenario.pieces_of(choice.text or ""):
        yield {"text": piece}
    yield from _blobs("image/png", choice.pictures)
    yield from _calls(choice)


def _blobs(media_type: str, blobs: Iterable[bytes]) -> list[dict[str, Any]]:
    return [{"inlineData": {"mimeType": media_type, "data": b64encode(blob).decode()}} for blob in blobs]


def _calls(choice: SandboxChoice) -> Iterator[dict[str, Any]]:
    """Yield the calls, whole; the first of them is signed."""
    for place, call in enumerate(choice.calls):
        arguments = msgspec.json.decode(call.arguments)
        part: dict[str, Any] = {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}
        yield part if place else {**part, "thoughtSignature": signature_of(call.id)}


def _usage(usage: SandboxUsage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "promptTokenCount": usage.prompt,
        "candidatesTokenCount": usage.completion - usage.reasoning,
        "totalTokenCount": usage.prompt + usage.completion,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.prompt}],
    }
    if usage.painted:
        words = counts["candidatesTokenCount"] - usage.painted
        details = [{"modality": "TEXT", "tokenCount": words}, {"modality": "IMAGE", "tokenCount": usage.painted}]
        counts["candidatesTokensDetails"] = details
    rest = {"cachedContentTokenCount": usage.cached, "thoughtsTokenCount": usage.reasoning}
    return counts | {name: count for name, count in rest.items() if count}
