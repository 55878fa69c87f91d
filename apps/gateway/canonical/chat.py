"""Canonical request: a chat of typed parts, with opaque provider data beside them so that nothing is lost.

With it goes what the client says about how it is served: routing preferences, service tier and region.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from apps.gateway.canonical.task_options import Embedding, ImageRequest, Moderation, Reranking, Speech, Transcription

# Retries after the first attempt: no client is given more.
MAX_RETRIES = 3

SortBy = Literal["price", "throughput", "latency"]


class MaxPrice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that a model may charge: USD per million tokens of the prompt and of the completion, USD for a request
    and for an image; None is any price."""

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None
    image: Decimal | None = None


class RoutingPreferences(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client's wishes. `models` are asked in this order when the one named before them fails.

    `order`, `only` and `ignore` name providers, in lower case. Without `allow_fallbacks` one provider of a model is
    tried, or those of `order`. `require_parameters` passes over providers that would leave a field out.
    `zero_data_retention` and `no_data_collection` are promises that a provider must have given.
    """

    models: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    sort: SortBy | None = None
    allow_fallbacks: bool = True
    require_parameters: bool = False
    zero_data_retention: bool = False
    no_data_collection: bool = False
    max_price: MaxPrice | None = None
    # Retries of a model, at most `MAX_RETRIES`; None is as many as usual.
    retries: int | None = None
    # Seconds that each call of a provider may take; None is as long as usual.
    timeout: float | None = None
    # The conversation, for the prompt cache of its provider.
    session: str | None = None
    # Words under which the request is logged.
    tags: tuple[str, ...] = ()

    @property
    def steers(self) -> bool:
        """Whether it says which providers shall answer, so that a provider in the model's name no longer does."""
        return bool(self.order or self.only or self.ignore or self.sort)


Role = Literal["system", "developer", "user", "assistant", "tool"]
# The kinds of requests; each is a module of `tasks`.
TaskName = Literal["chat", "completions", "embeddings", "images", "moderations", "rerank", "speech", "transcription"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class CacheMark(msgspec.Struct, frozen=True):
    """The prompt up to here may be cached by the provider; `ttl` is the provider's word (`5m`, `1h`)."""

    ttl: str | None = None


class Piece(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The base of all parts: a cache mark, and fields that only the part's own wire format understands."""

    cache: CacheMark | None = None
    extra: dict[str, Any] | None = None


class Text(Piece):
    """Plain text."""

    text: str


class Image(Piece):
    """An image by URL (`https:` or `data:`); `detail` is `low`, `high` or `auto`."""

    url: str
    detail: str | None = None


class Audio(Piece):
    """Sound, base64; `format` is `wav`, `mp3`, …"""

    data: str
    format: str


class File(Piece):
    """A document: a data URL or base64 (`data`), an address (`url`), or the provider's own id (`file_id`)."""

    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    media_type: str | None = None


class Reasoning(Piece):
    """A model's thinking. `signature` proves it to its maker; `data` is thinking that only its maker can read.

    `summary` tells that the text only sums the thinking up; `format` names the maker's way of signing it.
    """

    text: str = ""
    summary: bool = False
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    format: str | None = None


class Refusal(Piece):
    """The model's words for declining."""

    text: str


class ToolCall(Piece):
    """A call the model made. `arguments` stay the text that the model wrote, valid JSON or not."""

    id: str
    name: str
    arguments: str


class ToolResult(Piece):
    """A tool's answer to the call `call_id`.

    `json_field`: the tool answered with an object; the text is the JSON of its field of that name, "" of all of it.
    """

    call_id: str
    parts: list[Part]
    name: str | None = None
    is_error: bool = False
    json_field: str | None = None


class Opaque(Piece):
    """A part that only the wire format `dialect` understands; sent on where that format is spoken, else dropped."""

    dialect: str
    data: Any


Part = Text | Image | Audio | File | Reasoning | Refusal | ToolCall | ToolResult | Opaque


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One turn. A `tool` message holds one `ToolResult`; an `assistant` message's calls are parts like its text."""

    role: Role
    parts: list[Part]
    name: str | None = None
    extra: dict[str, Any] | None = None


class FunctionTool(Piece):
    """A function the model may call; `parameters` is a JSON schema, None when none was given."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class WebSearchTool(Piece):
    """The provider's own web search."""

    user_location: dict[str, Any] | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    max_uses: int | None = None


class OpaqueTool(Piece):
    """A tool that only the wire format `dialect` understands."""

    dialect: str
    data: Any


Tool = FunctionTool | WebSearchTool | OpaqueTool


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether tools are called: as the model likes, never, at least one, or the one named.

    `allowed` names the tools to choose from when these are not all. `server_tool` is the tool that must be called of
    the MCP server `name`.
    """

    mode: Literal["auto", "none", "required", "named"]
    name: str | None = None
    allowed: tuple[str, ...] = ()
    server_tool: str | None = None


class ResponseFormat(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The form the answer must have."""

    kind: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ReasoningRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much to think: an effort, or exactly so many tokens (which overrides the effort).

    `summary` says how much the client wants to read of it, in OpenAI's words.
    """

    effort: Effort | None = None
    max_tokens: int | None = None
    exclude: bool | None = None
    summary: str | None = None


class Source(msgspec.Struct, frozen=True):
    """The bytes a request was read from and their format: sent on as they are where the same format is spoken."""

    dialect: str
    body: bytes


# Parts that only some formats have, or each in its own way.
_ADAPTED: Final = (Reasoning, ToolCall, ToolResult, Opaque)
# Fields of a chat that ask for more than text in answer to text: capabilities, prices or other work of a provider.
SPECIAL_FIELDS: Final = (
    *("n", "logprobs", "top_logprobs", "response_format", "tools", "tool_choice", "parallel_tool_calls"),
    *("reasoning", "effort", "web_search", "free_models_only", "no_reasoning", "plugins", "image_config"),
    *("service_tier", "modalities", "audio", "prediction", "extra", "task", "image_request", "embedding", "reranking"),
    *("moderation", "speech", "transcription", "betas", "preferences", "echo"),
)
_read_special = attrgetter(*SPECIAL_FIELDS)


class Chat(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """A request for an answer. None is "not said" and is never sent on.

    `model` is as the client wrote it. `extra` holds top-level fields that the client's format does not define; it, like
    the `extra` of every part, message and tool, is meant for `dialect`, the format that the request was read from.
    `source` is dropped (None) as soon as the gateway changes anything that the bytes also say.
    """

    model: str
    messages: list[Message]
    stream: bool = False
    include_usage: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: list[str] | None = None
    seed: int | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningRequest | None = None
    # The `effort` option of models that take one beside reasoning.
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    web_search: bool = False
    free_models_only: bool = False
    no_reasoning: bool = False
    plugins: list[str] | None = None
    image_config: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    verbosity: str | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
    store: bool | None = None
    extra: dict[str, Any] | None = None
    dialect: str | None = None
    source: Source | None = None
    # The kind of request, and what only this kind can say.
    task: TaskName = "chat"
    image_request: ImageRequest | None = None
    embedding: Embedding | None = None
    reranking: Reranking | None = None
    moderation: Moderation | None = None
    speech: Speech | None = None
    transcription: Transcription | None = None
    # Previews of `dialect` that the client switched on beside the body; not part of what it said.
    betas: list[str] | None = None
    # The client's routing preferences, where it states any.
    preferences: RoutingPreferences | None = None

    dropped_fields: list[DroppedField] | None = None
    # Whether `usage` tells what makes up the cost.
    usage_details: bool = False
    # Whether the answer begins with the prompt (legacy completions).
    echo: bool = False
    # Whether the client reads the answer's `metadata` as strings only.
    metadata_as_text: bool = False

    @property
    def answers(self) -> int:
        """How many answers are asked for in all: each message of legacy completions is a prompt of its own."""
        return (self.n or 1) * (len(self.messages) if self.task == "completions" else 1)

    @cached_property
    def kinds(self) -> frozenset[type[Piece]]:
        """The kinds of parts that messages hold, looked for once: messages are only ever replaced with their chat."""
        kinds: set[type[Piece]] = set()
        for message in self.messages:
            kinds.update(map(type, message.parts))
        return frozenset(kinds)

    @cached_property
    def is_plain(self) -> bool:
        """Whether messages are text and media from beginning to end, without tools and a form of the answer: nothing in
        it has to be emulated, renamed, paired or left out for a provider of another format."""
        if self.tools or self.response_format is not None or not self.kinds.isdisjoint(_ADAPTED):
            return False
        # A system message may change how the conversation goes on (`dialects/adapting/foreign_blocks.py`).
        return not any(message.extra and message.role == "system" for message in self.messages)

    @cached_property
    def is_simple_text(self) -> bool:
        """Whether it asks for text in answer to text and for nothing else: a provider that can chat at all can answer
        it, at the prices of its text, and a step that looks for anything special finds nothing."""
        # An ending of the model's name may yet ask for more (`routing/preferences.py`).
        if _read_special(self) != _NOTHING_SPECIAL or ":" in self.model:
            return False
        for message in self.messages:
            if message.name is not None or message.extra is not None:
                return False
            for part in message.parts:
                if type(part) is not Text or part.cache is not None or part.extra is not None:
                    return False
        return True

    @cached_property
    def cache_lifetime(self) -> str:
        """How long a provider is asked to keep parts of the prompt: the longest that a mark says (`5m` or `1h`), empty
        where nothing is marked."""
        marks = {piece.cache for message in self.messages for piece in message.parts}
        marks.update(tool.cache for tool in self.tools or ())
        whole = self.extra.get("cache_control") if self.extra is not None else None
        lifetimes = {mark.ttl or "5m" for mark in marks if mark is not None}
        if isinstance(whole, dict):
            lifetimes.add("1h" if whole.get("ttl") == "1h" else "5m")
        return "1h" if "1h" in lifetimes else "5m" if lifetimes else ""


_NOTHING_SPECIAL: Final = _read_special(Chat(model="", messages=[]))

# Dropped fields that are reported for a request: each of ten thousand would take seconds, and help no client.
MAX_DROPPED_FIELDS = 200


class DroppedField(msgspec.Struct, frozen=True):
    """Something asked for that is not sent on: the client's field (`top_k`, `messages[3].content[1]`), and why."""

    param: str
    message: str


class StopEmulation(msgspec.Struct, frozen=True):
    """The stop sequences before which an answer is cut here. A call of a stream is ended with the last choice's cut."""

    sequences: tuple[str, ...]
    streamed: bool = False
    choices: int = 1


class EmulatedTool(msgspec.Struct, frozen=True):
    """A tool that a function stands for: the client's name of it, its namespace, and whether it takes free text."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Rewrites(msgspec.Struct):
    """How a request was changed so that its answer has to be changed back (`dialects/adapting/undo_rewrites.py`).

    `tool_names`: a tool's name as it was sent -> the client's. `hidden_tool`: the tool whose arguments are the answer's
    text; where it is `wrapped_in_value`, only their field `value`. `healing`: JSON was asked for in words, so that it
    may need repair. `stop`: the provider takes no stop sequences.
    """

    tool_names: dict[str, str] = {}
    hidden_tool: str | None = None
    wrapped_in_value: bool = False
    healing: bool = False
    # Functions that stand for tools of another kind, by the names under which they are sent.
    emulated: dict[str, EmulatedTool] = {}
    stop: StopEmulation | None = None


_NO_REWRITES: Final = Rewrites()


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes, as far as a dialect may know: the model's name there and the facts of the data file.

    While the request is written, `dropped_fields` fills up with what the format or the provider cannot take, and
    `rewrites` with what the answer will have to be changed back in.
    """

    model_name: str
    facts: dict[str, Any]
    max_output: int | None = None
    # Searches of the web that are held for where the client limits them by nothing; None where they need no limit.
    max_searches: int | None = None
    dropped_fields: list[DroppedField] = []
    rewrites: Rewrites = msgspec.field(default_factory=Rewrites)

    @property
    def has_rewrites(self) -> bool:
        """Whether the answer has to be changed back in anything."""
        return self.rewrites != _NO_REWRITES

    def note_dropped(self, param: str, why: str) -> None:
        """Note that a field is left out; once is enough, and so is the first of very many."""
        dropped = DroppedField(param, why)
        if len(self.dropped_fields) < MAX_DROPPED_FIELDS and dropped not in self.dropped_fields:
            self.dropped_fields.append(dropped)


# Service tiers: every vendor has words of its own for the same ones; prices know them by one name each.
AUTO_TIER: Final = "auto"
USUAL_TIER: Final = "default"
# Anthropic's `speed`: prices know it as a tier of service.
FAST_TIER: Final = "fast"
# Words for the default. Capacity paid in advance (Anthropic's `priority`, Google's provisioned throughput) has no other
# price for a token, and a batch has its own share of all of them.
_USUAL_WORDS: Final = frozenset(
    {"default", "standard", "standard_only", "on_demand", "provisioned_throughput", "batch"}
)
# OpenAI calls its priority processing fast mode since July 2026, and takes both words.
_ALIASES: Final = {"fast": "priority"}


def asked_service_tier(chat: Chat) -> str:
    """Return the tier that a chat asks for by name; empty for the usual one and for whichever the provider chooses."""
    tier = chat.service_tier
    if chat.extra is not None and chat.dialect == "anthropic" and chat.extra.get("speed") == FAST_TIER:
        return FAST_TIER
    if tier is None or tier == AUTO_TIER or tier in _USUAL_WORDS:
        return ""
    return _ALIASES.get(tier, tier)


def asked_region(chat: Chat) -> str:
    """Return the region in which alone a chat asks to be answered; empty for any."""
    if chat.extra is None or chat.dialect != "anthropic":
        return ""
    region = chat.extra.get("inference_geo")
    return region if isinstance(region, str) and region != "global" else ""


def served_tier(word: Any) -> str:
    """Return the tier that an answer names; empty where it names none."""
    if not isinstance(word, str) or not word:
        return ""
    word = word.lower()
    return USUAL_TIER if word in _USUAL_WORDS else _ALIASES.get(word, word)[:40]
