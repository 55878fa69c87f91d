"""Google generateContent, provider side: writes requests, reads answers and failures.

Here are the facts that a data file may state of a provider or model; docs/adding-a-dialect.md explains each.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects import fact


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state of a model."""

    reasoning_efforts: Annotated[
        tuple[str, ...],
        fact("the model takes a level of thinking, named by the effort; so does one that states no budget either"),
    ] = ()
    reasoning_budget: Annotated[
        dict[str, int] | None,
        fact("the model takes a budget of tokens for thinking: an effort becomes one within these bounds"),
    ] = None
    takes: Annotated[
        frozenset[str],
        fact("`search_with_tools`: a web search beside functions, which is refused otherwise"),
    ] = frozenset()

    @property
    def thinking(self) -> Literal["level", "budget"]:
        """How the depth of thinking is asked for; a model of which nothing is said is a new one."""
        return "budget" if self.reasoning_budget is not None and not self.reasoning_efforts else "level"

    @property
    def requires_signatures(self) -> bool:
        """Whether a call in the history needs a thought signature: models that know levels insist."""
        return self.thinking == "level"


def capabilities_of(target: Target) -> Capabilities:
    """Return how a chat has to be written for a target."""
    return msgspec.convert(target.facts, Capabilities)
