"""Bedrock Converse, provider side: writes requests, reads answers and failures.

Here are the facts that a data file may state of a provider or model; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects import fact


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    reasoning_form: Annotated[
        Literal["thinking", "reasoning", "reasoning_effort", "reasoning_config", "reasoningConfig"] | None,
        fact(
            "the field of `additionalModelRequestFields` that asks for reasoning: `thinking` (Anthropic's, with "
            "`reasoning_budget` as there), `reasoning` (an object with the effort), `reasoning_effort` or "
            "`reasoning_config` (the effort itself), `reasoningConfig` (Nova's); without it nothing is asked and an "
            "effort is noted as dropped"
        ),
    ] = None
    reasoning_efforts: Annotated[
        tuple[str, ...], fact("the efforts that the model knows: any other is sent as the nearest, with a note")
    ] = ()
    takes: Annotated[
        frozenset[str],
        fact(
            "features beyond those of every model: `cache_points` and `cache_tools` (cache marks behind a "
            "message's blocks, behind tools), `cache_1h` (their longer `ttl`), `top_k` or `inferenceConfig.topK` (the "
            "field of `additionalModelRequestFields` for it), `strict` (tool arguments are bound to the schema), "
            "`tool_choice` (Anthropic's own, in place of Bedrock's), `citations` (the answer cites documents)"
        ),
    ] = frozenset()
    tool_results: Annotated[
        Literal["alone", "without_files"] | None,
        fact(
            "what a user may say beside tool results: `alone` nothing, `without_files` all but documents and videos; "
            "else the turn is sent in two, with an assistant's `.` between them",
            default="beside anything",
        ),
    ] = None
    result_status: Annotated[bool, fact("a tool's failure is reported in `status`; else as text")] = True
    betas: Annotated[
        frozenset[str], fact("the previews (`anthropic-beta`) that the model takes, as `anthropic_beta`")
    ] = frozenset()

    @property
    def signs_thinking(self) -> bool:
        """Whether the model signs its thinking and takes it back: those do that speak Anthropic's words for it."""
        return self.reasoning_form == "thinking"


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
