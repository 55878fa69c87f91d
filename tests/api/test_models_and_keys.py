"""`GET /v1/models` is public without a key; with one, the key has to work (section 5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from apps.catalog import catalog_cache
from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.keys.actions import CreatedKey, change_api_key
from apps.keys.models import IamRule, ProviderKey
from apps.keys.secrets import encrypt_credential
from tests.support.cast import World, make_key
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _listed(db: None) -> None:
    stock()
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


@pytest.fixture
def created(world: World) -> CreatedKey:
    """A key that works."""
    return make_key(world.olivia, world.project)


PATHS = ["/v1/models", "/v1/models/echo"]
NEITHER: list[dict[str, str]] = [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"x-api-key": " "}]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", NEITHER, ids=str)
def test_models_are_public_without_a_key(client: Client, path: str, headers: dict[str, str]) -> None:
    assert client.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_a_key_that_works_reads_the_same(client: Client, created: CreatedKey, path: str) -> None:
    public = client.get(path).content
    for headers in ({"Authorization": f"Bearer {created.token}"}, {"x-api-key": created.token}):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.content) == (200, public)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer gw_live_wrong"},
        {"x-api-key": "gw_live_" + "a" * 40},
        {"Authorization": "Bearer sk-someone-elses"},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Authorization": "Bearer " + "a" * 600},
        {"Authorization": "Bearer gw_live_one", "x-api-key": "gw_live_two"},
    ],
    ids=str,
)
def test_a_wrong_key_is_never_taken_for_none(client: Client, path: str, headers: dict[str, str]) -> None:
    for method in (client.get, client.head):
        answer = method(path, headers=headers)
        assert answer.status_code == 401
        assert b"pricing" not in answer.content


def test_a_key_that_was_revoked_is_refused_at_once(
    client: Client, created: CreatedKey, django_capture_on_commit_callbacks: Any
) -> None:
    headers = {"x-api-key": created.token}
    assert client.get("/v1/models", headers=headers).status_code == 200
    with django_capture_on_commit_callbacks(execute=True):
        change_api_key(key=created.key, changes={"status": "inactive"})
    assert client.get("/v1/models", headers=headers).status_code == 401


def callable_models(client: Client, token: str = "", query: str = "?callable=true") -> dict[str, set[str]]:
    """The models that can be called, with their providers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    listed = client.get(f"/v1/models{query}", headers=headers).json()["data"]
    return {one["id"]: {provider["providerId"] for provider in one["providers"]} for one in listed}


def offers(*providers: str) -> dict[str, set[str]]:
    """The models of these providers in the tables that are served today."""
    found: dict[str, set[str]] = {}
    for row in ModelProvider.objects.filter(provider__in=providers).exclude(
        deactivated_at__lte=datetime.now(UTC).date()
    ):
        found.setdefault(row.model_id, set()).add(row.provider_id)
    return found


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator has credentials for Groq and Cloudflare, and states no account there."""
    for name in ModelProvider.objects.values_list("provider__api_key_env", flat=True).distinct():
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "CLOUDFLARE_ACCOUNT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "gsk-operator")
    monkeypatch.setenv("CLOUDFLARE_API_KEY", "cf-operator")


def test_only_what_can_be_called_is_listed_if_asked(client: Client, created: CreatedKey, credentials: None) -> None:
    # Cloudflare's address needs an account, which is not set.
    assert callable_models(client) == callable_models(client, created.token) == offers("groq")
    everything = callable_models(client, created.token, "")
    assert everything.keys() > offers("groq").keys()
    assert callable_models(client, "", "?callable=false") == everything


def test_what_can_be_called_follows_mode_keys_and_rules(
    client: Client, world: World, created: CreatedKey, credentials: None, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        world.acme.plan = "pro"
        world.acme.save()
        ProviderKey.objects.create(
            organization=world.acme,
            provider="xai",
            encrypted_token=encrypt_credential("xai-own"),
            last_four="-own",
        )
        world.project.mode = "api-keys"
        world.project.save()
    assert callable_models(client, created.token) == offers("xai")
    with django_capture_on_commit_callbacks(execute=True):
        world.project.mode = "hybrid"
        world.project.save()
    assert callable_models(client, created.token) == offers("groq", "xai")
    with django_capture_on_commit_callbacks(execute=True):
        IamRule.objects.create(api_key=created.key, rule_type="deny_providers", rule_value={"providers": ["groq"]})
    assert callable_models(client, created.token) == offers("xai")


def unavailable(client: Client, token: str = "") -> dict[str, dict[str, str | None]]:
    """Why the models cannot be called: as a whole (`""`), and by provider."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    listed = client.get("/v1/models?reasons=true", headers=headers).json()["data"]
    return {
        one["id"]: {"": one["unavailable"]} | {it["providerId"]: it["unavailable"] for it in one["providers"]}
        for one in listed
    }


def test_the_listing_says_why_a_model_cannot_be_called(
    client: Client, world: World, created: CreatedKey, credentials: None, django_capture_on_commit_callbacks: Any
) -> None:
    without_keys = unavailable(client)
    assert without_keys.keys() == callable_models(client, query="").keys()
    assert {one for one, why in without_keys.items() if why[""] is None} == offers("groq").keys()
    assert without_keys["gpt-oss-20b"]["groq"] is None
    assert without_keys["gpt-oss-20b"]["deepinfra"] == "The operator has no credential for it"
    assert without_keys["gpt-oss-20b"]["cloudflare"] == "The operator has not set its region or account"
    assert without_keys["grok-4.5"][""] == "The operator has no credential for it"
    # The project may use its own keys, too, where its plan has them.
    by_plan = {
        "free": "The operator has no credential for it; the project may use provider keys, which require a pro or "
        "enterprise plan",
        "pro": "Neither the project nor the operator has a credential for it",
    }
    for plan, reason in by_plan.items():
        with django_capture_on_commit_callbacks(execute=True):
            world.acme.plan = plan
            world.acme.save()
        hybrid = unavailable(client, created.token)
        assert hybrid["gpt-oss-20b"] == without_keys["gpt-oss-20b"] | dict.fromkeys(
            hybrid["gpt-oss-20b"].keys() - {"", "groq", "cloudflare"}, reason
        )
    with django_capture_on_commit_callbacks(execute=True):
        IamRule.objects.create(api_key=created.key, rule_type="deny_providers", rule_value={"providers": ["groq"]})
    assert unavailable(client, created.token)["gpt-oss-20b"]["groq"] == "The key's access rules deny it"
    with django_capture_on_commit_callbacks(execute=True):
        world.project.mode = "api-keys"
        world.project.save()
    reasons = unavailable(client, created.token)
    assert {why[""] for why in reasons.values()} == {"The project uses its own provider keys, and has none for it"}
    with django_capture_on_commit_callbacks(execute=True):
        world.acme.plan = "free"
        world.acme.save()
    assert {why[""] for why in unavailable(client, created.token).values()} == {
        "The project uses its own provider keys, which require a pro or enterprise plan"
    }
    # Both at once: what can be called, which says of its providers that they can.
    both = client.get("/v1/models?callable=true&reasons=true").json()["data"]
    assert {one["unavailable"] for one in both} == {None}
    assert "unavailable" not in client.get("/v1/models").json()["data"][0]


@pytest.mark.parametrize("name", ["callable", "reasons"])
def test_what_can_be_called_does_not_go_with_deactivated_models(client: Client, name: str) -> None:
    answer = client.get(f"/v1/models?{name}=true&include_deactivated=true")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "include_deactivated")
    assert client.get(f"/v1/models?{name}=perhaps").json()["error"]["param"] == name
