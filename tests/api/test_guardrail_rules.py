"""Custom guardrail rules: adding, listing, changing, removing (section 4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from apps.guardrails import custom
from apps.guardrails.custom import blocked_terms
from apps.guardrails.models import CustomRule
from apps.kernel.ids import new_id
from apps.kernel.valkey import generation
from apps.organizations.models import AuditEntry, Organization, Plan
from tests.support.cast import Caller, World, signed_in

TERMS = {"terms": ["Project Falcon"], "matchType": "exact", "caseSensitive": False}
REGEX = {"pattern": "ticket-[0-9]{4}"}
TOPICS = {"blockedTopics": ["gambling"], "allowedTopics": []}
ITS_OWN_TYPE = "Must be custom_regex, as the rule's own type"
CONFIGS = {"blocked_terms": TERMS, "custom_regex": REGEX, "topic_restriction": TOPICS}


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


def add(caller: Caller, acme: Organization, **changed: Any) -> Any:
    """Ask for a rule that blocks tickets, changed; return the response. A field that is ... is left out."""
    body = {"name": "Tickets", "type": "custom_regex", "config": REGEX, **changed}
    return caller.post(f"/guardrails/rules/{acme.id}", {name: one for name, one in body.items() if one is not ...})


def rules(caller: Caller, acme: Organization) -> list[dict[str, Any]]:
    """Return the rules that are listed."""
    response = caller.get(f"/guardrails/rules/{acme.id}")
    assert response.status_code == 200
    assert set(response.json()) == {"rules"}
    return list(response.json()["rules"])


class TestAdding:
    def test_one_blocks_at_the_priority_100(self, adam: Caller, acme: Organization) -> None:
        response = add(adam, acme)
        row = CustomRule.objects.get()
        rule = {
            "id": str(row.id),
            "organizationId": str(acme.id),
            "name": "Tickets",
            "type": "custom_regex",
            "config": {"type": "custom_regex", **REGEX},
            "priority": 100,
            "enabled": True,
            "action": "block",
            "observe": False,
            "restore": True,
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
        }
        assert (response.status_code, response.json()) == (200, rule)
        assert rules(adam, acme) == [rule]

    @pytest.mark.parametrize("rule_type", sorted(CONFIGS))
    def test_the_configuration_carries_the_type(self, adam: Caller, acme: Organization, rule_type: str) -> None:
        config = {**CONFIGS[rule_type], "type": rule_type}
        for given in (CONFIGS[rule_type], config):
            kept = add(adam, acme, type=rule_type, config=given).json()["config"]
            assert {name: kept[name] for name in config} == config

    @pytest.mark.parametrize(
        "chosen",
        [
            {"priority": 0},
            {"priority": -1_000_000},
            {"priority": 1_000_000},
            {"action": "redact"},
            {"action": "warn"},
            {"action": "allow"},
            {"enabled": False},
            {"observe": True},
            {"restore": False},
            {"name": "n" * 255},
        ],
        ids=lambda chosen: str(chosen)[:30],
    )
    def test_what_is_chosen_is_kept(self, adam: Caller, acme: Organization, chosen: dict[str, Any]) -> None:
        made = add(adam, acme, **chosen).json()
        assert {name: made[name] for name in chosen} == chosen

    def test_higher_priorities_are_listed_first_then_older_rules(self, adam: Caller, acme: Organization) -> None:
        for name, priority in (("a", 5), ("b", 200), ("c", 5), ("d", 100)):
            add(adam, acme, name=name, priority=priority)
        assert [rule["name"] for rule in rules(adam, acme)] == ["b", "d", "a", "c"]

    @pytest.mark.parametrize(
        ("changed", "path", "message"),
        [
            ({"name": ...}, "name", "Required"),
            ({"name": " "}, "name", "Must not be blank"),
            ({"name": "n" * 256}, "name", "Must be at most 255 characters long"),
            ({"type": ...}, "type", "Required"),
            ({"type": "regex"}, "type", f"Must be one of: {', '.join(CustomRule.Type.values)}"),
            ({"config": ...}, "config", "Required"),
            ({"config": "x"}, "config", "Must be an object"),
            (
                {"config": {**REGEX, "type": "blocked_terms"}},
                "config.type",
                ITS_OWN_TYPE,
            ),
            ({"config": {**REGEX, "type": None}}, "config.type", ITS_OWN_TYPE),
            ({"priority": "5"}, "priority", "Must be a whole number"),
            ({"priority": 1.5}, "priority", "Must be a whole number"),
            ({"priority": 1_000_001}, "priority", "Must be at most 1000000"),
            ({"action": "mask"}, "action", "Must be one of: block, neutralize, redact, warn, allow"),
            ({"enabled": "on"}, "enabled", "Must be true or false"),
            ({"observe": 1}, "observe", "Must be true or false"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, adam: Caller, acme: Organization, changed: dict[str, Any], path: str, message: str
    ) -> None:
        recorded = AuditEntry.objects.count()
        response = add(adam, acme, **changed)
        assert (response.status_code, response.json()["issues"]) == (400, [{"path": path, "message": message}])
        assert not CustomRule.objects.exists()
        assert AuditEntry.objects.count() == recorded

    @pytest.mark.parametrize(
        ("rule_type", "config", "path"),
        [
            ("custom_regex", {}, "config.pattern"),
            ("custom_regex", {"pattern": "("}, "config.pattern"),
            ("custom_regex", {"pattern": r"(a)\1"}, "config.pattern"),
            ("custom_regex", {"pattern": 5}, "config.pattern"),
            ("custom_regex", {"pattern": "a\0b"}, "config.pattern"),
            ("blocked_terms", {**TERMS, "terms": ["fine", "a\0b"]}, "config.terms"),
            ("topic_restriction", {**TOPICS, "blockedTopics": ["a\0b"]}, "config.blockedTopics"),
            ("blocked_terms", {"matchType": "exact"}, "config.terms"),
            ("blocked_terms", {**TERMS, "terms": []}, "config.terms"),
            ("blocked_terms", {**TERMS, "terms": ["fine", ""]}, "config.terms[1]"),
            ("blocked_terms", {**TERMS, "matchType": "fuzzy"}, "config.matchType"),
            ("blocked_terms", {**TERMS, "caseSensitive": "no"}, "config.caseSensitive"),
            ("blocked_terms", {**TERMS, "terms": ["fine", "("], "matchType": "regex"}, "config.terms[1]"),
            ("topic_restriction", {**TOPICS, "blockedTopics": "gambling"}, "config.blockedTopics"),
            ("topic_restriction", {**TOPICS, "allowedTopics": [5]}, "config.allowedTopics[0]"),
        ],
    )
    def test_a_configuration_that_is_not_of_its_type_is_refused_by_field(
        self, adam: Caller, acme: Organization, rule_type: str, config: dict[str, Any], path: str
    ) -> None:
        response = add(adam, acme, type=rule_type, config=config)
        assert (response.status_code, response.json()["issues"][0]["path"]) == (400, path)
        assert not CustomRule.objects.exists()

    def test_what_is_too_much_beside_the_other_rules_is_refused(
        self, adam: Caller, acme: Organization, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rule that is switched off counts: it may be switched on."""
        monkeypatch.setattr(blocked_terms, "MAX_CHARACTERS", 100)
        large = {"terms": ["f" * 60], "matchType": "contains"}
        small = add(adam, acme, type="blocked_terms", config={"terms": ["small"]}).json()
        assert add(adam, acme, type="blocked_terms", config=large, enabled=False).status_code == 200
        for response in (
            add(adam, acme, type="blocked_terms", config=large),
            adam.send("PATCH", f"/guardrails/rules/{acme.id}/{small['id']}", {"config": large}),
        ):
            assert (response.status_code, response.json()["issues"][0]["path"]) == (400, "config.terms")
        assert [rule.config["terms"] for rule in CustomRule.objects.order_by("id")] == [["small"], large["terms"]]

    @pytest.mark.parametrize(
        ("rule_type", "config", "path"),
        [
            ("blocked_terms", TERMS, "config.terms"),
            ("custom_regex", REGEX, "config.pattern"),
            ("topic_restriction", TOPICS, "config.blockedTopics"),
        ],
    )
    def test_what_takes_too_much_memory_is_refused_by_field(
        self,
        adam: Caller,
        acme: Organization,
        monkeypatch: pytest.MonkeyPatch,
        rule_type: str,
        config: dict[str, Any],
        path: str,
    ) -> None:
        monkeypatch.setattr(custom, "MAX_TYPE_BYTES", 1000)
        response = add(adam, acme, type=rule_type, config=config)
        assert (response.status_code, response.json()["issues"]) == (
            400,
            [
                {
                    "path": path,
                    "message": f"All rules of the type {rule_type} together take 1 MB of memory, "
                    "and the maximum is 0 MB: shorten this one, or remove others",
                }
            ],
        )
        assert not CustomRule.objects.exists()

    def test_an_organization_has_at_most_500(self, adam: Caller, acme: Organization, world: World) -> None:
        for organization, count in ((acme, 499), (world.elsewhere, 500)):
            CustomRule.objects.bulk_create(
                CustomRule(organization=organization, name="one", type="custom_regex", config=REGEX)
                for _ in range(count)
            )
        assert add(adam, acme).status_code == 200
        response = add(adam, acme)
        assert (response.status_code, response.json()) == (
            400,
            {"message": "Maximum 500 guardrail rules per organization"},
        )
        assert CustomRule.objects.filter(organization=acme).count() == 500

    def test_under_one_idempotency_key_is_done_once(self, adam: Caller, acme: Organization) -> None:
        body = {"name": "Tickets", "type": "custom_regex", "config": REGEX}
        first, again = (adam.post(f"/guardrails/rules/{acme.id}", body, **{"Idempotency-Key": "k"}) for _ in range(2))
        assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
        assert CustomRule.objects.count() == 1


class TestChanging:
    @pytest.fixture
    def path(self, adam: Caller, acme: Organization) -> str:
        """The path of a rule."""
        return f"/guardrails/rules/{acme.id}/{add(adam, acme).json()['id']}"

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "Other"},
            {"config": {"type": "custom_regex", "pattern": "other"}},
            {"priority": 7},
            {"enabled": False},
            {"action": "warn"},
            {"observe": True},
            {"type": "custom_regex"},
            {},
        ],
        ids=str,
    )
    def test_changes_what_is_named_and_nothing_else(
        self, adam: Caller, acme: Organization, path: str, change: dict[str, Any]
    ) -> None:
        [before] = rules(adam, acme)
        response = adam.send("PATCH", path, change)
        assert response.status_code == 200
        assert response.json() == {**before, **change, "updatedAt": response.json()["updatedAt"]}
        assert response.json()["updatedAt"] > before["updatedAt"]
        assert rules(adam, acme) == [response.json()]

    @pytest.mark.parametrize(
        ("change", "path_of_issue"),
        [
            ({"name": ""}, "name"),
            ({"type": "blocked_terms"}, "type"),
            ({"type": "blocked_terms", "config": TERMS}, "type"),
            ({"config": TERMS}, "config.pattern"),
            ({"config": {"pattern": "["}}, "config.pattern"),
            ({"config": None}, "config"),
            ({"priority": None}, "priority"),
            ({"action": None}, "action"),
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(
        self, adam: Caller, path: str, change: dict[str, Any], path_of_issue: str
    ) -> None:
        before, recorded = CustomRule.objects.values().get(), AuditEntry.objects.count()
        response = adam.send("PATCH", path, {"enabled": False, **change})
        assert response.status_code == 400
        assert path_of_issue in [issue["path"] for issue in response.json()["issues"]]
        assert CustomRule.objects.values().get() == before
        assert AuditEntry.objects.count() == recorded

    def test_one_is_removed(self, adam: Caller, acme: Organization, path: str) -> None:
        kept = add(adam, acme, name="Kept").json()
        response = adam.send("DELETE", path, {})
        assert (response.status_code, response.json()) == (200, {"success": True})
        assert rules(adam, acme) == [kept]
        for method in ("PATCH", "DELETE"):
            again = adam.send(method, path, {"enabled": False})
            assert (again.status_code, again.json()) == (404, {"message": "Guardrail rule not found"})

    def test_of_another_organization_is_404(self, world: World, acme: Organization, adam: Caller) -> None:
        other = CustomRule.objects.create(organization=world.elsewhere, name="x", type="custom_regex", config=REGEX)
        for identifier in (other.id, new_id(), "nonsense"):
            for method in ("PATCH", "DELETE"):
                response = adam.send(method, f"/guardrails/rules/{acme.id}/{identifier}", {"enabled": False})
                assert (response.status_code, response.json()) == (404, {"message": "Guardrail rule not found"})
        other.refresh_from_db()
        assert other.enabled

    def test_makes_policies_stale(
        self, adam: Caller, acme: Organization, path: str, django_capture_on_commit_callbacks: Any
    ) -> None:
        scope = generation.organization_scope(acme.id)
        for ask in (
            lambda: add(adam, acme, name="Another"),
            lambda: adam.send("PATCH", path, {"priority": 5}),
            lambda: adam.send("DELETE", path, {}),
        ):
            before = generation.read_generation_token(scope)
            with django_capture_on_commit_callbacks(execute=True):
                assert ask().status_code == 200
            assert generation.read_generation_token(scope) != before
