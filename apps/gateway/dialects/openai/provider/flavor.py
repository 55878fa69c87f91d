"""How a provider's flavor of OpenAI's format differs: the facts that this dialect reads, each with what it is unstated.

Knows facts. Must never know who states them. docs/adding-a-dialect.md explains each to those who write data files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.openai.shared.wire import NAME
from apps.kernel.identity_cache import IdentityCache

CallIds: TypeAlias = Literal["any", "short", "nine_alphanumerics"]


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider takes. What nothing is known about gets what every OpenAI-alike understands."""

    # The name of the limit on the answer, whichever of the two the client used.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    # Whether `stream_options` is understood; without it a provider reports usage unasked, or not at all.
    stream_usage: bool = True
    # Whether the role `developer` is understood; it is `system` otherwise.
    developer_role: bool = False
    # The field in which an assistant's message brings its thinking back; `content`: as parts of the kind `thinking`.
    reasoning_field: Literal["reasoning", "reasoning_content", "content"] | None = None
    # How thinking is switched on and off: by an effort, by `thinking: {type}` (with an effort where the model knows
    # efforts), or by `enable_thinking` and a `thinking_budget`.
    thinking_switch: Literal["reasoning_effort", "thinking", "enable_thinking"] = "reasoning_effort"
    # The efforts that a model knows, and the bounds in tokens (`min`, `max`) of one that takes a budget.
    reasoning_efforts: tuple[str, ...] = ()
    reasoning_budget: dict[str, int] | None = None
    # Whether a model that has to call a tool cannot think: it is told not to.
    forced_choice_unthinking: bool = False
    # The ways of choosing tools that are understood. Where `none` is not, no tools are sent.
    tool_choices: frozenset[str] = frozenset({"auto", "none", "required", "named"})
    # The form of a tool call's id: any, at most 40 characters, or exactly nine letters and digits.
    tool_call_ids: CallIds = "short"
    # Whether messages may have names.
    message_names: bool = True
    # Whether a user may speak right after a tool; else the model says a word in between.
    speaks_after_tools: bool = True
    # The field that marks a last message of the assistant's as one to go on with; without it there is none.
    prefill_field: Literal["prefix", "partial"] | None = None
    # The form of documents and sound: OpenAI's, or `document_url` and base64 alone.
    media_parts: Literal["openai", "flat"] = "openai"
    # The name of the seed.
    seed_field: Literal["seed", "random_seed"] = "seed"
    # Whether a field that is not known is refused: what only the client's format understands is left out.
    strict: bool = False
    # Fields that are sent where the client does not state them.
    adds: dict[str, Any] = {}
    # Fields beyond OpenAI's that are understood as we have them: of a request (`reasoning`, `plugins`, `image_config`,
    # `web_search`, `web_search_options`), of a message (`reasoning_details`, `images`), of a part (`cache_control`).
    takes: frozenset[str] = frozenset()
    # Fields of OpenAI's that are refused: left out.
    unsupported: frozenset[str] = frozenset()
    # Whether the chat was read from this format: what it keeps as `extra` belongs here.
    ours: bool = False

    @property
    def rewrites(self) -> bool:
        """Whether a request is always written anew, never passed on as it came."""
        return self.strict or self.reasoning_field == "content" or self.media_parts == "flat"


def flavor_of(chat: Chat, target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    facts = target.facts
    return (_ours if chat.dialect == NAME and not facts.get("strict", False) else _others)(facts)


def _read(facts: Mapping[str, Any], *, ours: bool) -> Flavor:
    return msgspec.convert({**facts, "ours": ours}, Flavor)


_ours, _others = IdentityCache(partial(_read, ours=True)), IdentityCache(partial(_read, ours=False))
