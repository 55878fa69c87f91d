"""Rules that ask a service: their configuration, their secrets, and their address."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apps.guardrails import hooks
from apps.guardrails.actions import MAX_OUTSIDE_RULES
from apps.guardrails.models import CustomRule
from apps.kernel.secrets.encryption import decrypt
from apps.organizations.models import AuditEntry, Organization, Plan
from tests.support.cast import Caller, World, signed_in
from tests.support.guard_service import SECRET, GuardService

COMMON = {"direction": "input", "onFailure": "closed", "timeoutSeconds": 3.0}


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


def add(caller: Caller, acme: Organization, config: dict[str, Any], type: str = "webhook", **fields: Any) -> Any:
    """Ask for a rule; return the response."""
    return caller.post(f"/guardrails/rules/{acme.id}", {"name": "Hook", "type": type, "config": config, **fields})


def secrets_of(rule: CustomRule) -> dict[str, str]:
    """Return the stored secrets of a rule."""
    rule.refresh_from_db()
    return dict(msgspec.json.decode(decrypt(bytes(rule.encrypted_secrets))))


def test_a_secret_is_stored_encrypted_and_never_shown(adam: Caller, acme: Organization, service: GuardService) -> None:
    answer = add(adam, acme, {"url": service.url, "secret": SECRET, "direction": "both"})
    assert answer.status_code == 200
    expected = {"type": "webhook", "url": service.url, "secrets": ["secret"], **COMMON, "direction": "both"}
    assert answer.json()["config"] == expected
    rule = CustomRule.objects.get()
    assert secrets_of(rule) == {"secret": SECRET}
    entry = AuditEntry.objects.latest("id")
    assert entry.action == "guardrail_rule.create"
    listed = adam.get(f"/guardrails/rules/{acme.id}").content
    for shown in (answer.content, listed, str(entry.details).encode(), str(rule.config).encode()):
        assert SECRET.encode() not in shown


@pytest.mark.parametrize(
    ("type", "config", "field", "message"),
    [
        ("webhook", {"secret": SECRET}, "config.url", "Must be an http or https URL of at most 500 characters"),
        ("webhook", {"url": "http://x/"}, "config.secret", "Required"),
        (
            "webhook",
            {"url": "http://x/", "secret": "short"},
            "config.secret",
            "Must be whsec_ followed by 24 to 64 bytes in base64",
        ),
        (
            "webhook",
            {"url": "http://x/", "secret": SECRET, "direction": "up"},
            "config.direction",
            "Must be one of input, output, both",
        ),
        (
            "webhook",
            {"url": "http://x/", "secret": SECRET, "timeoutSeconds": 31},
            "config.timeoutSeconds",
            "Must be a number from 0.1 to 30",
        ),
        (
            "webhook",
            {"url": "http://x/", "secret": SECRET, "onFailure": 1},
            "config.onFailure",
            "Must be one of open, closed",
        ),
        (
            "webhook",
            {"url": "http://x/", "secret": SECRET, "speed": 1},
            "config.speed",
            "Not a field of webhook; there are url, secret, direction, onFailure, timeoutSeconds",
        ),
        ("presidio", {"url": "http://x", "entities": ["person"]}, "config.entities[0]", "Must be a name such as"),
        ("bedrock_guardrail", {"region": "moon", "guardrailId": "g"}, "config.region", "Must be a region such as"),
        ("bedrock_guardrail", {"region": "eu-west-1", "guardrailId": "g"}, "config.accessKeyId", "Required"),
        ("azure_content_safety", {"url": "http://x", "severity": 8}, "config.severity", "Must be a number from 0 to 7"),
        ("model_armor", {"template": "strict"}, "config.template", "Must be a name such as projects/"),
        (
            "model_armor",
            {"template": "projects/p/locations/l/templates/t", "serviceAccount": "{}"},
            "config.serviceAccount",
            "Must be the JSON of a service account's key",
        ),
        ("lakera", {}, "config.apiKey", "Required"),
        ("openai_moderation", {"apiKey": "k", "categories": ["Hate"]}, "config.categories[0]", "Must be a name such"),
        ("model", {}, "config.model", "Must be at most 300 printable ASCII characters"),
        ("model", {"model": "m"}, "config.url", "Not a field of model; there are model, template, roles"),
    ],
)
def test_a_wrong_configuration_names_the_field(
    adam: Caller,
    acme: Organization,
    service: GuardService,
    monkeypatch: pytest.MonkeyPatch,
    type: str,
    config: dict[str, Any],
    field: str,
    message: str,
) -> None:
    if config.get("url", "").startswith("http://x"):
        config = {**config, "url": service.url}
    if "url" not in config and type != "webhook":
        # The service's own address is not looked up here.
        config = {**config, "url": service.url}
    answer = add(adam, acme, config, type)
    assert answer.status_code == 400
    [issue] = answer.json()["issues"]
    assert issue["path"] == field
    assert issue["message"].startswith(message)
    assert CustomRule.objects.count() == 0


def test_a_guard_model_has_no_address_and_no_secret(adam: Caller, acme: Organization) -> None:
    answer = add(adam, acme, {"model": "llama-guard-4-12b", "categories": ["S10", "S1"]}, "model")
    assert answer.status_code == 200
    expected = {
        "type": "model",
        "model": "llama-guard-4-12b",
        "template": "llama_guard",
        "roles": ["user", "assistant", "tool_result", "document"],
        "promptBy": "server",
        "categories": ["S1", "S10"],
        "prompt": "",
        "foundWord": "unsafe",
        "passedWord": "safe",
        "secrets": [],
        **COMMON,
    }
    assert answer.json()["config"] == expected
    path = f"/guardrails/rules/{acme.id}/{answer.json()['id']}"
    changed = adam.send("PATCH", path, {"config": {"model": "m"}})
    assert changed.json()["config"]["model"] == "m"


def test_private_addresses_are_refused(adam: Caller, acme: Organization, settings: Any) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = False
    answer = add(adam, acme, {"url": "http://127.0.0.1:8080/", "secret": SECRET})
    assert answer.status_code == 400
    assert answer.json()["issues"] == [
        {"path": "config.url", "message": "Must not lead to a private, loopback or link-local address"}
    ]
    assert CustomRule.objects.count() == 0


def test_a_rule_that_asks_a_service_cannot_allow(adam: Caller, acme: Organization, service: GuardService) -> None:
    answer = add(adam, acme, {"url": service.url, "secret": SECRET}, action="allow")
    assert answer.status_code == 400
    assert answer.json()["issues"] == [
        {"path": "action", "message": "A rule of the type webhook must block, redact or warn"}
    ]
    assert CustomRule.objects.count() == 0


def test_a_change_keeps_the_secret_while_the_address_stays(
    adam: Caller, acme: Organization, service: GuardService
) -> None:
    identifier = add(adam, acme, {"url": service.url, "secret": SECRET}).json()["id"]
    rule = CustomRule.objects.get()
    stored = bytes(rule.encrypted_secrets)
    path = f"/guardrails/rules/{acme.id}/{identifier}"
    changed = adam.send("PATCH", path, {"config": {**rule.config, "onFailure": "open"}})
    assert (changed.status_code, changed.json()["config"]["onFailure"]) == (200, "open")
    rule.refresh_from_db()
    assert bytes(rule.encrypted_secrets) == stored
    moved = adam.send("PATCH", path, {"config": {"url": f"{service.url}/other"}})
    assert moved.json()["issues"] == [{"path": "config.secret", "message": "Required"}]
    assert CustomRule.objects.get().config["url"] == service.url
    other = SECRET[:-4] + "OTA="
    assert adam.send("PATCH", path, {"config": {"url": f"{service.url}/other", "secret": other}}).status_code == 200
    assert secrets_of(rule) == {"secret": other}


def test_secrets_are_encrypted_again(adam: Caller, acme: Organization, service: GuardService) -> None:
    add(adam, acme, {"url": service.url, "secret": SECRET})
    add(adam, acme, {"pattern": "x{3}"}, "custom_regex")
    rule = CustomRule.objects.get(type="webhook")
    before = bytes(rule.encrypted_secrets)
    assert hooks.rotate().count == 1
    assert secrets_of(rule) == {"secret": SECRET}
    assert bytes(rule.encrypted_secrets) != before


def test_an_organization_has_a_few_of_them(adam: Caller, acme: Organization, service: GuardService) -> None:
    for _ in range(MAX_OUTSIDE_RULES):
        assert add(adam, acme, {"url": service.url, "secret": SECRET}).status_code == 200
    answer = add(adam, acme, {"url": service.url}, "presidio")
    message = "Maximum 10 guardrail rules per organization that ask a service"
    assert (answer.status_code, answer.json()) == (400, {"message": message})
    assert CustomRule.objects.count() == MAX_OUTSIDE_RULES
