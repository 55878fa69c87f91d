"""Changes of guardrails: the audit log has each, concurrent ones happen once, and none reaches a deleted guardrail."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connections

from apps.guardrails import actions
from apps.guardrails.configuration.load_config import load_engine_config
from apps.guardrails.models import CustomRule, GuardrailConfig, default_system_rules
from apps.guardrails.rules import system_rules
from apps.kernel.errors import ApiError, InvalidRequest, NotFound
from apps.kernel.rest.envelopes import InvalidFields
from apps.organizations.journal import audit
from apps.organizations.models import AuditEntry, Organization
from tests.support.cast import World

REGEX = {"pattern": "ticket-[0-9]{4}"}
KEPT = {"type": "custom_regex", **REGEX}


@pytest.fixture
def rule(world: World) -> CustomRule:
    """A rule of Acme's."""
    return new_rule(world)


def new_rule(world: World, **columns: Any) -> CustomRule:
    """Create a rule of Acme's."""
    fields = {"type": "custom_regex", "config": REGEX, "name": "Tickets", **columns}
    return actions.create_rule(organization=world.acme, **fields)


def newest() -> tuple[str, str, Any]:
    """Return the last audit entry: the action, the id of the thing, and the details."""
    entry = AuditEntry.objects.latest("id")
    return entry.action, entry.resource_id, entry.details


class TestWhatIsTakenDown:
    def test_of_a_configuration(self, world: World) -> None:
        with audit.acting(world.adam):
            row = actions.change_config(organization=world.acme, changes={"enabled": False, "scan_output": False})
        entry = AuditEntry.objects.latest("id")
        assert (entry.organization_id, entry.actor_email) == (world.acme.id, "adam@example.com")
        assert (entry.action, entry.resource_type) == ("guardrail_config.create", "guardrail_config")
        assert entry.details == {"changes": {"enabled": {"from": True, "to": False}}}
        actions.change_config(organization=world.acme, changes={"system_rules": {"secrets": {"observe": True}}})
        before = default_system_rules()
        after = {**before, "secrets": {**before["secrets"], "observe": True}}
        changed = {"changes": {"system_rules": {"from": before, "to": after}}}
        assert newest() == ("guardrail_config.update", str(row.id), changed)
        actions.reset_config(organization=world.acme)
        undone = {
            "changes": {"enabled": {"from": False, "to": True}, "system_rules": {"from": after, "to": before}},
        }
        assert newest() == ("guardrail_config.reset", str(row.id), undone)

    def test_of_a_rule(self, world: World) -> None:
        rule = new_rule(world, priority=5)
        told = {"name": "Tickets", "type": "custom_regex", "config": KEPT, "priority": 5, "enabled": True}
        assert newest() == (
            "guardrail_rule.create",
            str(rule.id),
            {**told, "action": "block", "observe_only": False, "restore": True},
        )
        actions.change_rule(rule=rule, changes={"config": {"pattern": "other"}, "priority": 5, "enabled": False})
        changed = {
            "config": {"from": KEPT, "to": {"type": "custom_regex", "pattern": "other"}},
            "enabled": {"from": True, "to": False},
        }
        assert newest() == ("guardrail_rule.update", str(rule.id), {"changes": changed})
        actions.delete_rule(rule=rule)
        assert newest() == ("guardrail_rule.delete", str(rule.id), {"name": "Tickets", "type": "custom_regex"})

    def test_what_is_long_is_cut_short(self, world: World) -> None:
        terms = [f"term number {number}" for number in range(400)]
        new_rule(world, type="blocked_terms", config={"terms": terms, "matchType": "contains", "caseSensitive": False})
        assert newest()[2]["config"]["terms"] == terms[:300]
        new_rule(world, config={"pattern": "x" * 301})
        assert newest()[2]["config"]["pattern"] == "x" * 300


class TestWhatIsGone:
    def test_an_organization_that_was_deleted_meanwhile(self, world: World) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(status=Organization.Status.DELETED)
        recorded = AuditEntry.objects.count()
        for ask in (
            lambda: actions.change_config(organization=world.acme, changes={"enabled": False}),
            lambda: actions.reset_config(organization=world.acme),
            lambda: new_rule(world),
        ):
            with pytest.raises(NotFound, match="Organization not found"):
                ask()
        assert not GuardrailConfig.objects.exists()
        assert not CustomRule.objects.exists()
        assert AuditEntry.objects.count() == recorded

    def test_a_rule_that_was_deleted_meanwhile(self, rule: CustomRule) -> None:
        CustomRule.objects.all().delete()
        recorded = AuditEntry.objects.count()
        for ask in (
            lambda: actions.change_rule(rule=rule, changes={"enabled": False}),
            lambda: actions.delete_rule(rule=rule),
        ):
            with pytest.raises(NotFound, match="Guardrail rule not found"):
                ask()
        assert not CustomRule.objects.exists()
        assert AuditEntry.objects.count() == recorded

    def test_a_change_undoes_none_that_came_meanwhile(self, rule: CustomRule) -> None:
        CustomRule.objects.update(name="Renamed")
        assert actions.change_rule(rule=rule, changes={"priority": 1}).name == "Renamed"
        assert CustomRule.objects.values_list("name", "priority").get() == ("Renamed", 1)


def test_a_rule_keeps_its_type(rule: CustomRule) -> None:
    with pytest.raises(InvalidFields) as refused:
        actions.change_rule(rule=rule, changes={"type": "blocked_terms"})
    assert [tuple(issue) for issue in refused.value.issues] == [("type", "Cannot be changed; create another rule")]
    rule.refresh_from_db()
    assert (rule.type, rule.config) == ("custom_regex", KEPT)


@pytest.mark.django_db(transaction=True)
class TestManyAtATime:
    def at_once(self, *asks: Any) -> list[ApiError]:
        """Ask all at once, each in a thread of its own; return how they were refused."""
        barrier, refused = Barrier(len(asks)), []

        def run(ask: Any) -> None:
            barrier.wait()
            try:
                ask()
            except ApiError as error:
                refused.append(error)
            finally:
                connections.close_all()

        threads = [Thread(target=run, args=(ask,)) for ask in asks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return refused

    def test_make_one_configuration_that_has_what_all_said(self, world: World) -> None:
        names = list(default_system_rules())
        asks = [
            lambda name=name: actions.change_config(
                organization=world.acme, changes={"system_rules": {name: {"observe": True}}}
            )
            for name in names
        ]
        assert self.at_once(*asks) == []
        row = GuardrailConfig.objects.get()
        assert {name: rule["observe"] for name, rule in row.system_rules.items()} == dict.fromkeys(names, True)

    def test_do_not_pass_the_limit(self, world: World) -> None:
        CustomRule.objects.bulk_create(
            CustomRule(organization=world.acme, name="one", type="custom_regex", config=KEPT) for _ in range(498)
        )
        refused = self.at_once(*[lambda: new_rule(world)] * 4)
        assert [type(error) for error in refused] == [InvalidRequest] * 2
        assert CustomRule.objects.count() == 500


class TestWhatTheEngineIsTold:
    def test_is_nothing_when_nothing_was_ever_configured(self, world: World) -> None:
        assert load_engine_config(world.acme.id) is None

    def test_has_custom_rules_alone_where_nothing_else_was_configured(self, world: World) -> None:
        rule = new_rule(world)
        told = load_engine_config(world.acme.id)
        assert told is not None
        assert {name for name, state in told.system_rules.items() if state.enabled} == set()
        assert set(told.system_rules) == set(system_rules())
        assert [(one.id, one.enabled) for one in told.custom_rules] == [(str(rule.id), True)]

    def test_is_what_the_rows_say(self, world: World) -> None:
        changes = {
            "system_rules": {
                "jailbreak": {"enabled": False, "restore": False},
                "secrets": {"action": "warn", "observe": True},
            },
            "max_file_size_mb": 2.5,
            "allowed_file_types": ["application/pdf"],
            "pii_action": "block",
            "scan_output": True,
        }
        actions.change_config(organization=world.acme, changes=changes)
        first = new_rule(world, priority=7, observe_only=True, action="redact", restore=False)
        second = new_rule(world, priority=9, enabled=False)
        CustomRule.objects.create(organization=world.elsewhere, name="not ours", type="custom_regex", config=KEPT)
        told = load_engine_config(world.acme.id)
        assert told is not None
        assert (told.enabled, told.scan_output, told.pii_action) == (True, True, "block")
        assert (told.max_file_bytes, told.allowed_file_types) == (2_500_000, ("application/pdf",))
        assert {name: (rule.enabled, rule.action, rule.observe) for name, rule in told.system_rules.items()} == {
            **{
                rule.id: (rule.default_enabled, rule.default_action, rule.default_observe)
                for rule in system_rules().values()
            },
            "prompt_injection": (True, "block", False),
            "jailbreak": (False, "block", False),
            "pii_detection": (True, "block", False),
            "secrets": (True, "warn", True),
            "file_types": (True, "block", False),
            "document_leakage": (False, "warn", False),
        }
        assert [name for name, rule in told.system_rules.items() if not rule.restore] == ["jailbreak"]
        assert [
            (one.id, one.type, one.config, one.priority, one.action, one.observe_only, one.enabled, one.restore)
            for one in told.custom_rules
        ] == [
            (str(second.id), "custom_regex", KEPT, 9, "block", False, False, True),
            (str(first.id), "custom_regex", KEPT, 7, "redact", True, True, False),
        ]
