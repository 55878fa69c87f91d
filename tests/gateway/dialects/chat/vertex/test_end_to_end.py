"""Google Cloud behind the gateway, over real HTTP: a service account, Gemini, Claude and a partner's model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import policy
from apps.gateway.access.schemes import google_service_account
from apps.keys.models import ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Project
from tests.support.google_service_accounts import account_json
from tests.support.providers_of_every_format import offer_models
from tests.support.upstream import Caller, chunks_of, settle_all

PLACE = "/v1/projects/acme-project/locations/global"
DIALECTS = {"echo": "vertex", "tools": "vertex_anthropic", "vision": "vertex_openai"}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def cloud(caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Caller:
    """The caller, in front of a provider `cloud` that knows one model of each kind; the sandbox gives the tokens."""
    email = f"{uuid4().hex}@acme.iam.gserviceaccount.com"
    file = tmp_path / "account.json"
    file.write_text(account_json(email, token_uri=f"{caller.sandbox_url}/token"))
    monkeypatch.setenv("CLOUD_TEST_ACCOUNT", str(file))
    google_service_account.forget_all()
    Provider.objects.create(
        id="cloud",
        name="Cloud",
        dialect="vertex",
        auth="google-service-account",
        base_url=f"{caller.sandbox_url}/v1/projects/{{project}}/locations/global",
        api_key_env="CLOUD_TEST_ACCOUNT",
        facts={"variables": {"project": {"env": ["CLOUD_TEST_PROJECT"]}}},
    )

    def change(mapping: ModelProvider) -> None:
        mapping.facts = {**mapping.facts, "dialect": DIALECTS[mapping.model_id]}
        mapping.prices = {**mapping.prices, "service_tiers": {"flex": {"input": "0.1"}}}

    offer_models("cloud", change, model_id__in=DIALECTS)
    return caller


def tokens_asked(cloud: Caller) -> int:
    """Return how often the account of the environment got a token."""
    return len([entry for entry in cloud.sent(operators_email()) if entry["path"] == "/token"])


def operators_email() -> str:
    """Return the name of the account in the environment."""
    return str(json.loads(Path(os.environ["CLOUD_TEST_ACCOUNT"]).read_text())["client_email"])


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("echo", f"{PLACE}/publishers/google/models/echo:generateContent"),
        ("tools", f"{PLACE}/publishers/anthropic/models/tools:rawPredict"),
        ("vision", f"{PLACE}/endpoints/openapi/chat/completions"),
    ],
)
def test_a_plain_answer_of_each_kind_of_model(cloud: Caller, model: str, path: str) -> None:
    tag = uuid4().hex
    response = cloud.chat(f"hi [[sandbox usage=100,20 tag={tag}]]", model=f"cloud/{model}", max_tokens=50)
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["choices"][0]["message"]["content"] == "You said: hi"
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (100, 20)
    (sent,) = cloud.sent(tag)
    assert sent["path"] == path
    assert sent["headers"]["authorization"].startswith("Bearer sha256:")
    assert "model" not in sent["body"] or model == "vision"
    settle_all()
    assert RequestLog.objects.get().used_provider == "cloud"


@pytest.mark.parametrize("model", ["echo", "tools", "vision"])
def test_a_stream_of_each_kind_of_model(cloud: Caller, model: str) -> None:
    response = cloud.chat("one two [[sandbox chunks=3]]", model=f"cloud/{model}", stream=True, max_tokens=50)
    *chunks, end = chunks_of(response)
    assert end == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "You said: one two"


def test_a_token_serves_many_requests(cloud: Caller) -> None:
    for _ in range(3):
        assert cloud.chat("hi", model="cloud/echo").status_code == 200
    assert tokens_asked(cloud) == 1


def test_claude_gets_its_version_in_the_body_and_previews_as_a_header(cloud: Caller) -> None:
    tag = uuid4().hex
    body = {
        "model": "cloud/tools",
        "max_tokens": 20,
        "messages": [{"role": "user", "content": f"hi [[sandbox tag={tag}]]"}],
    }
    headers = {"x-api-key": cloud.token, "anthropic-version": "2023-06-01", "anthropic-beta": "context-1m-2025-08-07"}
    response = cloud.client.post("/v1/messages", body, content_type="application/json", headers=headers)
    assert response.json()["content"] == [{"type": "text", "text": "You said: hi"}]
    (sent,) = cloud.sent(tag)
    assert sent["body"] == {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 20,
        "messages": [{"role": "user", "content": f"hi [[sandbox tag={tag}]]"}],
    }
    assert sent["headers"]["anthropic-beta"] == "context-1m-2025-08-07"
    assert "anthropic-version" not in sent["headers"]


def test_gemini_is_asked_for_a_tier_by_a_header(cloud: Caller) -> None:
    tag = uuid4().hex
    assert cloud.chat(f"hi [[sandbox tag={tag}]]", model="cloud/echo", service_tier="flex").status_code == 200
    (sent,) = cloud.sent(tag)
    assert sent["headers"]["x-vertex-ai-llm-shared-request-type"] == "flex"
    assert "serviceTier" not in sent["body"]


def test_a_call_of_geminis_goes_back_with_its_seal(cloud: Caller) -> None:
    question = {"role": "user", "content": "call weather"}
    message = cloud.chat(model="cloud/echo", messages=[question], tools=[WEATHER]).json()["choices"][0]["message"]
    [call] = message["tool_calls"]
    answer = {"role": "assistant", "content": None, "tool_calls": [{**call, "extra_content": None}]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}
    again = cloud.chat(model="cloud/echo", messages=[question, answer, result], tools=[WEATHER])
    assert again.json()["choices"][0]["message"]["content"] == "weather answered: Sun"


def test_an_account_that_google_refuses_is_no_answer_and_shows_nothing(
    cloud: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_json("invalid@acme", token_uri=f"{cloud.sandbox_url}/token")
    monkeypatch.setenv("CLOUD_TEST_ACCOUNT", account)
    response = cloud.chat("hi", model="cloud/echo", headers={"X-No-Fallback": "true"})
    assert response.status_code == 502
    words = response.content.decode()
    assert "service account cannot be used" in words
    assert "PRIVATE KEY" not in words
    assert "Invalid JWT" not in words


def bring(cloud: Caller, token: str, base_url: str = "") -> None:
    """Give the organization a key of its own for the cloud, and its project the mode that uses it."""
    ProviderKey.objects.create(
        organization_id=cloud.organization_id,
        provider="cloud",
        base_url=base_url,
        encrypted_token=encrypt_credential(token),
        last_four="1234",
    )
    Project.objects.filter(pk=cloud.key.project_id).update(mode="api-keys")
    policy.forget_all()


def test_a_tenants_account_works_in_its_own_project(cloud: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the operator may say where tokens come from; here, that is where the tenant's come from as well."""
    monkeypatch.setattr(google_service_account, "TOKEN_ADDRESS", f"{cloud.sandbox_url}/token")
    bring(cloud, account_json(project_id="tenants-own", token_uri=f"{cloud.sandbox_url}/token"))
    tag = uuid4().hex
    assert cloud.chat(f"hi [[sandbox tag={tag}]]", model="cloud/echo").status_code == 200
    (sent,) = cloud.sent(tag)
    assert sent["path"].startswith("/v1/projects/tenants-own/locations/global/")


@pytest.mark.parametrize("kind", ["another address for tokens", "a path"])
def test_a_tenants_credential_leads_nowhere_else(cloud: Caller, kind: str, tmp_path: Path) -> None:
    email = f"{uuid4().hex}@evil"
    account = account_json(email, token_uri=f"{cloud.sandbox_url}/token")
    file = tmp_path / "operators-secret.json"
    file.write_text(account)
    bring(cloud, account if kind.startswith("another") else str(file))
    tag = uuid4().hex
    response: Any = cloud.chat(f"hi [[sandbox tag={tag}]]", model="cloud/echo")
    assert response.status_code in {401, 502}, response.content
    assert cloud.sent(email) == []
    assert cloud.sent(tag) == []
