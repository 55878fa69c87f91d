"""Guardrails in the admin: operators are held to what the API takes, and what they do is taken down."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.guardrails.models import CustomRule, GuardrailConfig, Violation, default_system_rules
from apps.kernel.valkey import generation
from apps.organizations.actions import create_operator
from apps.organizations.models import AuditEntry
from tests.support.cast import PASSWORD, World

REGEX = {"type": "custom_regex", "pattern": "ticket-[0-9]{4}"}
RULE_FORM = {"name": "Tickets", "type": "custom_regex", "pattern": "ticket-[0-9]{4}", "priority": "100"}
RULE_FORM |= {"enabled": "on", "action": "block"}


TYPES: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    (
        "blocked_terms",
        {"terms": "one\ntwo", "match_type": "exact", "case_sensitive": "on"},
        {"terms": ["one", "two"], "matchType": "exact", "caseSensitive": True},
    ),
    ("custom_regex", {"pattern": " a{2}"}, {"pattern": " a{2}"}),
    (
        "topic_restriction",
        {"blocked_topics": "gambling: casino", "synonyms": "gambling: slots, bets", "language": "english"},
        {
            "blockedTopics": ["gambling: casino"],
            "allowedTopics": [],
            "synonyms": {"gambling": ["slots", "bets"]},
            "language": "english",
        },
    ),
]


def config_form_of(operator: Client, config: GuardrailConfig, **fields: str | None) -> dict[str, str]:
    """Return the form of a configuration as it is shown, with `fields` over it; None leaves a box empty."""
    form = operator.get(page(config)).context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    filled = {name: "on" if value is True else value for name, value in {**shown, **fields}.items()}
    return {name: str(value) for name, value in filled.items() if value not in (None, False)}


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
        scope = generation.organization_scope(config.organization_id)
        before = generation.read_generation_token(scope)
        fields = {"secrets_action": "warn", "secrets_observe": "on", "secrets_restore": None}
        fields |= {"allowed_file_types": "Image/PNG\nimage/png\n"}
        form = config_form_of(operator, config, **fields)
        with django_capture_on_commit_callbacks(execute=True):
            assert operator.post(page(config), form).status_code == 302
        config.refresh_from_db()
        secrets = {**default_system_rules()["secrets"], "action": "warn", "observe": True, "restore": False}
        assert config.system_rules == {**default_system_rules(), "secrets": secrets}
        assert config.allowed_file_types == ["image/png"]
        assert generation.read_generation_token(scope) != before
        entry = AuditEntry.objects.latest("id")
        assert (entry.action, entry.actor_type, entry.actor_email) == (
            "guardrail_config.update",
            "admin",
            "op@example.com",
        )
        assert set(entry.details["changes"]) == {"system_rules", "allowed_file_types"}

    def test_nothing_is_a_choice_too(self, operator: Client, config: GuardrailConfig) -> None:
        form = config_form_of(operator, config, allowed_file_types="", pii_action="", secrets_enabled=None)
        assert operator.post(page(config), form).status_code == 302
        config.refresh_from_db()
        assert (config.allowed_file_types, config.pii_action) == ([], None)
        assert config.system_rules["secrets"]["enabled"] is False

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("secrets_action", "hide", "Select a valid choice"),
            ("allowed_file_types", "png", "[0]: Must be a MIME type"),
            ("max_file_size_mb", "0", "Must be a number from 0.01 to 1000"),
            ("max_file_size_mb", "1001", "Must be a number from 0.01 to 1000"),
        ],
    )
    def test_what_the_api_refuses_is_refused(
        self, operator: Client, config: GuardrailConfig, field: str, value: str, message: str
    ) -> None:
        before = GuardrailConfig.objects.values().get()
        errors = errors_of(operator.post(page(config), config_form_of(operator, config, **{field: value})))
        assert list(errors) == [field]
        assert message in errors[field][0]
        assert GuardrailConfig.objects.values().get() == before
        assert not AuditEntry.objects.filter(action__startswith="guardrail").exists()

    def test_one_is_made(self, operator: Client, world: World) -> None:
        form = operator.get(page(GuardrailConfig, "add")).context["adminform"].form
        shown = {name: form[name].value() for name in form.fields}
        filled = {name: "on" if value is True else str(value) for name, value in shown.items() if value}
        filled |= {"organization": str(world.acme.pk), "allowed_file_types": "image/png"}
        assert operator.post(page(GuardrailConfig, "add"), filled).status_code == 302
        made = GuardrailConfig.objects.get()
        assert (made.organization, made.system_rules) == (world.acme, default_system_rules())

    def test_one_stays_with_its_organization(self, operator: Client, config: GuardrailConfig, world: World) -> None:
        form = config_form_of(operator, config, organization=str(world.elsewhere.pk))
        assert operator.post(page(config), form).status_code == 302
        config.refresh_from_db()
        assert config.organization_id == world.acme.id


class TestRules:
    def test_one_is_added_and_that_is_taken_down(self, operator: Client, world: World) -> None:
        form = {**RULE_FORM, "organization": str(world.acme.pk)}
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
        ("pattern", "message"),
        [("(", "missing ): ("), ("", "Must be a regular expression of 1 to 1000 characters")],
    )
    def test_what_the_api_refuses_is_refused(
        self, operator: Client, rule: CustomRule, pattern: str, message: str
    ) -> None:
        before = CustomRule.objects.values().get()
        errors = errors_of(operator.post(page(rule), {**RULE_FORM, "pattern": pattern}))
        assert errors == {"pattern": [message]}
        assert CustomRule.objects.values().get() == before

    def test_every_type_has_fields_and_shows_what_it_has(self, operator: Client, world: World) -> None:
        own = {"name": "x", "priority": "1", "action": "warn", "organization": str(world.acme.pk)}
        for type_, fields, config in TYPES:
            assert operator.post(page(CustomRule, "add"), {**own, "type": type_, **fields}).status_code == 302
            row = CustomRule.objects.latest("id")
            assert row.config == {"type": type_, **config}
            form = operator.get(page(row)).context["adminform"].form
            for name, value in fields.items():
                assert form[name].value() == (True if value == "on" else value)

    def test_a_line_that_is_wrong_is_named(self, operator: Client, world: World) -> None:
        own = {"name": "x", "priority": "1", "action": "warn", "organization": str(world.acme.pk)}
        form = {**own, "type": "blocked_terms", "match_type": "regex", "terms": "fine\n("}
        assert errors_of(operator.post(page(CustomRule, "add"), form)) == {"terms": ["line 2: missing ): ("]}
        assert not CustomRule.objects.exists()

    def test_a_text_is_tried_and_kept_nowhere(self, operator: Client, rule: CustomRule) -> None:
        path = page(rule, "try_text")
        assert operator.get(path).status_code == 200
        response = operator.post(path, {"text": "about ticket-1234 and <b>"})
        assert response.context["result"].blocked
        found = response.context["table"]["rows"]
        assert ("Tickets (this rule)", "custom_regex", "block", "ticket-1234", REGEX["pattern"]) in found
        assert "no-store" in response["Cache-Control"]
        assert not operator.post(path, {"text": "about nothing"}).context["result"].blocked
        assert not Violation.objects.exists()

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

    def test_a_service_is_switched_off_but_neither_added_nor_configured(self, operator: Client, world: World) -> None:
        config = {"type": "lakera", "url": "https://api.lakera.ai", "projectId": "", "secrets": ["apiKey"]}
        rule = CustomRule.objects.create(organization=world.acme, name="Lakera", type="lakera", config=config)
        form = {"name": "Lakera", "priority": "100", "action": "block"}
        assert operator.post(page(rule), form).status_code == 302
        rule.refresh_from_db()
        assert (rule.enabled, rule.config) == (False, config)
        new = {**form, "organization": str(world.acme.id), "type": "lakera"}
        response = operator.post(page(CustomRule, "add"), new)
        assert errors_of(response) == {"type": ["Only the organization itself can add a rule of this type"]}
        assert CustomRule.objects.count() == 1
