"""Cohere Chat v2, provider side: writes requests, reads answers and failures.

Here are the facts that a data file may state of a provider or model; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects import fact


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    reasoning_budget: Annotated[
        dict[str, int] | None,
        fact(
            "the model reasons, within these bounds in tokens (`min`, `max`), and reads its earlier reasoning: an "
            "effort becomes a share of the answer's limit"
        ),
    ] = None
    structured_outputs: Annotated[
        Literal["native", "tool", "json_object"],
        fact(
            "how a JSON schema is kept; beside tools, which Cohere does not take, always by a tool that the client "
            "does not see"
        ),
    ] = "native"
    unsupported: Annotated[frozenset[str], fact("hints that are dropped with a note")] = frozenset()

    @property
    def thinks(self) -> bool:
        """Whether the model thinks, and reads its earlier thinking."""
        return self.reasoning_budget is not None


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
