"""Access rules of API keys: creating, listing, changing and removing them (section 4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from apps.keys.models import ApiKey, IamRule
from tests.support.cast import Caller, World, make_key, signed_in

MODELS = {"models": ["echo", "reason"]}


@pytest.fixture
def key(world: World) -> ApiKey:
    """A key of Dana's."""
    return make_key(world.dana, world.project).key


@pytest.fixture
def dana(world: World) -> Caller:
    """Dana, signed in."""
    return signed_in(world.dana)


def create(caller: Caller, key: ApiKey, rule_type: str = "allow_models", value: Any = MODELS, **more: Any) -> Any:
    """Ask for a rule of the key; return the response."""
    return caller.post(f"/keys/api/{key.id}/iam", {"ruleType": rule_type, "ruleValue": value, **more})


def test_one_is_created_active(dana: Caller, key: ApiKey) -> None:
    response = create(dana, key)
    assert response.status_code == 200
    row = IamRule.objects.get()
    rule = {
        "id": str(row.id),
        "apiKeyId": str(key.id),
        "ruleType": "allow_models",
        "ruleValue": MODELS,
        "status": "active",
        "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
        "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
    }
    assert response.json() == {"message": "IAM rule created", "rule": rule}
    assert dana.get(f"/keys/api/{key.id}/iam").json() == {"rules": [rule]}


def test_one_may_begin_inactive(dana: Caller, key: ApiKey) -> None:
    assert create(dana, key, status="inactive").json()["rule"]["status"] == "inactive"


@pytest.mark.parametrize(
    ("rule_type", "value"),
    [
        ("deny_models", {"models": ["echo"]}),
        ("allow_providers", {"providers": ["sandbox"]}),
        ("deny_providers", {"providers": ["sandbox", "openai", "custom:our-own"]}),
        ("allow_pricing", {"pricingType": "free"}),
        ("deny_pricing", {"pricingType": "paid", "maxInputPrice": 2.5, "maxOutputPrice": "10"}),
        ("allow_mcp_servers", {"mcpServers": ["tickets", "files/read file", "files/a/b"]}),
        ("deny_mcp_servers", {"mcpServers": ["all"]}),
    ],
)
def test_the_value_is_kept_as_it_was_given(dana: Caller, key: ApiKey, rule_type: str, value: Any) -> None:
    assert create(dana, key, rule_type, value).json()["rule"]["ruleValue"] == value
    assert IamRule.objects.get().rule_value == value


@pytest.mark.parametrize(
    ("rule_type", "value", "path", "message"),
    [
        ("allow_models", {}, "ruleValue.models", "Required"),
        ("allow_models", {"models": []}, "ruleValue.models", "Must be a list of 1 to 500 ids"),
        ("allow_models", {"models": "echo"}, "ruleValue.models", "Must be a list of 1 to 500 ids"),
        ("allow_models", {"models": ["x"] * 501}, "ruleValue.models", "Must be a list of 1 to 500 ids"),
        ("deny_models", {"models": ["a", 5]}, "ruleValue.models[1]", "Must be a string of 1 to 255 characters"),
        ("deny_models", {"models": [""]}, "ruleValue.models[0]", "Must be a string of 1 to 255 characters"),
        ("deny_models", {"models": ["a\0"]}, "ruleValue.models[0]", "Must be a string of 1 to 255 characters"),
        ("allow_providers", {"models": ["a"]}, "ruleValue.models", "Not a field of allow_providers"),
        ("deny_providers", {}, "ruleValue.providers", "Required"),
        *(
            (
                rule_type,
                {rule_type.partition("_")[2]: ["openai", name]},
                f"ruleValue.{rule_type.partition('_')[2]}[1]",
                "MCP servers have rules of their own: allow_mcp_servers and deny_mcp_servers, without mcp:",
            )
            for rule_type in ("allow_models", "deny_models", "allow_providers", "deny_providers")
            for name in ("mcp:files", "mcp:files/read")
        ),
        *(
            (
                rule_type,
                {"providers": [name]},
                "ruleValue.providers[0]",
                "Must be the id of a provider, such as openai, or custom: and the name of your own",
            )
            for rule_type in ("allow_providers", "deny_providers")
            for name in ("OpenAI", "openai/gpt-5", "tool:x", "custom:", "open ai", " ")
        ),
        ("deny_mcp_servers", {}, "ruleValue.mcpServers", "Required"),
        ("deny_mcp_servers", {"providers": ["tickets"]}, "ruleValue.providers", "Not a field of deny_mcp_servers"),
        (
            "deny_mcp_servers",
            {"mcpServers": ["tickets", "mcp:tickets"]},
            "ruleValue.mcpServers[1]",
            "MCP servers have rules of their own: allow_mcp_servers and deny_mcp_servers, without mcp:",
        ),
        *(
            (
                rule_type,
                {"mcpServers": [name]},
                "ruleValue.mcpServers[0]",
                "Must be the name of an MCP server, such as tickets, or a tool of one, such as tickets/search; or all",
            )
            for rule_type in ("allow_mcp_servers", "deny_mcp_servers")
            for name in ("Tickets", "tickets/", "/search", "tickets__search", "*", "x" * 41)
        ),
        ("allow_pricing", {}, "ruleValue.pricingType", "Required"),
        ("allow_pricing", {"pricingType": "cheap"}, "ruleValue.pricingType", "Must be free or paid"),
        ("deny_pricing", {"pricingType": []}, "ruleValue.pricingType", "Must be free or paid"),
        *(
            (
                "allow_pricing",
                {"pricingType": "paid", "maxInputPrice": price},
                "ruleValue.maxInputPrice",
                "Must be a price from 0 to 1000000 USD per million tokens",
            )
            for price in (-1, "NaN", "Infinity", "much", True, None, [], 1e300, "1" * 50)
        ),
        ("allow_models", None, "ruleValue", "Must not be null"),
        ("allow_models", ["echo"], "ruleValue", "Must be an object"),
        (
            "allow_all",
            {},
            "ruleType",
            "Must be one of: allow_models, deny_models, allow_pricing, deny_pricing, allow_providers, deny_providers,"
            " allow_mcp_servers, deny_mcp_servers",
        ),
    ],
)
def test_a_value_that_is_not_of_its_type_is_400(
    dana: Caller, key: ApiKey, rule_type: str, value: Any, path: str, message: str
) -> None:
    response = create(dana, key, rule_type, value)
    assert response.status_code == 400
    assert {"path": path, "message": message} in response.json()["issues"]
    assert not IamRule.objects.exists()


@pytest.mark.parametrize("missing", ["ruleType", "ruleValue"])
def test_type_and_value_are_required(dana: Caller, key: ApiKey, missing: str) -> None:
    body = {"ruleType": "allow_models", "ruleValue": MODELS}
    del body[missing]
    response = dana.post(f"/keys/api/{key.id}/iam", body)
    assert (response.status_code, response.json()["issues"]) == (400, [{"path": missing, "message": "Required"}])
    assert not IamRule.objects.exists()


def test_a_key_has_at_most_a_hundred(dana: Caller, key: ApiKey) -> None:
    IamRule.objects.bulk_create(IamRule(api_key=key, rule_type="deny_models", rule_value=MODELS) for _ in range(100))
    response = create(dana, key)
    assert (response.status_code, response.json()) == (400, {"message": "Maximum 100 IAM rules per API key"})
    assert IamRule.objects.count() == 100


class TestChanging:
    @pytest.fixture
    def rule(self, key: ApiKey) -> IamRule:
        """A rule of the key."""
        return IamRule.objects.create(api_key=key, rule_type="allow_models", rule_value=MODELS)

    def test_status_type_and_value_can_be_changed(self, dana: Caller, key: ApiKey, rule: IamRule) -> None:
        path = f"/keys/api/{key.id}/iam/{rule.id}"
        for change in (
            {"status": "inactive"},
            {"ruleType": "deny_models"},
            {"ruleValue": {"models": ["fast"]}},
            {"ruleType": "allow_pricing", "ruleValue": {"pricingType": "free"}, "status": "active"},
        ):
            response = dana.send("PATCH", path, change)
            assert (response.status_code, response.json()["message"]) == (200, "IAM rule updated")
            assert {name: response.json()["rule"][name] for name in change} == change
        rule.refresh_from_db()
        assert (rule.rule_type, rule.rule_value, rule.status) == ("allow_pricing", {"pricingType": "free"}, "active")

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"status": "gone"}, "status"),
            ({"ruleType": "allow_providers", "status": "inactive"}, "ruleValue.models"),
            ({"ruleValue": {"providers": ["sandbox"]}}, "ruleValue.providers"),
        ],
    )
    def test_what_would_not_fit_is_400(
        self, dana: Caller, key: ApiKey, rule: IamRule, change: dict[str, Any], path: str
    ) -> None:
        before = IamRule.objects.values().get()
        response = dana.send("PATCH", f"/keys/api/{key.id}/iam/{rule.id}", change)
        assert response.status_code == 400
        assert response.json()["issues"][0]["path"] == path
        assert IamRule.objects.values().get() == before

    def test_one_is_removed(self, dana: Caller, key: ApiKey, rule: IamRule) -> None:
        response = dana.send("DELETE", f"/keys/api/{key.id}/iam/{rule.id}", {})
        assert (response.status_code, response.json()) == (200, {"message": "IAM rule deleted"})
        assert not IamRule.objects.exists()
        assert dana.get(f"/keys/api/{key.id}/iam").json() == {"rules": []}
