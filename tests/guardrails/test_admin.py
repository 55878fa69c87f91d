"""Guardrails in the admin: operators are held to what the API takes, and what they do is taken down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.guardrails.models import CustomRule, GuardrailConfig, default_system_rules
from apps.kernel import generation
from apps.organizations.actions import create_operator
from apps.organizations.models import AuditEntry
from tests.world import PASSWORD, World

REGEX = {"type": "custom_regex", "pattern": "ticket-[0-9]{4}"}
CONFIG_FORM = {
    "enabled": "on",
    "system_rules": "{}",
    "max_file_size_mb": "10",
    "allowed_file_types": '["image/png"]',
    "pii_action": "redact",
}
RULE_FORM = {
    "name": "Tickets",
    "type": "custom_regex",
    "config": json.dumps(REGEX),
    "priority": "100",
    "enabled": "on",
    "action": "block",
}


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which an operator has signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


@pytest.fixture
def config(world: World) -> GuardrailConfig:
    """Acme's configuration."""
    return GuardrailConfig.objects.create(organization=world.acme)


@pytest.fixture
def rule(world: World) -> CustomRule:
    """A rule of Acme's."""
    return CustomRule.objects.create(organization=world.acme, name="Tickets", type="custom_regex", config=REGEX)


def page(row: Any, name: str = "change") -> str:
    """Return the address of a page of a row, or of its table."""
    arguments = [] if isinstance(row, type) else [row.pk]
    return reverse(f"admin:guardrails_{row._meta.model_name}_{name}", args=arguments)


def errors_of(response: Any) -> dict[str, list[str]]:
    """Return what a form was refused for, by field."""
    assert response.status_code == 200, response.content
    errors: dict[str, list[str]] = response.context["adminform"].form.errors
    return {name: list(words) for name, words in errors.items()}


class TestConfigurations:
    def test_one_is_changed_and_that_is_taken_down(
        self, operator: Client, config: GuardrailConfig, django_capture_on_commit_callbacks: Any
    ) -> None:
        scope = generation.organization(config.organization_id)
        before = generation.read_generation_token(scope)
        rules = {**default_system_rules(), "secrets": {"enabled": True, "action": "warn", "observe": True}}
        form = {**CONFIG_FORM, "system_rules": json.dumps(rules), "allowed_file_types": '["Image/PNG", "image/png"]'}
        with django_capture_on_commit_callbacks(execute=True):
            assert operator.post(page(config), form).status_code == 302
        config.refresh_from_db()
        assert (config.system_rules, config.allowed_file_types) == (rules, ["image/png"])
        assert generation.read_generation_token(scope) != before
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, entry.actor_type, entry.actor_email) == (
            "guardrail_config.update",
            "admin",
            "op@example.com",
        )
        assert set(entry.details["changes"]) == {"system_rules", "allowed_file_types"}

    def test_nothing_is_a_choice_too(self, operator: Client, config: GuardrailConfig) -> None:
        form = {**CONFIG_FORM, "system_rules": "{}", "allowed_file_types": "[]", "pii_action": ""}
        assert operator.post(page(config), form).status_code == 302
        config.refresh_from_db()
        assert (config.system_rules, config.allowed_file_types, config.pii_action) == ({}, [], None)

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("system_rules", '{"secret": {}}', "secret: Not a system rule"),
            ("system_rules", '{"secrets": {"action": "hide"}}', "secrets.action: Must be one of"),
            ("system_rules", "[]", "Must be an object of rules by name"),
            ("system_rules", "", "Must be an object of rules by name"),
            ("allowed_file_types", "", "Must be a list of at most 100"),
            ("allowed_file_types", '["png"]', "[0]: Must be a MIME type"),
            ("allowed_file_types", '"image/png"', "Must be a list of at most 100"),
            ("max_file_size_mb", "0", "Must be a number from 0.01 to 1000"),
            ("max_file_size_mb", "1001", "Must be a number from 0.01 to 1000"),
        ],
    )
    def test_what_the_api_refuses_is_refused(
        self, operator: Client, config: GuardrailConfig, field: str, value: str, message: str
    ) -> None:
        before = GuardrailConfig.objects.values().get()
        errors = errors_of(operator.post(page(config), {**CONFIG_FORM, field: value}))
        assert list(errors) == [field]
        assert message in errors[field][0]
        assert GuardrailConfig.objects.values().get() == before
        assert not AuditEntry.objects.filter(action__startswith="guardrail").exists()

    def test_one_stays_with_its_organization(self, operator: Client, config: GuardrailConfig, world: World) -> None:
        form = {**CONFIG_FORM, "organization": str(world.elsewhere.pk)}
        assert operator.post(page(config), form).status_code == 302
        config.refresh_from_db()
        assert config.organization_id == world.acme.id


class TestRules:
    def test_one_is_added_and_that_is_taken_down(self, operator: Client, world: World) -> None:
        form = {**RULE_FORM, "organization": str(world.acme.pk), "config": '{"pattern": "ticket-[0-9]{4}"}'}
        assert operator.post(page(CustomRule, "add"), form).status_code == 302
        row = CustomRule.objects.get()
        assert (row.organization_id, row.type, row.config) == (world.acme.id, "custom_regex", REGEX)
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, entry.organization_id, entry.resource_id) == (
            "guardrail_rule.create",
            world.acme.id,
            str(row.id),
        )

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ('{"pattern": "("}', "config.pattern: missing ): ("),
            ('{"type": "custom_regex"}', "config.pattern: Must be a regular expression of 1 to 1000 characters"),
            ('{"type": "blocked_terms", "pattern": "x"}', "config.type: Must be custom_regex, as the rule's own type"),
            ('["x"]', "config: Must be an object"),
            ("{}", "This field is required."),
            ("{", "Enter a valid JSON."),
        ],
    )
    def test_what_the_api_refuses_is_refused(
        self, operator: Client, rule: CustomRule, config: str, message: str
    ) -> None:
        before = CustomRule.objects.values().get()
        errors = errors_of(operator.post(page(rule), {**RULE_FORM, "config": config}))
        assert errors == {"config": [message]}
        assert CustomRule.objects.values().get() == before

    def test_one_keeps_its_type_and_its_organization(self, operator: Client, rule: CustomRule, world: World) -> None:
        form = {**RULE_FORM, "type": "blocked_terms", "organization": str(world.elsewhere.pk), "name": "Renamed"}
        assert operator.post(page(rule), form).status_code == 302
        rule.refresh_from_db()
        assert (rule.name, rule.type, rule.organization_id) == ("Renamed", "custom_regex", world.acme.id)

    def test_no_more_than_the_api_allows(self, operator: Client, world: World) -> None:
        CustomRule.objects.bulk_create(
            CustomRule(organization=world.acme, name="one", type="custom_regex", config=REGEX) for _ in range(500)
        )
        response = operator.post(page(CustomRule, "add"), {**RULE_FORM, "organization": str(world.acme.pk)})
        assert errors_of(response) == {"__all__": ["Maximum 500 guardrail rules per organization"]}
        assert CustomRule.objects.count() == 500

    def test_one_of_them_can_still_be_changed_then(self, operator: Client, rule: CustomRule, world: World) -> None:
        CustomRule.objects.bulk_create(
            CustomRule(organization=world.acme, name="one", type="custom_regex", config=REGEX) for _ in range(499)
        )
        assert operator.post(page(rule), {**RULE_FORM, "name": "Renamed"}).status_code == 302
        rule.refresh_from_db()
        assert rule.name == "Renamed"

    def test_one_is_deleted_and_that_is_taken_down(self, operator: Client, rule: CustomRule) -> None:
        assert operator.post(page(rule, "delete"), {"post": "yes"}).status_code == 302
        assert not CustomRule.objects.exists()
        assert AuditEntry.objects.latest("id").action == "guardrail_rule.delete"
