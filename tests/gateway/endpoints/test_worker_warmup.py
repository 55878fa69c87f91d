"""A worker makes guardrails ready only where somebody has any, and starts all the same without a database."""

from __future__ import annotations

import gc

import pytest
from django.db import DatabaseError

from apps.gateway import worker_warmup
from apps.guardrails.configuration import rule_warmup
from apps.guardrails.models import GuardrailConfig
from apps.guardrails.rules import SystemRule, system_rules
from apps.organizations.models import Organization

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what tells how often guardrails were made ready."""
    calls: list[bool] = []
    monkeypatch.setattr(worker_warmup, "warm_up_rules_once", lambda: calls.append(True))
    return calls


@pytest.mark.parametrize(("enabled", "times"), [(None, 0), (False, 0), (True, 1)])
def test_they_are_made_ready_where_somebody_has_any(enabled: bool | None, times: int, made: list[bool]) -> None:
    if enabled is not None:
        organization = Organization.objects.create(name="Acme")
        GuardrailConfig.objects.create(organization=organization, enabled=enabled)
    worker_warmup.warm_up_guardrails()
    assert len(made) == times


def test_without_a_database_nothing_is_made_ready(made: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise DatabaseError

    monkeypatch.setattr(worker_warmup, "is_any_organization_guarded", fail)
    worker_warmup.warm_up_guardrails()
    assert made == []


def test_every_rule_looks_at_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def told(rule: SystemRule) -> SystemRule:
        fields = {name: getattr(rule, name) for name in ("name", "category", "default_enabled", "default_action")}
        return SystemRule(id=rule.id, find=lambda text, settings: looked.append(rule.id) or [], **fields)

    rules = {name: told(rule) for name, rule in system_rules().items() if rule.find is not None}
    monkeypatch.setattr(rule_warmup, "system_rules", lambda: rules)
    monkeypatch.setattr(rule_warmup.engine, "system_rules", lambda: rules)
    rule_warmup.warm_up_rules()
    assert set(looked) == set(rules)


def test_what_is_loaded_is_no_longer_looked_through() -> None:
    gc.unfreeze()
    try:
        worker_warmup.freeze_loaded_objects()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
