"""Guardrails in the console: set, tried out, listed; for administrators of the enterprise plan alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apps.console.pages.guardrails.outside_fields import OUTSIDE_FIELDS
from apps.guardrails.custom import custom_types
from apps.guardrails.models import CustomRule, GuardrailConfig, Violation
from apps.guardrails.outside import outside_types
from apps.kernel.ids import new_id
from apps.organizations.models import Plan
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words
from tests.support.guard_service import GuardService

HOSTILE = "<script>alert(1)</script>"
TERMS = {"name": "House words", "terms": "Project Falcon\nmoonshot", "matchType": "contains", "action": "block"}


@pytest.fixture
def adam(world: World) -> Visitor:
    """Adam, who administers Acme, which is on the enterprise plan."""
    world.acme.plan = Plan.ENTERPRISE
    world.acme.save()
    return Visitor(world.adam)


def test_what_is_in_force_is_set_and_reset(world: World, adam: Visitor) -> None:
    said = words(adam.open(page(world.acme, "guardrails")))
    assert "Guardrails are not configured yet, so no system rule is active; your own rules are." in said
    fields = {
        "enabled": ["false", "true"],
        "scanOutput": ["false", "true"],
        "rule.secrets.enabled": ["false", "true"],
        "rule.secrets.action": "redact",
        "rule.secrets.observe": "false",
        "rule.secrets.restore": "false",
        "rule.pii_detection.restore": ["false", "true"],
        "rule.secrets.roles.tool_result": "redact",
        "rule.secrets.roles.user": "",
        "rule.jailbreak.enabled": "false",
        "maxFileSizeMb": "2.5",
        "allowedFileTypes": "image/png\napplication/pdf",
    }
    assert adam.send(page(world.acme, "guardrails"), fields).status_code == 303
    row = GuardrailConfig.objects.get()
    assert (row.enabled, row.scan_output, f"{row.max_file_size_mb}") == (True, True, "2.50")
    assert row.allowed_file_types == ["image/png", "application/pdf"]
    assert row.system_rules["secrets"] == {
        "enabled": True,
        "action": "redact",
        "restore": False,
        "roles": {"tool_result": "redact"},
    }
    assert row.system_rules["pii_detection"] == {"enabled": True, "action": "redact"}
    settings = adam.open(page(world.acme, "guardrails")).content.decode()
    shown = {name: f'name="rule.{name}.restore" value="true"' for name in ("secrets", "pii_detection")}
    boxes = {name: settings.partition(start)[2].partition("</td>")[0] for name, start in shown.items()}
    assert {name: " checked" in box for name, box in boxes.items()} == {"secrets": False, "pii_detection": True}
    assert row.system_rules["jailbreak"]["enabled"] is False

    for wrong in (
        {"rule.secrets.action": "explode"},
        {"rule.secrets.roles.user": "explode"},
        {"rule.secrets.roles.unknown": "warn"},
        {"rule.secrets.roles.earlier_turn": "allow"},
        {"rule.nothing.enabled": "true"},
        {"maxFileSizeMb": "big"},
        {"maxFileSizeMb": "NaN"},
    ):
        assert adam.send(page(world.acme, "guardrails"), {**fields, **wrong}).status_code == 400, wrong
    again = GuardrailConfig.objects.get()
    assert (again.system_rules, again.updated_at) == (row.system_rules, row.updated_at)
    adam.send(page(world.acme, "guardrails/reset"))
    assert GuardrailConfig.objects.get().scan_output is False


def test_rules_of_ones_own_are_added_once_changed_and_removed(world: World, adam: Visitor) -> None:
    new = page(world.acme, "guardrails/rules/new/blocked_terms")
    for _ in range(2):
        assert adam.send(new, TERMS, once="one-click").status_code == 303
    rule = CustomRule.objects.get()
    assert (rule.name, rule.config["terms"], rule.action) == ("House words", ["Project Falcon", "moonshot"], "block")

    one = page(world.acme, f"guardrails/rules/{rule.id}")
    assert "Project Falcon\nmoonshot" in adam.open(one).content.decode()
    assert rule.restore is True
    changed = {"name": HOSTILE, "terms": "eagle", "enabled": "false", "restore": "false", "priority": "7"}
    adam.send(one, {**TERMS, **changed})
    rule.refresh_from_db()
    assert (rule.name, rule.config["terms"], rule.enabled, rule.priority) == (HOSTILE, ["eagle"], False, 7)
    assert rule.restore is False
    assert HOSTILE not in adam.open(page(world.acme, "guardrails/rules")).content.decode()
    adam.send(f"{one}/delete")
    assert CustomRule.objects.count() == 0


def test_a_service_is_added_by_a_form_that_never_shows_its_secret(
    world: World, adam: Visitor, service: GuardService
) -> None:
    new = page(world.acme, "guardrails/rules/new/presidio")
    assert 'name="entities"' in adam.open(new).content.decode()
    fields = {
        "name": "Names",
        "action": "redact",
        "url": service.url,
        "apiKey": "proxy-key-4711",
        "language": "en",
        "entities": "PERSON\nUS_SSN",
        "scoreThreshold": "0.7",
        "direction": "both",
        "onFailure": "open",
        "timeoutSeconds": "1.5",
    }
    assert adam.send(new, fields).status_code == 303
    rule = CustomRule.objects.get()
    assert rule.config == {
        "type": "presidio",
        "url": service.url,
        "language": "en",
        "entities": ["PERSON", "US_SSN"],
        "scoreThreshold": 0.7,
        "direction": "both",
        "onFailure": "open",
        "timeoutSeconds": 1.5,
        "secrets": ["apiKey"],
    }
    stored = bytes(rule.encrypted_secrets)
    one = page(world.acme, f"guardrails/rules/{rule.id}")
    shown = adam.open(one).content.decode()
    assert ("proxy-key-4711" in shown, "Stored; leave empty to keep it" in shown) == (False, True)
    refused = adam.send(one, {**fields, "scoreThreshold": "high"})
    assert (refused.status_code, "proxy-key-4711" in refused.content.decode()) == (400, False)
    assert adam.send(one, {**fields, "apiKey": "", "scoreThreshold": "1"}).status_code == 303
    rule.refresh_from_db()
    assert (rule.config["scoreThreshold"], bytes(rule.encrypted_secrets)) == (1.0, stored)


@pytest.mark.parametrize("kind", sorted(OUTSIDE_FIELDS))
def test_the_form_of_a_service_has_all_of_its_configuration(kind: str) -> None:
    type_ = outside_types()[kind]
    names = {field.name for field in OUTSIDE_FIELDS[kind]}
    given = {"url": "https://x.example", "region": "eu-west-1", "guardrailId": "g"}
    given |= {"model": "m"} if kind == "model" else {"template": "projects/p/locations/l/templates/t"}
    read = type_.read_config(given)
    derived = {"url"} if kind in ("bedrock_guardrail", "model_armor") else set()
    assert names == {*read, *type_.SECRETS, "direction", "onFailure", "timeoutSeconds"} - derived


def test_there_is_a_form_for_each_service() -> None:
    assert set(OUTSIDE_FIELDS) == set(outside_types())
    assert set(CustomRule.Type.values) == set(outside_types()) | set(custom_types())


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("custom_regex", {"pattern": "("}, "missing"),
        ("blocked_terms", {"terms": ""}, "Must be a list of 1 to 1000 texts"),
        ("blocked_terms", {"terms": "fine\n((", "matchType": "regex"}, "“((”: missing )"),
        ("topic_restriction", {"blockedTopics": "", "allowedTopics": ""}, "Must name a topic"),
    ],
)
def test_a_rule_that_cannot_be_is_told_and_the_form_keeps_what_was_written(
    world: World, adam: Visitor, kind: str, fields: dict[str, str], said: str
) -> None:
    answer = adam.send(page(world.acme, f"guardrails/rules/new/{kind}"), {"name": "kept", **fields})
    assert answer.status_code == 400
    assert said in words(answer)
    assert "config." not in words(answer)
    assert 'value="kept"' in answer.content.decode()
    assert CustomRule.objects.count() == 0


def test_a_refused_form_keeps_what_it_said_of_each_rule(world: World, adam: Visitor) -> None:
    said = {"rule.secrets.enabled": ["false"], "rule.secrets.action": "warn", "rule.secrets.observe": ["false", "true"]}
    answer = adam.send(page(world.acme, "guardrails"), {**said, "maxFileSizeMb": "big"})
    states = {rule.id: state for rule, state, _ in answer.context["rules"]}
    assert (answer.status_code, states["secrets"]) == (400, {"enabled": False, "action": "warn", "observe": True})
    assert states["jailbreak"]["enabled"] is True
    assert GuardrailConfig.objects.count() == 0


def test_a_priority_of_zero_stays_and_neither_it_nor_the_name_is_emptied(world: World, adam: Visitor) -> None:
    new = page(world.acme, "guardrails/rules/new/blocked_terms")
    assert 'name="priority" value="100"' in adam.open(new).content.decode()
    adam.send(new, {**TERMS, "priority": "0"})
    rule = CustomRule.objects.get()
    one = page(world.acme, f"guardrails/rules/{rule.id}")
    assert 'name="priority" value="0"' in adam.open(one).content.decode()
    emptied = adam.send(one, {**TERMS, "name": " ", "priority": "", "action": "warn"})
    assert emptied.context["form"].errors == {"name": "Required", "priority": "Required"}
    rule.refresh_from_db()
    assert (rule.name, rule.priority, rule.action) == ("House words", 0, "block")


def test_topics_keep_their_synonyms_when_a_form_changes_them(world: World, adam: Visitor) -> None:
    config = {"blockedTopics": ["gambling", "weather"], "synonyms": {"gambling": ["casino"], "weather": ["rain"]}}
    rule = CustomRule.objects.create(
        organization=world.acme, name="t", type="topic_restriction", config={**config, "allowedTopics": []}
    )
    adam.send(page(world.acme, f"guardrails/rules/{rule.id}"), {"name": "t", "blockedTopics": "gambling"})
    rule.refresh_from_db()
    assert (rule.config["blockedTopics"], rule.config["synonyms"]) == (["gambling"], {"gambling": ["casino"]})


def test_a_text_is_tried_and_what_is_found_in_it_is_marked(world: World, adam: Visitor) -> None:
    adam.send(page(world.acme, "guardrails/rules/new/blocked_terms"), TERMS)
    answer = adam.send(page(world.acme, "guardrails/try"), {"content": f"{HOSTILE} about moonshot, thanks"})
    content = answer.content.decode()
    assert answer.context["pieces"] == [(f"{HOSTILE} about ", False), ("moonshot", True), (", thanks", False)]
    assert "<mark>moonshot</mark>" in content
    assert HOSTILE not in content
    assert "A request with this text would be refused" in words(answer)
    assert Violation.objects.count() == 0
    passes = adam.send(page(world.acme, "guardrails/try"), {"content": "Good morning"})
    assert "Nothing was found" in words(passes)


def test_violations_are_counted_filtered_and_text_alone(world: World, adam: Visitor) -> None:
    for taken, model in (("blocked", HOSTILE), ("redacted", "gpt-5"), ("observed", "quiet-model")):
        Violation.objects.create(
            organization_id=world.acme.id,
            log_id=new_id(),
            rule_id="system:secrets",
            rule_name=HOSTILE,
            category="secrets",
            action_taken=taken,
            matched_pattern=HOSTILE,
            matched_content=HOSTILE,
            content_hash="x",
            model=model,
            created_at=datetime.now(UTC),
        )
    shown = adam.open(page(world.acme, "guardrails/violations"))
    assert {row.model for row in shown.context["rows"]} == {HOSTILE, "gpt-5"}
    assert HOSTILE not in shown.content.decode()
    counted = {"blocked": 1, "neutralized": 0, "redacted": 1, "warned": 0, "observed": 1}
    assert shown.context["counts"] == counted
    for query, models in (({"actionTaken": "observed"}, {"quiet-model"}), ({"endDate": "2020-01-01"}, set())):
        rows = adam.open(page(world.acme, "guardrails/violations"), **query).context["rows"]
        assert {row.model for row in rows} == models
    first = adam.open(page(world.acme, "guardrails/violations"), limit="1")
    second = adam.client.get(f"{page(world.acme, 'guardrails/violations')}?{first.context['following']}")
    assert {row.model for one in (first, second) for row in one.context["rows"]} == {HOSTILE, "gpt-5"}
    lost = adam.open(page(world.acme, "guardrails/violations"), cursor="x")
    assert (lost.status_code, "cursor: Must be the nextCursor of an earlier answer" in words(lost)) == (400, True)


def test_other_plans_are_told_which_has_guardrails_and_change_nothing(world: World) -> None:
    adam = Visitor(world.adam)
    for path in ("", "/rules", "/try", "/violations"):
        shown = adam.open(page(world.acme, f"guardrails{path}"))
        assert (shown.status_code, "Guardrails need the enterprise plan" in words(shown)) == (200, True)
    for path in ("guardrails", "guardrails/reset", "guardrails/try", "guardrails/rules/new/blocked_terms"):
        assert adam.send(page(world.acme, path), {**TERMS, "content": "x"}).status_code == 403, path
    assert (GuardrailConfig.objects.count(), CustomRule.objects.count()) == (0, 0)


def test_who_may_not_sees_and_changes_nothing(world: World, adam: Visitor) -> None:
    adam.send(page(world.acme, "guardrails/rules/new/blocked_terms"), TERMS)
    rule = CustomRule.objects.get()
    forms: dict[str, dict[str, Any]] = {
        "guardrails": {"enabled": "false"},
        "guardrails/reset": {},
        "guardrails/try": {"content": "x"},
        "guardrails/rules/new/blocked_terms": TERMS,
        f"guardrails/rules/{rule.id}": {**TERMS, "name": "mine"},
        f"guardrails/rules/{rule.id}/delete": {},
    }
    for user in (world.dana, world.sam):
        for path in ("guardrails", "guardrails/rules", "guardrails/violations", "guardrails/try"):
            assert Visitor(user).open(page(world.acme, path)).status_code == 403
        for path, fields in forms.items():
            assert Visitor(user).send(page(world.acme, path), fields).status_code == 403, path
    world.elsewhere.plan = Plan.ENTERPRISE
    world.elsewhere.save()
    assert Visitor(world.sam).send(page(world.elsewhere, f"guardrails/rules/{rule.id}/delete")).status_code == 404
    rule.refresh_from_db()
    assert (rule.name, CustomRule.objects.count(), GuardrailConfig.objects.count()) == ("House words", 1, 0)
