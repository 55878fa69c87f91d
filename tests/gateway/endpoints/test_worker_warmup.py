"""A worker makes guardrails ready only where a project has or may have them, and starts all the same without a
database."""

from __future__ import annotations

import gc

import pytest
from django.db import DatabaseError

from apps.gateway import worker_warmup
from apps.guardrails.configuration import compiled_cache
from apps.guardrails.configuration.compiled_cache import is_any_organization_guarded, may_any_organization_be_guarded
from apps.guardrails.models import CustomRule, GuardrailConfig
from apps.guardrails.rules import SystemRule, system_rules
from apps.organizations.models import Organization

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return what tells how often guardrails were made ready."""
    calls: list[bool] = []
    monkeypatch.setattr(worker_warmup, "warm_up_rules_once", lambda: calls.append(True))
    return calls


@pytest.mark.parametrize(("enabled", "guarded"), [(None, False), (False, False), (True, True)])
def test_they_are_made_ready_where_somebody_has_any(enabled: bool | None, guarded: bool, made: list[bool]) -> None:
    if enabled is not None:
        organization = Organization.objects.create(name="Acme")
        GuardrailConfig.objects.create(organization=organization, enabled=enabled)
    assert worker_warmup.warm_up_guardrails(is_any_organization_guarded) is guarded
    assert len(made) == guarded


@pytest.mark.parametrize(
    ("is_on", "configured", "guarded"), [(True, None, True), (False, None, False), (True, False, False)]
)
def test_they_are_made_ready_where_somebody_has_custom_rules_alone(
    is_on: bool, configured: bool | None, guarded: bool, made: list[bool]
) -> None:
    organization = Organization.objects.create(name="Acme")
    config = {"terms": ["zanzibar"], "matchType": "contains", "caseSensitive": False}
    CustomRule.objects.create(
        organization=organization, name="Terms", type="blocked_terms", config=config, enabled=is_on
    )
    if configured is not None:
        GuardrailConfig.objects.create(organization=organization, enabled=configured)
    assert worker_warmup.warm_up_guardrails(is_any_organization_guarded) is guarded
    assert len(made) == guarded


@pytest.mark.parametrize(
    ("plan", "status", "possible"),
    [
        ("free", "active", False),
        ("pro", "active", False),
        ("enterprise", "deleted", False),
        ("enterprise", "active", True),
    ],
)
def test_they_are_made_ready_where_somebody_may_have_them(
    plan: str, status: str, possible: bool, made: list[bool]
) -> None:
    Organization.objects.create(name="Acme", plan=plan, status=status)
    assert worker_warmup.warm_up_guardrails(may_any_organization_be_guarded) is possible
    assert len(made) == possible


def test_an_organization_that_is_given_the_plan_later_finds_them_ready(
    made: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = Organization.objects.create(name="Acme")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        assert made == []
        slept.append(seconds)
        if len(slept) == 3:
            Organization.objects.filter(id=organization.id).update(plan="enterprise")

    monkeypatch.setattr(worker_warmup.gevent, "sleep", sleep)
    frozen: list[int] = []
    monkeypatch.setattr(worker_warmup, "freeze_loaded_objects", lambda: frozen.append(len(made)))
    worker_warmup._warm_up()
    assert (slept, made) == ([4.5, 60.0, 60.0], [True])
    # Objects that load later are put out of the collector's way as well.
    assert frozen == [0, 1]


def test_without_a_database_nothing_is_made_ready(made: list[bool]) -> None:
    def fail() -> bool:
        raise DatabaseError

    assert worker_warmup.warm_up_guardrails(fail) is False
    assert made == []


def test_every_rule_looks_at_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def told(rule: SystemRule) -> SystemRule:
        fields = {name: getattr(rule, name) for name in ("name", "category", "default_enabled", "default_action")}
        return SystemRule(id=rule.id, find=lambda text, settings: looked.append(rule.id) or [], **fields)

    rules = {name: told(rule) for name, rule in system_rules().items() if rule.find is not None}
    monkeypatch.setattr(compiled_cache, "system_rules", lambda: rules)
    monkeypatch.setattr(compiled_cache.engine, "system_rules", lambda: rules)
    compiled_cache.warm_up_rules()
    assert set(looked) == set(rules)


def test_what_is_loaded_is_no_longer_looked_through() -> None:
    gc.unfreeze()
    try:
        worker_warmup.freeze_loaded_objects()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
