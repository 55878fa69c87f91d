"""Each protocol keeps its promises in every state within some faults, and breaks one without any one of its rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proofs.models.checker import check
from tests.proofs.models.protocols import MORE_FAULTS, PROTOCOLS, Protocol

NAMES = [protocol.name for protocol in PROTOCOLS]
MUTANTS = [
    pytest.param(protocol, name, rules, id=f"{protocol.name}-{name}")
    for protocol in PROTOCOLS
    for name, rules in protocol.mutants()
]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=NAMES)
def test_a_protocol_keeps_its_promises(protocol: Protocol) -> None:
    report = check(protocol.model(protocol.rules), protocol.max_faults)
    assert report.broken == "", str(report)
    # A change of the model changes the number: a step that is never taken any more would go unnoticed.
    assert report.states == protocol.states


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", [one for one in PROTOCOLS if one.max_faults == 1], ids=lambda one: one.name)
def test_a_protocol_keeps_its_promises_with_two_faults(protocol: Protocol) -> None:
    report = check(protocol.model(protocol.rules), 2)
    assert report.broken == "", str(report)


@pytest.mark.parametrize(("protocol", "name", "rules"), MUTANTS)
def test_a_protocol_breaks_without_any_one_of_its_rules(protocol: Protocol, name: str, rules: Any) -> None:
    report = check(protocol.model(rules), MORE_FAULTS.get(name, protocol.max_faults))
    assert report.broken, f"no promise needs {name}"
    assert report.history[0][0] == "start"
