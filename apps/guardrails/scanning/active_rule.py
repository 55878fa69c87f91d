"""Active rule: one rule in force, with its place in the order of checking."""

from __future__ import annotations

from typing import NamedTuple

from apps.guardrails.findings.scan_types import RuleAction


class ActiveRule(NamedTuple):
    """One rule in force. Rules compare by their order: the smaller `rank` is checked first."""

    rank: tuple[int, int, int]
    id: str
    name: str
    category: str
    action: RuleAction
    observed: bool
    restore: bool = True

    def is_overridden_by(self, other: ActiveRule) -> bool:
        """Tell whether a matching rule with `allow` keeps this one from acting."""
        return other.rank[:2] < self.rank[:2]
