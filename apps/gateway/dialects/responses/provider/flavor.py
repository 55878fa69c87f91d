"""How a provider's flavor of the Responses format differs: the facts that this dialect reads, each with what it is
unstated.

Knows facts. Must never know who states them. docs/adding-a-dialect.md explains each to those who write data files.
"""

from __future__ import annotations

import msgspec

from apps.gateway.canonical.chat import Target


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes."""

    # Whether the role `developer` is understood; it is `system` otherwise.
    developer_role: bool = False
    # Whether the model can be told how to choose its words: by `temperature` and `top_p`.
    temperature: bool = True
    # What is understood beyond what everybody does: `phase` (of an assistant's message), `prompt_cache_breakpoint`.
    takes: frozenset[str] = frozenset()
    # What is refused: left out. Fields as OpenAI's chat format names them, and `include`, `reasoning_summary`.
    unsupported: frozenset[str] = frozenset()


def flavor_of(target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Flavor)
