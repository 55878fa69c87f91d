"""Anthropic Messages, provider side: writes requests, reads answers and failures.

Here are the facts that a data file may state of a provider or model; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects import fact
from apps.kernel.concurrency.identity_cache import IdentityCache


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a provider or model."""

    reasoning_budget: Annotated[
        dict[str, int | None] | None,
        fact(
            "the model takes a budget of tokens for thinking: an effort becomes a share of the answer's limit; without "
            "it an effort is sent as `output_config.effort` beside adaptive thinking"
        ),
    ] = None
    reasoning_efforts: Annotated[
        tuple[str, ...] | None,
        fact("the efforts that the model knows: any other is sent as the nearest, with a note", default="as it comes"),
    ] = None
    temperature: Annotated[bool, fact("takes sampling parameters, which are dropped otherwise")] = True
    prefill: Annotated[
        bool, fact("takes a conversation that ends with an answer that is begun, which is refused otherwise")
    ] = True
    betas: Annotated[
        frozenset[str] | None,
        fact(
            "the previews (`anthropic-beta`) that the provider takes; others that a client asks for are dropped",
            default="all",
        ),
    ] = None
    unsupported: Annotated[tuple[str, ...], fact("fields that are refused: dropped with a note")] = ()


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return _capabilities(target.facts)


def _read(facts: dict[str, Any]) -> Capabilities:
    return msgspec.convert(facts, Capabilities)


_capabilities = IdentityCache(_read)
