"""OpenAI Chat Completions, provider side: writes requests, reads answers and failures.

Here are the facts that a data file may state of a provider or model; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import fact
from apps.gateway.dialects.chat.openai.wire import NAME
from apps.kernel.concurrency.identity_cache import IdentityCache

CallIds: TypeAlias = Literal["any", "short", "nine_alphanumerics"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a provider of this dialect. The defaults fit most OpenAI-alikes."""

    max_tokens_field: Annotated[
        Literal["max_tokens", "max_completion_tokens"],
        fact("the name of the limit on the answer, whichever of the two the client uses"),
    ] = "max_tokens"
    stream_usage: Annotated[
        bool, fact("takes `stream_options`; without it usage is reported unasked or not at all")
    ] = True
    developer_role: Annotated[bool, fact("takes the role `developer`, which is sent as `system` otherwise")] = False
    reasoning_field: Annotated[
        Literal["reasoning", "reasoning_content", "content", "any"] | None,
        fact(
            "the field of an assistant's message that brings its reasoning back; `content`: as parts of the kind "
            "`thinking`, before the text; `any`: it is not known, so the client's field stays, and "
            "`reasoning_content` says the same"
        ),
    ] = None
    reasoning_required: Annotated[
        Literal["calls", "answers"] | None,
        fact(
            "an earlier answer without that field is refused, `calls`: where it has tool calls, `answers`: always; "
            "where the client did not keep its reasoning, a blank is sent"
        ),
    ] = None
    thinking_switch: Annotated[
        Literal["reasoning_effort", "thinking", "enable_thinking"],
        fact(
            "how reasoning is switched on and off: by an effort; by `thinking`, `{type}`, with an effort where "
            "`reasoning_efforts` are stated; by `enable_thinking`, with a `thinking_budget` for an exact number of "
            "tokens, or for an effort below `high` where a `reasoning_budget` is stated"
        ),
    ] = "reasoning_effort"
    reasoning_efforts: Annotated[
        tuple[str, ...],
        fact("the efforts that the model knows: any other is sent as the nearest, with a note", default="as it comes"),
    ] = ()
    reasoning_budget: Annotated[
        dict[str, int] | None, fact("bounds in tokens (`min`, `max`) of a model that takes a budget for reasoning")
    ] = None
    forced_choice_unthinking: Annotated[
        bool, fact("a model that has to call a tool cannot reason: reasoning is switched off")
    ] = False
    tool_choices: Annotated[
        frozenset[Literal["auto", "none", "required", "named"]],
        fact(
            "the tool choices that are understood; for `none` no tools are sent, the others are refused",
            default="all four",
        ),
    ] = frozenset({"auto", "none", "required", "named"})
    tool_call_ids: Annotated[
        CallIds,
        fact(
            "the form of tool call ids: `any`, at most 40 characters, or nine letters and digits. An id that does not "
            "fit becomes its digest, the same in call and result"
        ),
    ] = "short"
    message_names: Annotated[bool, fact("messages may have names, which are dropped otherwise")] = True
    speaks_after_tools: Annotated[
        bool, fact("a user may speak right after a tool; otherwise the model says `OK` in between")
    ] = True
    prefill_field: Annotated[
        Literal["prefix", "partial"] | None,
        fact("the field that marks a last message of the assistant's as one to continue"),
    ] = None
    media_parts: Annotated[
        Literal["openai", "flat"],
        fact("`flat`: a document is a `document_url` with a `document_name`, audio is base64 alone"),
    ] = "openai"
    seed_field: Annotated[Literal["seed", "random_seed"], fact("the name of the seed")] = "seed"
    strict: Annotated[
        bool,
        fact(
            "unknown fields are refused: nothing passes as it came, and what only the client's format knows is dropped "
            "unless `takes` names it"
        ),
    ] = False
    adds: Annotated[dict[str, Any], fact("fields that are sent where the client does not state them")] = {}
    takes: Annotated[
        frozenset[str],
        fact(
            "features beyond OpenAI's format: of a request `reasoning`, `effort`, `plugins`, `image_config`, "
            "`web_search`, `web_search_options`; of a message `reasoning_details`, `images`; of parts and tools "
            "`cache_control`; of a call `extra_content`; and any field of the provider's own"
        ),
    ] = frozenset()
    unsupported: Annotated[
        frozenset[str],
        fact("OpenAI's fields that are refused: dropped with a note, or refused where the client would miss them"),
    ] = frozenset()


class Capabilities(Facts, frozen=True, kw_only=True):
    """The facts of a provider, as they apply to one chat."""

    # Whether the chat was read from this format: what it keeps as `extra` belongs here.
    same_dialect: bool = False

    @property
    def must_rewrite(self) -> bool:
        """Whether a request is always rewritten, never passed on as it came."""
        return self.strict or self.reasoning_field == "content" or self.media_parts == "flat"


def capabilities_of(chat: Chat, target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    facts = target.facts
    return (_same_dialect if chat.dialect == NAME and not facts.get("strict", False) else _other_dialect)(facts)


def _read(facts: Mapping[str, Any], *, same_dialect: bool) -> Capabilities:
    return msgspec.convert({**facts, "same_dialect": same_dialect}, Capabilities)


_same_dialect, _other_dialect = (
    IdentityCache(partial(_read, same_dialect=True)),
    IdentityCache(partial(_read, same_dialect=False)),
)
