"""How a model or provider of Cohere's format differs: the facts that this dialect reads, each with what it is unstated.

Knows facts. Must never know who states them. docs/adding-a-dialect.md explains each to those who write data files.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from apps.gateway.canonical.chat import Target


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes."""

    # Bounds in tokens (`min`, `max`) of thinking; a model of which they are not stated does not think.
    reasoning_budget: dict[str, int] | None = None
    # How an answer gets the form of a schema.
    structured_outputs: Literal["native", "tool", "json_object"] = "native"
    # Fields, named as OpenAI does, that are refused: left out.
    unsupported: frozenset[str] = frozenset()

    @property
    def thinks(self) -> bool:
        """Whether the model thinks, and reads its earlier thinking."""
        return self.reasoning_budget is not None


def flavor_of(target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Flavor)
