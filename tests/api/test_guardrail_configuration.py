"""The guardrail configuration: read, changed in part, reset; and the list of system rules (section 4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from apps.guardrails.models import CustomRule, GuardrailConfig
from apps.guardrails.rules import system_rules
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.organizations.models import AuditEntry, Organization, Plan
from tests.support.cast import Caller, World, join, signed_in
from tests.support.documents import DOCX, ODT, PPTX, XLSX
from tests.support.guardrails_in_force import SPECIFIED_RULES

# Every rule with its category and defaults; those of the specification's six rules come from there.
DESCRIBED_RULES = {
    **{rule.id: (rule.category, rule.default_enabled, rule.default_action) for rule in system_rules().values()},
    **SPECIFIED_RULES,
}
DEFAULT_RULES: dict[str, dict[str, Any]] = {
    name: {"enabled": enabled, "action": action} for name, (_, enabled, action) in DESCRIBED_RULES.items()
}
OBSERVING = ("attack_model", "tool_argument_origin")
for observing in OBSERVING:
    DEFAULT_RULES[observing]["observe"] = True
NEUTRALIZED = {"tool_result": "neutralize", "document": "neutralize"}
DEFAULT_ROLES = {
    "prompt_injection": NEUTRALIZED,
    "jailbreak": NEUTRALIZED,
    "indirect_injection": {"tool_result": "warn", "document": "neutralize"},
    "pii_detection": {"system": "allow", "tool_result": "allow"},
    "secrets": {"tool_result": "warn", "assistant": "warn"},
    "document_leakage": {"tool_result": "neutralize"},
    "file_types": {"tool_result": "neutralize"},
}
DEFAULTS = {
    "enabled": True,
    "systemRules": DEFAULT_RULES,
    "maxFileSizeMb": 10,
    "allowedFileTypes": [
        *("image/jpeg", "image/png", "image/gif", "image/webp"),
        *("audio/wav", "audio/mpeg", "audio/mp4", "audio/ogg", "audio/webm", "audio/flac"),
        *("application/pdf", DOCX, XLSX, PPTX, ODT),
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.oasis.opendocument.presentation",
        *("text/plain", "text/html", "application/json", "application/xml"),
    ],
    "piiAction": "redact",
    "scanOutput": False,
}


@pytest.fixture
def acme(world: World) -> Organization:
    """Acme, on the plan enterprise."""
    world.acme.plan = Plan.ENTERPRISE
    world.acme.save()
    return world.acme


@pytest.fixture
def adam(world: World) -> Caller:
    """Adam, signed in."""
    return signed_in(world.adam)


def put(caller: Caller, organization: Organization, body: Any) -> Any:
    """Ask for changes of the configuration; return the response."""
    return caller.send("PUT", f"/guardrails/config/{organization.id}", body)


def chosen(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return what people choose in a configuration."""
    return {name: value for name, value in configuration.items() if name in DEFAULTS}


class TestReading:
    def test_is_null_when_none_exists(self, adam: Caller, acme: Organization) -> None:
        response = adam.get(f"/guardrails/config/{acme.id}")
        assert (response.status_code, response.content) == (200, b"null")
        assert response.headers["Content-Type"] == "application/json"
        assert not GuardrailConfig.objects.exists()

    def test_is_whole(self, adam: Caller, acme: Organization) -> None:
        row = GuardrailConfig.objects.create(organization=acme)
        assert adam.get(f"/guardrails/config/{acme.id}").json() == {
            "id": str(row.id),
            "organizationId": str(acme.id),
            **DEFAULTS,
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
        }

    def test_a_rule_that_was_never_chosen_has_its_default(self, adam: Caller, acme: Organization) -> None:
        chosen_before = {"jailbreak": {"enabled": False, "action": "warn"}}
        GuardrailConfig.objects.create(organization=acme, system_rules=chosen_before)
        shown = adam.get(f"/guardrails/config/{acme.id}").json()["systemRules"]
        assert shown == {**DEFAULT_RULES, **chosen_before}


class TestChanging:
    def test_the_first_time_creates_it(self, adam: Caller, acme: Organization) -> None:
        response = put(adam, acme, {"maxFileSizeMb": 2.5})
        assert (response.status_code, chosen(response.json())) == (200, {**DEFAULTS, "maxFileSizeMb": 2.5})
        assert adam.get(f"/guardrails/config/{acme.id}").json() == response.json()
        assert GuardrailConfig.objects.count() == 1

    def test_with_nothing_gives_the_defaults(self, adam: Caller, acme: Organization) -> None:
        assert chosen(put(adam, acme, {}).json()) == DEFAULTS

    @pytest.mark.parametrize(
        "change",
        [
            {"enabled": False},
            {"maxFileSizeMb": 0.01},
            {"maxFileSizeMb": 1000},
            {"allowedFileTypes": []},
            {"allowedFileTypes": ["application/pdf", "image/svg+xml", "application/vnd.ms-excel"]},
            {"piiAction": "block"},
            {"piiAction": None},
            {"scanOutput": True},
        ],
        ids=str,
    )
    def test_changes_what_is_named_and_nothing_else(
        self, adam: Caller, acme: Organization, change: dict[str, Any]
    ) -> None:
        before = put(adam, acme, {}).json()
        response = put(adam, acme, change)
        assert (response.status_code, chosen(response.json())) == (200, {**DEFAULTS, **change})
        assert (response.json()["id"], response.json()["createdAt"]) == (before["id"], before["createdAt"])
        assert response.json()["updatedAt"] > before["updatedAt"]

    def test_of_a_rule_reaches_down_to_a_field(self, adam: Caller, acme: Organization) -> None:
        put(adam, acme, {"systemRules": {"secrets": {"action": "redact"}, "document_leakage": {"enabled": True}}})
        response = put(adam, acme, {"systemRules": {"secrets": {"enabled": False}}})
        assert response.json()["systemRules"] == {
            **DEFAULT_RULES,
            "secrets": {"enabled": False, "action": "redact"},
            "document_leakage": {"enabled": True, "action": "warn"},
        }

    def test_a_rule_may_only_observe(self, adam: Caller, acme: Organization) -> None:
        watched = put(adam, acme, {"systemRules": {"jailbreak": {"observe": True}}}).json()["systemRules"]
        assert watched == {**DEFAULT_RULES, "jailbreak": {"enabled": True, "action": "block", "observe": True}}
        acting = put(adam, acme, {"systemRules": {"jailbreak": {"observe": False}}}).json()["systemRules"]
        assert acting == DEFAULT_RULES

    def test_masked_values_come_back_unless_a_rule_says_otherwise(self, adam: Caller, acme: Organization) -> None:
        lasting = put(adam, acme, {"systemRules": {"secrets": {"restore": False}}}).json()["systemRules"]
        assert lasting == {**DEFAULT_RULES, "secrets": {"enabled": True, "action": "block", "restore": False}}
        assert put(adam, acme, {"systemRules": {"secrets": {"restore": True}}}).json()["systemRules"] == DEFAULT_RULES

    def test_a_rule_that_observes_by_itself_may_act(self, adam: Caller, acme: Organization) -> None:
        acting = put(adam, acme, {"systemRules": {"attack_model": {"enabled": True, "observe": False}}}).json()[
            "systemRules"
        ]
        assert acting == {**DEFAULT_RULES, "attack_model": {"enabled": True, "action": "block", "observe": False}}
        assert adam.get(f"/guardrails/config/{acme.id}").json()["systemRules"] == acting

    def test_a_rule_has_actions_by_role(self, adam: Caller, acme: Organization) -> None:
        chosen_roles = {"tool_result": "redact", "earlier_turn": "block"}
        changed = put(adam, acme, {"systemRules": {"secrets": {"roles": chosen_roles}}}).json()["systemRules"]
        assert changed == {**DEFAULT_RULES, "secrets": {"enabled": True, "action": "block", "roles": chosen_roles}}
        changed = put(adam, acme, {"systemRules": {"secrets": {"roles": {"tool_result": None, "user": "warn"}}}})
        assert changed.json()["systemRules"]["secrets"]["roles"] == {"earlier_turn": "block", "user": "warn"}
        changed = put(adam, acme, {"systemRules": {"secrets": {"roles": {"user": None, "earlier_turn": None}}}})
        assert changed.json()["systemRules"] == DEFAULT_RULES

    def test_tools_with_effects_are_listed_by_name(self, adam: Caller, acme: Organization) -> None:
        def change(tools: dict[str, bool]) -> Any:
            changed = put(adam, acme, {"systemRules": {"tool_argument_origin": {"tools": tools}}})
            return changed.json()["systemRules"]["tool_argument_origin"]

        before = DEFAULT_RULES["tool_argument_origin"]
        listed = {"issue_refund": True, "run_report": False}
        assert change(listed) == {**before, "tools": listed}
        # A list is given whole.
        assert change({"x" * 64: True}) == {**before, "tools": {"x" * 64: True}}
        assert change({}) == before

    @pytest.mark.parametrize("action", ["block", "neutralize", "redact", "warn", "allow"])
    def test_the_action_on_personal_data_follows_its_rule(self, adam: Caller, acme: Organization, action: str) -> None:
        changed = put(adam, acme, {"systemRules": {"pii_detection": {"action": action}}}).json()
        assert (changed["piiAction"], changed["systemRules"]["pii_detection"]["action"]) == (action, action)

    def test_unless_it_is_given_as_well_or_is_left_to_the_rule(self, adam: Caller, acme: Organization) -> None:
        rule = {"systemRules": {"pii_detection": {"action": "warn"}}}
        assert put(adam, acme, {**rule, "piiAction": "block"}).json()["piiAction"] == "block"
        assert put(adam, acme, {**rule, "piiAction": None}).json()["piiAction"] is None
        assert put(adam, acme, rule).json()["piiAction"] is None

    def test_types_are_kept_in_small_letters_and_once(self, adam: Caller, acme: Organization) -> None:
        types = ["Image/PNG", "image/png", "application/pdf"]
        assert put(adam, acme, {"allowedFileTypes": types}).json()["allowedFileTypes"] == [
            "image/png",
            "application/pdf",
        ]

    def test_what_is_answered_can_be_sent_back(self, adam: Caller, acme: Organization) -> None:
        before = put(adam, acme, {"systemRules": {"jailbreak": {"observe": True}}, "piiAction": None}).json()
        assert chosen(put(adam, acme, before).json()) == chosen(before)

    @pytest.mark.parametrize(
        ("body", "path", "message"),
        [
            ({"enabled": "yes"}, "enabled", "Must be true or false"),
            ({"enabled": None}, "enabled", "Must not be null"),
            ({"scanOutput": 1}, "scanOutput", "Must be true or false"),
            ({"piiAction": "delete"}, "piiAction", "Must be one of: block, neutralize, redact, warn, allow"),
            *(
                ({"maxFileSizeMb": size}, "maxFileSizeMb", "Must be a number from 0.01 to 1000")
                for size in (0, -1, 1000.01, 1e300, "10", True, [])
            ),
            *(
                ({"allowedFileTypes": types}, "allowedFileTypes", "Must be a list of at most 100 MIME types")
                for types in ("image/png", {}, ["image/png"] * 101)
            ),
            *(
                ({"allowedFileTypes": ["a/b", one]}, "allowedFileTypes[1]", "Must be a MIME type such as image/png")
                for one in ("png", "image/", "/png", "image/png; q=1", "image/*", " image/png", "a/b\n", "", 5, None)
            ),
            ({"systemRules": []}, "systemRules", "Must be an object"),
            (
                {"systemRules": {"jailbreaks": {"enabled": True}}},
                "systemRules.jailbreaks",
                f"Not a system rule; there are {', '.join(sorted(DEFAULT_RULES))}",
            ),
            ({"systemRules": {"secrets": True}}, "systemRules.secrets", "Must be an object"),
            *(
                (
                    {"systemRules": {"tool_argument_origin": {"tools": tools}}},
                    "systemRules.tool_argument_origin.tools",
                    "Must be an object of at most 200 names of 1 to 64 characters, each with true or false",
                )
                for tools in (
                    None,
                    ["send"],
                    {"send": 1},
                    {"": True},
                    {"x" * 65: True},
                    dict.fromkeys(map(str, range(201)), True),
                )
            ),
            *(
                ({"systemRules": {"secrets": {field: value}}}, f"systemRules.secrets.{field}", message)
                for field, value, message in [
                    ("active", True, "Not a field of a system rule"),
                    ("enabled", "true", "Must be true or false"),
                    ("observe", None, "Must be true or false"),
                    ("restore", 0, "Must be true or false"),
                    ("roles", ["user"], "Must be an object of actions by role"),
                    ("tools", {"send": True}, "Not a field of a system rule"),
                    *(
                        ("action", one, "Must be one of block, neutralize, redact, warn, allow")
                        for one in ("BLOCK", None, [], {})
                    ),
                ]
            ),
        ],
    )
    def test_what_cannot_be_is_refused_whole(
        self, adam: Caller, acme: Organization, body: dict[str, Any], path: str, message: str
    ) -> None:
        GuardrailConfig.objects.create(organization=acme)
        before, recorded = GuardrailConfig.objects.values().get(), AuditEntry.objects.count()
        response = put(adam, acme, {"piiAction": "warn", **body})
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": path, "message": message}]
        assert response.json()["message"] == f"Invalid request parameters: {path}: {message}"
        assert GuardrailConfig.objects.values().get() == before
        assert AuditEntry.objects.count() == recorded


class TestResetting:
    def test_returns_it_to_the_defaults(self, adam: Caller, acme: Organization) -> None:
        changes = {
            "enabled": False,
            "systemRules": {"secrets": {"enabled": False, "action": "warn", "observe": True}},
            "maxFileSizeMb": 1,
            "allowedFileTypes": ["application/pdf"],
            "piiAction": None,
            "scanOutput": True,
        }
        before = put(adam, acme, changes).json()
        rule = CustomRule.objects.create(organization=acme, name="mine", type="custom_regex", config={})
        response = adam.post(f"/guardrails/config/{acme.id}/reset")
        assert (response.status_code, chosen(response.json())) == (200, DEFAULTS)
        assert (response.json()["id"], response.json()["createdAt"]) == (before["id"], before["createdAt"])
        assert adam.get(f"/guardrails/config/{acme.id}").json() == response.json()
        assert list(CustomRule.objects.all()) == [rule]

    def test_creates_one_when_there_is_none(self, adam: Caller, acme: Organization) -> None:
        response = adam.post(f"/guardrails/config/{acme.id}/reset")
        assert (response.status_code, chosen(response.json())) == (200, DEFAULTS)
        assert str(GuardrailConfig.objects.get().id) == response.json()["id"]


def test_every_change_makes_policies_stale(
    adam: Caller, acme: Organization, django_capture_on_commit_callbacks: Any
) -> None:
    scope = generation.organization_scope(acme.id)
    for ask in (lambda: put(adam, acme, {}), lambda: adam.post(f"/guardrails/config/{acme.id}/reset")):
        before = generation.read_generation_token(scope)
        with django_capture_on_commit_callbacks(execute=True):
            assert ask().status_code == 200
        assert generation.read_generation_token(scope) != before


class TestSystemRules:
    def test_are_described_to_anybody_who_is_signed_in(self, world: World) -> None:
        response = signed_in(world.sam).get("/guardrails/system-rules")
        assert response.status_code == 200
        told = {rule.pop("id"): rule for rule in response.json()["rules"]}
        assert all(rule.pop("name") for rule in told.values())
        assert told == {
            f"system:{name}": {
                "category": category,
                "defaultEnabled": enabled,
                "defaultAction": action,
                "defaultRoles": DEFAULT_ROLES.get(name, {}),
                "observe": name in OBSERVING,
            }
            for name, (category, enabled, action) in DESCRIBED_RULES.items()
        }


class TestWhoMay:
    PATHS = ("config/{}", "rules/{}", "violations/{}", "stats/{}")

    @pytest.mark.parametrize("plan", [Plan.FREE, Plan.PRO])
    def test_needs_an_enterprise_plan(self, world: World, adam: Caller, plan: Plan) -> None:
        world.acme.plan = plan
        world.acme.save()
        path = f"/guardrails/config/{world.acme.id}"
        asked = [adam.get(f"/guardrails/{one.format(world.acme.id)}") for one in self.PATHS]
        asked += [adam.send("PUT", path, {}), adam.post(f"{path}/reset")]
        asked += [adam.post(f"/guardrails/{one}/{world.acme.id}", {"content": "hello"}) for one in ("rules", "test")]
        for response in asked:
            assert (response.status_code, response.json()) == (
                403,
                {"message": "Guardrails require an enterprise plan"},
            )
        assert not GuardrailConfig.objects.exists()

    def test_who_is_told_what(self, world: World, acme: Organization) -> None:
        for caller, identifier, expected in [
            (
                signed_in(world.dana),
                acme.id,
                (403, "This needs the role admin in the organization; yours is developer"),
            ),
            (signed_in(world.sam), acme.id, (403, "You are not a member of this organization")),
            (signed_in(world.olivia), new_id(), (404, "Organization not found")),
            (signed_in(world.olivia), "nonsense", (404, "Organization not found")),
        ]:
            for path in self.PATHS:
                response = caller.get(f"/guardrails/{path.format(identifier)}")
                assert (response.status_code, response.json()["message"]) == expected

    def test_one_organization_does_not_touch_another(self, world: World, acme: Organization, adam: Caller) -> None:
        world.elsewhere.plan = Plan.ENTERPRISE
        world.elsewhere.save()
        join(world.elsewhere, world.olivia, "owner")
        olivia = signed_in(world.olivia)
        put(adam, acme, {"enabled": False})
        assert olivia.get(f"/guardrails/config/{world.elsewhere.id}").content == b"null"
        put(olivia, world.elsewhere, {"piiAction": "warn"})
        assert chosen(adam.get(f"/guardrails/config/{acme.id}").json()) == {**DEFAULTS, "enabled": False}
