"""Outside rules in force: the guards that an organization has texts judged by, and their findings as the engine's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from apps.guardrails.custom import BadConfig
from apps.guardrails.findings.redaction import bounded
from apps.guardrails.findings.scan_types import STRICTNESS, ActiveRule, Finding, RuleAction, Span
from apps.guardrails.outside import (
    BOTH,
    CLOSED,
    OutsideFinding,
    OutsideText,
    OutsideType,
    outside_types,
    read_outside_config,
)


class OutsideRule(msgspec.Struct, frozen=True, kw_only=True):
    """One guard in force. `encrypted_secrets` are decrypted only to ask it; `timeout` is in seconds."""

    active: ActiveRule
    type: OutsideType
    config: Mapping[str, Any]
    encrypted_secrets: bytes
    direction: str
    is_closed_on_failure: bool
    timeout: float

    def __repr__(self) -> str:
        return f"OutsideRule({self.id})"

    @property
    def id(self) -> str:
        """The rule's id."""
        return self.active.id

    @property
    def only_notes(self) -> bool:
        """Whether nothing changes by what it finds, so that the request need not wait for it."""
        return self.active.observed or (self.active.action == "warn" and not self.is_closed_on_failure)

    def judges(self, direction: str) -> bool:
        """Whether it judges texts of requests (`input`), or of answers (`output`)."""
        return self.direction in (direction, BOTH)


def compile_outside_rule(active: ActiveRule, type_name: str, config: Any, encrypted_secrets: bytes) -> OutsideRule:
    """Return a stored guard, ready to be asked. Raises BadConfig."""
    type_ = outside_types()[type_name]
    if active.action == "allow":
        raise BadConfig("action", "A rule of this type cannot allow")
    read = read_outside_config(type_, config)
    return OutsideRule(
        active=active,
        type=type_,
        config=read,
        encrypted_secrets=encrypted_secrets,
        direction=read["direction"],
        is_closed_on_failure=read["onFailure"] == CLOSED,
        timeout=read["timeoutSeconds"],
    )


def findings_of(rule: OutsideRule, found: Iterable[OutsideFinding], texts: Sequence[OutsideText]) -> list[Finding]:
    """Return what a guard found as the engine's findings: one for each text and action, the gravest first."""
    spans: defaultdict[tuple[RuleAction, int], list[Span]] = defaultdict(list)
    for one in found:
        end = len(texts[one.text].text) if one.end is None else one.end
        spans[action_of(rule, one), one.text].append(Span(one.start, end, one.pattern or rule.type.TYPE, one.label))
    active = rule.active
    return [
        Finding(
            rule_id=active.id,
            rule_name=active.name,
            category=active.category,
            action=action,
            spans=bounded(these),
            segment=index,
            reason=these[0].pattern if action == "block" else "",
            observed=active.observed,
        )
        for (action, index), these in sorted(
            spans.items(), key=lambda pair: (-STRICTNESS.index(pair[0][0]), pair[0][1])
        )
    ]


def action_of(rule: OutsideRule, one: OutsideFinding) -> RuleAction:
    """Return the action on a finding: the milder one of the guard's and the rule's own."""
    return min(rule.active.action, one.action or rule.active.action, key=STRICTNESS.index)
