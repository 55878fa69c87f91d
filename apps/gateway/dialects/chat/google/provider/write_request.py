"""Google generateContent, provider side: writes a canonical chat as a request body, for an answer or a count of tokens.

Unsupported hints are dropped with a note; a field that would change the answer is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    Effort,
    FunctionTool,
    OpaqueTool,
    Reasoning,
    ReasoningRequest,
    Target,
    ToolChoice,
    WebSearchTool,
)
from apps.gateway.dialects.adapting.emulated_tools import adapt_tool_names
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import (
    UnsupportedSchema,
    add_structured_output_tool,
    described,
    google_schema,
    object_root,
)
from apps.gateway.dialects.adapting.stop_sequences import fit_stop_sequences
from apps.gateway.dialects.adapting.thinking import nearest_effort, note_effort
from apps.gateway.dialects.adapting.unsupported_fields import (
    note_dropped,
    note_unsupported_fields,
    note_unsupported_hints,
    repair_tool_results,
    unsupported_feature,
)
from apps.gateway.dialects.chat.google.provider.write_contents import (
    ALLOWED_NAMES,
    MAX_NAME_LENGTH,
    merged,
    pass_on,
    passes,
    write_contents,
    write_name,
)
from apps.gateway.dialects.chat.google.wire import (
    NAME,
    SIGNATURE_FORMAT,
    Capabilities,
    capabilities_of,
    encode,
    without_none,
)
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest


def write_tools(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return the fields that say which tools there are and whether they are called. Raises InvalidRequest."""
    tools = chat.tools or []
    functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
    foreign = [tool for tool in tools if isinstance(tool, OpaqueTool)]
    if any(tool.dialect != NAME for tool in foreign):
        raise _refused("A tool is of a kind that this model's provider does not have", "tools")
    if functions and chat.parallel_tool_calls is False:
        note_dropped(chat, target, "parallel_tool_calls", "the model has no way to call one tool at a time")
    ours = chat.dialect == NAME
    declared = [_function(tool, ours=ours) for tool in functions]
    wire: list[Record] = [{"functionDeclarations": declared}] if functions else []
    wire += [dict(tool.data) for tool in foreign]
    config: Record = {}
    if _wants_search(chat, target):
        wire.append({"googleSearch": _own_search(chat)})
        if functions and not ours:
            # Clients of this format say themselves whether they can handle what the search did.
            if "search_with_tools" not in capabilities.takes:
                raise _refused("A web search cannot be combined with functions for this model", "tools")
            config["includeServerSideToolInvocations"] = True
    if functions:
        strict = any(tool.strict for tool in functions)
        config |= without_none(functionCallingConfig=_choice(chat.tool_choice, strict=strict))
    return without_none(tools=wire or None, toolConfig=config or None)


def _function(tool: FunctionTool, *, ours: bool) -> Record:
    own = tool.extra if ours and tool.extra else {}
    return own | without_none(
        name=write_name(tool.name),
        description=tool.description,
        parametersJsonSchema=object_root(tool.parameters),
    )


def _own_search(chat: Chat) -> Record:
    """Return what only Google's search understands, in the words of a client of this format."""
    found = next((tool.extra for tool in chat.tools or () if isinstance(tool, WebSearchTool)), None)
    return found if found and chat.dialect == NAME else {}


def _wants_search(chat: Chat, target: Target) -> bool:
    """Return whether a web search is asked for; how it is limited is noted, as Google's takes no limits."""
    asked = [(at, tool) for at, tool in enumerate(chat.tools or ()) if isinstance(tool, WebSearchTool)]
    for at, tool in asked:
        for name in ("user_location", "search_context_size", "max_uses"):
            if getattr(tool, name) is not None:
                target.note_dropped(f"tools[{at}].{name}", "the provider's web search does not take it")
    return bool(asked) or chat.web_search


def _choice(choice: ToolChoice | None, *, strict: bool) -> Record | None:
    """Return how functions are called; arguments are bound to the schema where one of them is strict."""
    mode = choice.mode if choice else "auto"
    if mode == "none":
        return {"mode": "NONE"}
    names: tuple[Any, ...] = choice.allowed if choice else ()
    if choice and mode == "named":
        names = (choice.name,)
    allowed = [write_name(name) for name in names] or None
    if mode != "auto":
        return without_none(mode="ANY", allowedFunctionNames=allowed)
    if allowed or strict:
        return without_none(mode="VALIDATED", allowedFunctionNames=allowed)
    return {"mode": "AUTO"} if choice else None


def _refused(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_feature", param=param)


# Hints and bookkeeping that the format has no words for.
_HINTS = ("logit_bias", "verbosity", "prediction", "store", "prompt_cache_key", "user", "metadata")


def drop_unsupported_fields(chat: Chat, capabilities: Capabilities, target: Target) -> Chat:
    """Return the chat without what Google does not support; dropped fields are noted."""
    if not chat.is_plain:
        chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=True)
    note_unsupported_fields(chat, target, NAME, marks=False, names=False, details=False, thinking=_goes_back(chat))
    note_unsupported_hints(chat, target, *_HINTS)
    chat = adapt_tool_names(_with_objects(chat), target, ALLOWED_NAMES, MAX_NAME_LENGTH)
    form = chat.response_format
    if form is not None and form.kind == "json_schema" and target.facts.get("structured_outputs") == "tool":
        chat = add_structured_output_tool(chat, target)
    asked = chat.reasoning or ReasoningRequest()
    if chat.effort is not None and asked.effort is None and asked.max_tokens is None:
        if capabilities.reasoning_efforts or capabilities.reasoning_budget is not None:
            return replace(chat, reasoning=replace(asked, effort=chat.effort))
        note_dropped(chat, target, "effort", "not available from this model's provider")
    return chat


def _goes_back(chat: Chat) -> Callable[[Reasoning], bool]:
    """Return which thinking goes back: what Google signed, and all that was said in its own format."""
    if chat.dialect == NAME:
        return lambda block: block.format in (None, SIGNATURE_FORMAT)
    return lambda block: block.signature is not None and block.format == SIGNATURE_FORMAT


def _with_objects(chat: Chat) -> Chat:
    for at, tool in enumerate(chat.tools or ()):
        if isinstance(tool, FunctionTool):
            try:
                object_root(tool.parameters)
            except UnsupportedSchema:
                raise unsupported_feature(
                    chat, f"tools[{at}]", "A function's parameters must be an object for this model's provider"
                ) from None
    return chat


MAX_STOPS, MAX_SEED = 5, 2**31 - 1

# Tokens of thinking for an effort, where a model takes a budget; kept within the bounds of the model.
_BUDGETS: Final[dict[Effort, int]] = {
    "none": 0,
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 65_536,
    "max": 65_536,
}
_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh")
_TIERS: Final = {
    "standard_only": "standard",
    "default": "standard",
    "standard": "standard",
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
}
_IMAGE_OPTIONS: Final = {"aspect_ratio": "aspectRatio", "image_size": "imageSize"}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    method = "streamGenerateContent?alt=sse" if chat.stream else "generateContent"
    return f"/models/{quote(target.model_name)}:{method}"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    wire = write_fields(chat, target)
    if wire.pop("labels", None) is not None:
        target.note_dropped("labels", "not available from this model's provider")
    return encode(wire)


def write_fields(chat: Chat, target: Target) -> Record:
    """Return the fields of the body, those of Google Cloud alone included. Raises InvalidRequest as `write_request`.

    The body of a client of this format passes through, unless something in it has to be changed.
    """
    capabilities = capabilities_of(target)
    chat = drop_unsupported_fields(chat, capabilities, target)
    tools = write_tools(chat, capabilities, target)
    known = len(target.dropped_fields)
    sampling, rest = _sampling(chat, target), _image_fields(chat) | _thinking(chat, capabilities, target)
    if chat.source is not None and len(target.dropped_fields) == known and passes(chat, capabilities):
        return pass_on(chat, chat.source.body)
    ours = chat.dialect == NAME
    instructions, contents = write_contents(chat.messages, signed=capabilities.requires_signatures, ours=ours)
    config = sampling | _form(chat, target) | rest
    wire = without_none(
        systemInstruction={"parts": instructions} if instructions else None,
        contents=contents,
        **tools,
        generationConfig=config or None,
        serviceTier=_tier(chat, target),
    )
    return merged(wire, chat.extra) if ours and chat.extra else wire


def _sampling(chat: Chat, target: Target) -> Record:
    if chat.dialect == NAME and chat.stop is not None and len(chat.stop) > MAX_STOPS:
        raise unsupported_feature(chat, "stop", f"This model's provider takes at most {MAX_STOPS} stop sequences")
    seed = chat.seed
    if seed is None and chat.image_config:
        seed = chat.image_config.get("seed")
    if seed is not None and not -MAX_SEED <= seed <= MAX_SEED:
        note_dropped(chat, target, "seed", "this model's provider takes a seed of 32 bits")
        seed = None
    temperature = chat.temperature
    if temperature is not None and target.facts.get("temperature") is False:
        if temperature != 1:
            note_dropped(chat, target, "temperature", "the model chooses its words alone")
        temperature = None
    return without_none(
        maxOutputTokens=chat.max_tokens,
        temperature=temperature,
        topP=chat.top_p,
        # OpenAI-alikes write -1 for "all of them".
        topK=None if chat.top_k == -1 else chat.top_k,
        candidateCount=chat.n,
        stopSequences=fit_stop_sequences(chat, target, MAX_STOPS) or None,
        seed=seed,
        presencePenalty=chat.presence_penalty,
        frequencyPenalty=chat.frequency_penalty,
        responseLogprobs=chat.logprobs,
        logprobs=chat.top_logprobs,
    )


def _form(chat: Chat, target: Target) -> Record:
    """Return the form that the answer must have; what of a schema the answer is not bound to is noted."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return {}
    schema = form.schema
    if schema is not None:
        schema, unbound = google_schema(described(schema, form))
        if unbound:
            note_dropped(
                chat, target, "response_format", f"the answer is not bound to {', '.join(unbound)} of its schema"
            )
    return without_none(responseMimeType="application/json", responseJsonSchema=schema)


def _image_fields(chat: Chat) -> Record:
    """Return which modalities the answer has, and of which kind its images are."""
    if chat.audio is not None and "audio" in (chat.modalities or ()):
        raise unsupported_feature(chat, "audio", "The audio of this model's provider cannot be chosen")
    asked = {name: value for name, value in (chat.image_config or {}).items() if value is not None and name != "seed"}
    if asked.pop("n", 1) != 1:
        raise unsupported_feature(
            chat, "image_config", "This model's provider makes one image for an answer; ask for several answers"
        )
    unknown = asked.keys() - _IMAGE_OPTIONS.keys()
    if unknown:
        raise unsupported_feature(chat, "image_config", f"This model's provider takes no {min(unknown)} of images")
    config = {_IMAGE_OPTIONS[name]: value for name, value in asked.items()}
    modalities = chat.modalities or (["text", "image"] if config else None)
    return without_none(
        responseModalities=[modality.upper() for modality in modalities] if modalities else None,
        imageConfig=config or None,
    )


def _thinking(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return how much to think: a budget where tokens are named or the model takes nothing else, or a level."""
    asked = chat.reasoning
    if asked is None:
        return {}
    config: Record = {}
    if asked.max_tokens is not None:
        config["thinkingBudget"] = _exact_budget(asked.max_tokens, chat, capabilities, target)
    elif asked.effort is not None and capabilities.thinking == "budget":
        config["thinkingBudget"] = _budget(asked.effort, capabilities.reasoning_budget or {})
    elif asked.effort is not None:
        effort = nearest_effort(asked.effort, capabilities.reasoning_efforts or _LEVELS)
        if effort != asked.effort:
            note_effort(asked.effort, effort, chat, target)
        config["thinkingLevel"] = effort.upper()
    if not asked.exclude and config.get("thinkingBudget") != 0:
        config["includeThoughts"] = True
    return {"thinkingConfig": config} if config else {}


def _exact_budget(tokens: int, chat: Chat, capabilities: Capabilities, target: Target) -> int:
    """Return the tokens that the client names, or the nearest that the model takes."""
    bounds = capabilities.reasoning_budget or {}
    sent = max(min(tokens, bounds.get("max", tokens)), bounds.get("min", 1))
    if sent != tokens:
        note_dropped(chat, target, "reasoning.max_tokens", f"sent as {sent}, as near as the model goes")
    return sent


def _budget(effort: Effort, bounds: dict[str, int]) -> int:
    """Return the tokens that an effort stands for; none at all is always 0, whatever the model's least."""
    tokens = _BUDGETS[effort]
    if effort == "none":
        return tokens
    return max(min(tokens, bounds.get("max", tokens)), bounds.get("min", 1))


def _tier(chat: Chat, target: Target) -> str | None:
    tier = chat.service_tier
    if tier is None or tier == "auto":
        return None
    if tier not in _TIERS:
        note_dropped(chat, target, "service_tier", "the provider does not have this tier")
    return _TIERS.get(tier)


_MAX_COUNT = 10**9
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`.

    The whole request stands under a name of its own: beside it, instructions and tools are not taken.
    """
    asked = {"model": f"models/{target.model_name}", **_read_fields(write_request(chat, target))}
    return f"/models/{quote(target.model_name)}:countTokens", encode({"generateContentRequest": asked})


def read_count(body: bytes) -> int | None:
    """Return the tokens that were counted; None for an answer that does not say."""
    try:
        count = msgspec.json.decode(body, type=_Count).total
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return count if 0 <= count <= _MAX_COUNT else None


class _Count(msgspec.Struct):
    total: int = msgspec.field(name="totalTokens")
