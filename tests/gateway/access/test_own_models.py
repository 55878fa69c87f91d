"""Models of an organization's own servers in requests: their price, context, thinking and counts; and their listing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.test import TestCase
from django.utils import timezone

from apps.gateway.access import pinned_address, policy
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.keys.provider_keys import change_model
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.own_servers import OwnServer, chat_answer, chat_stream, own_server
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

__all__ = ["own_server"]
CHAT, MODEL = "/v1/chat/completions", "custom:box/llama3.2"


@pytest.fixture
def key(caller: Caller, own_server: OwnServer) -> ProviderKey:
    """A server without credential, whose one model has a context of 4096 tokens."""
    pinned_address.forget_all()
    own_server.answers = {CHAT: chat_answer({"content": "Hello"}, {"prompt_tokens": 1000, "completion_tokens": 200})}
    return ProviderKey.objects.create(
        organization_id=caller.organization_id,
        provider="custom",
        provider_name="box",
        base_url=f"{own_server.url}/v1".replace("127.0.0.1", "localhost"),
        server="ollama",
        encrypted_token=encrypt_credential(""),
        found_models=[{"name": "llama3.2:latest", "contextLength": 4096, "capabilities": ["tools"]}],
        models_asked_at=timezone.now(),
    )


def set_model(key: ProviderKey, **changes: Any) -> None:
    """Set what an organization knows of its model."""
    change_model(key=key, model="llama3.2:latest", changes=changes)
    policy.forget_all()


def test_a_server_without_credential_gets_no_header(caller: Caller, key: ProviderKey, own_server: OwnServer) -> None:
    response = caller.chat(model=MODEL)
    assert response.json()["choices"][0]["message"]["content"] == "Hello"
    [asked] = own_server.asked
    assert (asked.path, asked.authorization, asked.body["model"]) == (CHAT, None, "llama3.2")


def test_a_priced_model_counts_against_the_keys_limit_alone(caller: Caller, key: ProviderKey) -> None:
    set_model(key, input_price=Decimal("0.5"), output_price=Decimal(2))
    assert caller.chat(model=MODEL).status_code == 200
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.cost, row.input_cost, row.output_cost) == (Decimal("0.0009"), Decimal("0.0005"), Decimal("0.0004"))
    assert (row.unpriced, row.used_mode, row.used_model) == (False, "api-keys", MODEL)
    assert ApiKey.objects.get(pk=caller.key.pk).usage == Decimal("0.0009")
    assert Organization.objects.get(pk=caller.organization_id).credits == 100


def test_a_free_model_costs_nothing_and_is_not_unpriced(caller: Caller, key: ProviderKey) -> None:
    set_model(key, input_price=Decimal(0), output_price=Decimal(0))
    assert caller.chat(model=MODEL).status_code == 200
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, row.unpriced) == (0, False)


def test_access_rules_about_prices_hold_for_it(caller: Caller, key: ProviderKey) -> None:
    set_model(key, input_price=Decimal("0.5"), output_price=Decimal(2))
    IamRule.objects.create(api_key=caller.key, rule_type="deny_pricing", rule_value={"pricingType": "paid"})
    policy.forget_all()
    assert caller.chat(model=MODEL).status_code == 403
    set_model(key, input_price=Decimal(0), output_price=Decimal(0))
    assert caller.chat(model=MODEL).status_code == 200


def test_a_keys_limit_that_cannot_pay_it_refuses_it(caller: Caller, key: ProviderKey, own_server: OwnServer) -> None:
    set_model(key, input_price=Decimal(1000), output_price=Decimal(1000))
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=Decimal("0.0001"))
    policy.forget_all()
    assert caller.chat(model=MODEL, max_tokens=100).status_code == 402
    assert own_server.asked == []
    assert nothing_happened(caller)


def test_a_prompt_beyond_the_context_is_refused_before_the_call(
    caller: Caller, key: ProviderKey, own_server: OwnServer
) -> None:
    response = caller.chat("word " * 12_000, model=MODEL)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert response.json()["error"]["message"].startswith("This model's maximum context length is 4096 tokens. ")
    assert own_server.asked == []
    assert nothing_happened(caller)
    set_model(key, context_length=32_768)
    assert caller.chat("word " * 12_000, model=MODEL).status_code == 200
    # Nothing is known about a model that the server does not list.
    assert caller.chat("word " * 12_000, model="custom:box/other").status_code == 200


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_read_by_every_name_of_it(
    caller: Caller, key: ProviderKey, own_server: OwnServer, name: str, stream: bool
) -> None:
    own_server.answers[CHAT] = (
        chat_stream({"role": "assistant", name: "Let me "}, {name: "think"}, {"content": "42"})
        if stream
        else chat_answer({"content": "42", name: "Let me think"})
    )
    response = caller.chat(model=MODEL, stream=stream)
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(response)[:-1] if chunk["choices"]]
        thought = "".join(delta.get("reasoning") or "" for delta in deltas)
        text = "".join(delta.get("content") or "" for delta in deltas)
    else:
        message = response.json()["choices"][0]["message"]
        thought, text = message["reasoning"], message["content"]
    assert (thought, text) == ("Let me think", "42")


def test_thinking_reaches_clients_of_other_formats_and_goes_back(
    caller: Caller, key: ProviderKey, own_server: OwnServer
) -> None:
    own_server.answers[CHAT] = chat_answer({"content": "42", "thinking": "Let me think"})
    headers = {"x-api-key": caller.token, "anthropic-version": "2023-06-01"}
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 2000, "messages": [{"role": "user", "content": "6 * 7?"}]}
    body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    first = caller.client.post("/v1/messages", body, content_type="application/json", headers=headers).json()
    assert [block["type"] for block in first["content"]] == ["thinking", "text"]
    assert first["content"][0]["thinking"] == "Let me think"
    again = [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "Sure?"}]
    body["messages"] = [*body["messages"], *again]
    assert caller.client.post("/v1/messages", body, content_type="application/json", headers=headers).status_code == 200
    assert own_server.asked[1].body["messages"][1]["reasoning_content"] == "Let me think"


@pytest.mark.parametrize("stream", [False, True])
def test_counts_that_a_server_leaves_out_are_estimated_and_told(
    caller: Caller, key: ProviderKey, own_server: OwnServer, stream: bool
) -> None:
    set_model(key, input_price=Decimal(1), output_price=Decimal(1))
    own_server.answers[CHAT] = (
        chat_stream({"content": "Hello there"}) if stream else chat_answer({"content": "Hello there"})
    )
    response = caller.chat("How are you?", model=MODEL, stream=stream)
    assert response.status_code == 200
    if stream:
        chunks_of(response)
    settle_all()
    row = RequestLog.objects.get()
    assert (row.prompt_tokens > 0, row.completion_tokens > 0, row.cost > 0, row.estimated_cost) == (True,) * 4


@pytest.mark.parametrize(
    "words",
    [
        "request (124071 tokens) exceeds the available context size (123904 tokens), try increasing it",
        "The model is loaded with context length of only 32768 tokens, which is not enough",
        "Requested tokens (600) exceed context window of 512",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
    ],
)
def test_a_prompt_that_is_too_long_is_told_by_the_code_for_it(
    caller: Caller, key: ProviderKey, own_server: OwnServer, words: str
) -> None:
    own_server.answers[CHAT] = (400, f'{{"error": {{"message": "{words}"}}}}'.encode())
    response = caller.chat(model=MODEL)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


class TestListing:
    def listed(self, caller: Caller, path: str = "/v1/models", **headers: str) -> Any:
        """Return the answer of a listing for the key."""
        return caller.client.get(path, headers={"Authorization": f"Bearer {caller.token}", **headers}).json()

    def test_models_are_listed_for_the_organizations_keys_alone(self, caller: Caller, key: ProviderKey) -> None:
        set_model(key, input_price=Decimal("0.5"), output_price=Decimal(2))
        public = caller.client.get("/v1/models").json()
        answer = self.listed(caller)
        own, *others = answer["data"]
        assert others == public["data"]
        assert (answer["total_count"], answer["first_id"]) == (public["total_count"] + 1, "custom:box/llama3.2:latest")
        assert (own["id"], own["name"], own["owned_by"]) == (
            "custom:box/llama3.2:latest",
            "llama3.2:latest",
            "custom:box",
        )
        assert (own["context_length"], own["pricing"]["prompt"], own["free"]) == (4096, "0.0000005", False)
        [provider] = own["providers"]
        assert (provider["tools"], provider["vision"], provider["reasoning"]) == (True, False, False)
        assert self.listed(caller, "/v1/models/custom:box/llama3.2:latest") == own
        page = self.listed(caller, "/v1/models?limit=1", **{"anthropic-version": "2023-06-01"})
        assert [one["id"] for one in page["data"]] == ["custom:box/llama3.2:latest"]
        assert page["data"][0]["max_input_tokens"] == 4096
        assert caller.client.get("/v1/models/custom:box/llama3.2:latest").status_code == 404

    def test_ollamas_clients_find_them(self, caller: Caller, key: ProviderKey) -> None:
        public = caller.client.get("/api/tags").json()["models"]
        own, *others = self.listed(caller, "/api/tags")["models"]
        assert (own["name"], own["details"]["context_length"]) == ("custom:box/llama3.2:latest", 4096)
        assert (own["capabilities"], others) == (["completion", "tools"], public)
        headers = {"Authorization": f"Bearer {caller.token}"}
        for name in ("custom:box/llama3.2", "custom:box/llama3.2:latest"):
            shown = caller.client.post("/api/show", {"model": name}, content_type="application/json", headers=headers)
            assert shown.json()["model_info"]["box.context_length"] == 4096

    def test_a_change_is_listed_at_once(self, caller: Caller, key: ProviderKey) -> None:
        assert self.listed(caller)["data"][0]["context_length"] == 4096
        with TestCase.captureOnCommitCallbacks(execute=True):
            set_model(key, context_length=2048)
        assert self.listed(caller)["data"][0]["context_length"] == 2048
        key.status = "inactive"
        with TestCase.captureOnCommitCallbacks(execute=True):
            key.save()
        assert self.listed(caller) == caller.client.get("/v1/models").json()

    def test_a_project_in_credits_mode_does_not_list_them(self, caller: Caller, key: ProviderKey) -> None:
        Project.objects.filter(pk=caller.key.project_id).update(mode="credits")
        policy.forget_all()
        assert self.listed(caller) == caller.client.get("/v1/models").json()
