"""How a provider's flavor of Google's format differs: the facts that this dialect reads, each with what it is unstated.

Knows facts. Must never know who states them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from apps.gateway.canonical.chat import Target


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes."""

    # The efforts that a model knows by name: it takes a level of thinking.
    reasoning_efforts: tuple[str, ...] = ()
    # Bounds in tokens (`min`, `max`) of a model that takes a budget for thinking.
    reasoning_budget: dict[str, int] | None = None
    # What is understood beyond what every model does: `search_with_tools`, a web search beside functions.
    takes: frozenset[str] = frozenset()

    @property
    def thinking(self) -> Literal["level", "budget"]:
        """How the depth of thinking is asked for; a model of which nothing is said is a new one."""
        return "budget" if self.reasoning_budget is not None and not self.reasoning_efforts else "level"

    @property
    def sealed(self) -> bool:
        """Whether a call in the history needs a seal: models that know levels insist."""
        return self.thinking == "level"


def flavor_of(target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    facts: dict[str, Any] = target.facts
    return msgspec.convert(facts, Flavor)
