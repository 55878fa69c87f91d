"""OpenAI Responses, provider side: the facts of a provider or model that this dialect reads, each with its default.

Knows facts. Must never know who states them. docs/adding-a-dialect.md explains each to those who write data files.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.fact import fact


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes."""

    developer_role: Annotated[bool, fact("takes the role `developer`, which is sent as `system` otherwise")] = False
    temperature: Annotated[bool, fact("takes `temperature` and `top_p`, which are dropped otherwise")] = True
    takes: Annotated[
        frozenset[str],
        fact(
            "what is understood beyond what everybody does: `phase` (of an assistant's message), "
            "`prompt_cache_breakpoint` (what `cache_control` marks)"
        ),
    ] = frozenset()
    unsupported: Annotated[
        frozenset[str],
        fact(
            "what is refused, under the names of OpenAI's chat format: dropped, or refused where the client would miss "
            "it (`logprobs`); besides these `include` (it signs no thinking), `reasoning_summary`, `max_tool_calls`"
        ),
    ] = frozenset()


def flavor_of(target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Flavor)
