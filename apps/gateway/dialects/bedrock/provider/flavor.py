"""How a model differs behind Bedrock's format: the facts that this dialect reads, each with what it is unstated.

Knows facts. Must never know who states them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.chat import Target


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes."""

    # The field of `additionalModelRequestFields` that asks for thinking; None: there is no asking.
    reasoning_form: str | None = None
    # The efforts that a model knows by name.
    reasoning_efforts: tuple[str, ...] = ()
    # What is understood beyond what every model does; the words are in `docs/adding-a-dialect.md`.
    takes: frozenset[str] = frozenset()
    # Whether what tools answered stands alone in its turn, or `without_files` beside it; None: beside anything.
    tool_results: str | None = None
    # Whether a tool's failure can be told apart from its answer.
    result_status: bool = True
    # Previews of Anthropic's format that the model takes.
    betas: frozenset[str] = frozenset()

    @property
    def seals(self) -> bool:
        """Whether the model seals its thinking and takes it back: those do that speak Anthropic's words for it."""
        return self.reasoning_form == "thinking"


def flavor_of(target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    facts: dict[str, Any] = target.facts
    return msgspec.convert(facts, Flavor)
