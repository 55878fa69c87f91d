"""OpenAI Responses, provider side: writes requests, reads answers and failures.

Here are the facts that a data file may state of a provider or model; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects import fact


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    developer_role: Annotated[bool, fact("takes the role `developer`, which is sent as `system` otherwise")] = False
    temperature: Annotated[bool, fact("takes `temperature` and `top_p`, which are dropped otherwise")] = True
    model_field: Annotated[
        Literal["model", "preset"],
        fact("the field with the model's name: a `preset` bundles a model with instructions and tools"),
    ] = "model"
    strict: Annotated[
        bool,
        fact("unknown fields are refused: what only OpenAI's own servers know is dropped unless `takes` names it"),
    ] = False
    form_field: Annotated[
        Literal["text", "response_format"],
        fact("the field with the form of the answer; `response_format` is written as in OpenAI's chat format"),
    ] = "text"
    search_limits: Annotated[
        Literal["openai", "domain_filter"],
        fact(
            "how a web search is limited: by `allowed_domains` and an approximate `user_location`, or by a "
            "`search_domain_filter`, which also leaves domains out, by dates, and by a `user_location` without a type"
        ),
    ] = "openai"
    always_searches: Annotated[
        bool,
        fact("the web is searched for each answer, asked or not: a search is added, and demanded beside no other tool"),
    ] = False
    adds: Annotated[dict[str, Any], fact("fields that are sent where the client does not state them")] = {}
    takes: Annotated[
        frozenset[str],
        fact(
            "fields beyond the common ones: `phase` (of an assistant's message), "
            "`prompt_cache_breakpoint` (what `cache_control` marks), and any field of the provider's own"
        ),
    ] = frozenset()
    unsupported: Annotated[
        frozenset[str],
        fact(
            "unsupported fields, by OpenAI's chat format's names: dropped, or refused where the client would miss "
            "it (`logprobs`); besides these `include` (it signs no thinking), `reasoning_summary`, `max_tool_calls`"
        ),
    ] = frozenset()


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
