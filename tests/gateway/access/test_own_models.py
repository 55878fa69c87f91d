"""Models of an organization's own servers in requests: their price, context, thinking and counts; and their listing."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import TestCase
from django.utils import timezone

from apps.gateway.access import policy
from apps.gateway.upstream import open_exchange
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.keys.own_models import MAX_PRICE, average_use, read_models
from apps.keys.provider_keys import change_model, models_of
from apps.keys.secrets import encrypt_credential
from apps.limits.actions import create_limit
from apps.limits.models import LimitCounter
from apps.logs.models import ActivityDay, RequestLog
from apps.organizations.models import Organization, Project
from tests.support.own_servers import OwnServer, chat_answer, chat_stream, own_server
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

__all__ = ["own_server"]
CHAT, MODEL = "/v1/chat/completions", "custom:box/llama3.2"


@pytest.fixture
def key(caller: Caller, own_server: OwnServer) -> ProviderKey:
    """A server without credential, whose one model has a context of 4096 tokens."""
    open_exchange.forget_addresses()
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


def test_an_hour_is_shared_by_its_tokens(caller: Caller, key: ProviderKey) -> None:
    # 2.50 USD for an hour of five million tokens: 0.50 for a million.
    set_model(key, hourly_price=Decimal("2.5"), tokens_per_hour=5_000_000)
    assert caller.chat(model=MODEL).status_code == 200
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, row.unpriced) == (Decimal("0.0006"), False)


def test_an_hour_without_stated_tokens_is_shared_by_those_of_the_last_week(caller: Caller, key: ProviderKey) -> None:
    today = datetime.now(UTC).date()

    def used(days_ago: int, model: str, tokens: int, organization_id: UUID = caller.organization_id) -> None:
        """Store a day of an organization's requests."""
        ActivityDay.objects.create(
            date=today - timedelta(days=days_ago),
            organization_id=organization_id,
            project_id=ActivityDay.EVERY,
            api_key_id=ActivityDay.EVERY,
            model=model,
            provider="custom:box",
            input_tokens=tokens - 1,
            output_tokens=1,
        )

    set_model(key, hourly_price=Decimal("2.5"))
    assert caller.chat(model=MODEL).status_code == 200
    settle_all()
    assert RequestLog.objects.get().unpriced
    # Two whole days, by both names: 240 million tokens in 48 hours. Today, other models and customers do not count.
    used(2, MODEL, 200_000_000)
    used(1, f"{MODEL}:latest", 40_000_000)
    for days_ago, model in ((0, MODEL), (8, MODEL), (1, "custom:box/other")):
        used(days_ago, model, 10**9)
    used(1, MODEL, 10**9, uuid4())
    set_model(key, hourly_price=Decimal("2.5"))
    key.refresh_from_db()
    assert key.observed_use == {"llama3.2:latest": 5_000_000}
    assert caller.chat(model=MODEL).status_code == 200
    settle_all()
    row = RequestLog.objects.latest("id")
    assert (row.cost, row.unpriced) == (Decimal("0.0006"), False)
    # Stated tokens go before observed ones, and without a price of an hour there is nothing to observe.
    set_model(key, tokens_per_hour=10_000_000)
    assert models_of(ProviderKey.objects.get())["llama3.2:latest"].token_price == Decimal("0.25")
    set_model(key, hourly_price=None, tokens_per_hour=None)
    assert ProviderKey.objects.get().observed_use == {}


def test_an_hour_is_shared_by_observed_tokens_once_they_are_many(key: ProviderKey) -> None:
    today = date(2026, 11, 29)
    days = [
        ("a", date(2026, 11, 28), 24 * 10_000 - 1),
        ("b", date(2026, 11, 28), 24 * 10_000),
        ("c:latest", date(2026, 11, 22), 24 * 7 * 20_000),
    ]
    observed = average_use(days, ["a", "b", "c:latest"], today)
    assert observed == {"b": 10_000, "c:latest": 20_000}
    settings = {name: {"hourlyPrice": "2.5"} for name in ("a", "b", "c:latest")}
    models = read_models([], settings, {}, observed)
    assert [one.token_price for one in models.values()] == [None, Decimal(250), Decimal(125)]
    [dear] = read_models([], {"a": {"hourlyPrice": "20000"}}, {}, {"a": 10_000}).values()
    assert dear.token_price == MAX_PRICE


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "one", "schema": {"type": "object", "properties": {}}}}


class TestKnownCapabilities:
    def know(self, key: ProviderKey, **results: bool) -> None:
        """Store what a probe showed."""
        probe = {"at": "2026-11-29T12:00:00+00:00", "results": results, "notes": {}}
        ProviderKey.objects.filter(pk=key.pk).update(model_probes={"llama3.2:latest": probe}, updated_at=timezone.now())
        policy.forget_all()

    @pytest.mark.parametrize(
        ("lacking", "fields", "words"),
        [
            ("tools", {"tools": TOOLS}, "tools"),
            ("parallel_tools", {"tools": TOOLS, "parallel_tool_calls": True}, "parallel tool calls"),
            ("vision", {"messages": [{"role": "user", "content": IMAGE}]}, "image input"),
            ("streaming", {"stream": True}, "streaming"),
        ],
    )
    def test_what_a_probe_showed_to_be_missing_is_refused_before_the_call(
        self, caller: Caller, key: ProviderKey, own_server: OwnServer, lacking: str, fields: dict[str, Any], words: str
    ) -> None:
        self.know(key, **{lacking: False})
        answer = caller.chat(model=MODEL, **fields)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_feature")
        assert answer.json()["error"]["message"].startswith(f"{MODEL} does not support {words}: ")
        assert own_server.asked == []
        assert nothing_happened(caller)
        assert caller.chat(model=MODEL).status_code == 200
        # An override goes before it.
        set_model(key, overrides={lacking: True})
        if not fields.get("stream"):
            assert caller.chat(model=MODEL, **fields).status_code == 200

    def test_a_schema_goes_through_a_tool_where_the_server_keeps_none(
        self, caller: Caller, key: ProviderKey, own_server: OwnServer
    ) -> None:
        assert caller.chat(model=MODEL, response_format=SCHEMA).status_code == 200
        assert own_server.asked[0].body["response_format"]["type"] == "json_schema"
        self.know(key, json_schema=False)
        call = {"id": "c", "type": "function", "function": {"name": "one", "arguments": "{}"}}
        own_server.answers[CHAT] = lambda asked: chat_answer(
            {"tool_calls": [{**call, "function": {"name": asked["tools"][0]["function"]["name"], "arguments": "{}"}}]}
        )
        answer = caller.chat(model=MODEL, response_format=SCHEMA)
        assert answer.json()["choices"][0]["message"]["content"] == "{}"
        assert "response_format" not in own_server.asked[1].body

    def test_vectors_are_refused_where_there_are_none(
        self, caller: Caller, key: ProviderKey, own_server: OwnServer
    ) -> None:
        self.know(key, embedding=False)
        headers = {"Authorization": f"Bearer {caller.token}"}
        body = {"model": MODEL, "input": "a"}
        answer = caller.client.post("/v1/embeddings", body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_feature")
        assert own_server.asked == []


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

    def test_an_alias_is_listed_and_called(self, caller: Caller, key: ProviderKey, own_server: OwnServer) -> None:
        set_model(key, alias="our-llama")
        assert self.listed(caller)["data"][0]["id"] == "our-llama"
        assert self.listed(caller, "/v1/models/our-llama")["name"] == "llama3.2:latest"
        assert self.listed(caller, f"/v1/models/{MODEL}:latest")["name"] == "llama3.2:latest"
        answer = caller.chat(model="our-llama").json()
        assert own_server.asked[-1].body["model"] == "llama3.2:latest"
        metadata = answer["metadata"]
        assert (metadata["requested_model"], metadata["used_model"]) == ("our-llama", f"{MODEL}:latest")
        # As a fallback, too.
        own_server.answers[CHAT] = (404, b'{"error": {"message": "no such model"}}')
        answer = caller.chat(model="our-llama", models=["sandbox/echo"])
        assert answer.json()["metadata"]["used_provider"] == "sandbox"

    def test_an_access_rule_names_a_model_by_its_alias(
        self, caller: Caller, key: ProviderKey, own_server: OwnServer
    ) -> None:
        set_model(key, alias="our-llama")
        rule = IamRule.objects.create(
            api_key=caller.key, rule_type="deny_models", rule_value={"models": ["our-llama", "echo"]}
        )
        policy.forget_all()
        asked = len(own_server.asked)
        assert [caller.chat(model=name).status_code for name in ("our-llama", f"{MODEL}:latest")] == [403, 403]
        assert len(own_server.asked) == asked
        rule.rule_type = "allow_models"
        rule.save()
        policy.forget_all()
        assert [caller.chat(model=name).status_code for name in ("our-llama", f"{MODEL}:latest")] == [200, 200]

    @pytest.mark.parametrize("named", ["our-llama", MODEL, f"{MODEL}:latest", "custom:box/lla*"])
    def test_a_limit_names_a_model_by_any_of_its_names(self, caller: Caller, key: ProviderKey, named: str) -> None:
        set_model(key, alias="our-llama")
        fields = {"name": "llama", "scope": "model", "model": named, "counts": "requests", "window": "day", "amount": 3}
        create_limit(organization=caller.key.project.organization, fields=fields)
        names = ["our-llama", MODEL, f"{MODEL}:latest", "our-llama"]
        assert [caller.chat(model=name).status_code for name in names] == [200, 200, 200, 429]
        settle_all()
        assert LimitCounter.objects.get().used == 3

    def test_a_model_that_went_is_listed_only_with_settings(self, caller: Caller, key: ProviderKey) -> None:
        gone = [{**key.found_models[0], "goneAt": "2026-11-29T12:00:00+00:00"}]
        ProviderKey.objects.update(found_models=gone, updated_at=timezone.now())
        policy.forget_all()
        assert self.listed(caller) == caller.client.get("/v1/models").json()
        assert caller.chat(model=MODEL).status_code == 200
        with TestCase.captureOnCommitCallbacks(execute=True):
            set_model(key, context_length=2048)
        assert self.listed(caller)["data"][0]["context_length"] == 2048

    def test_a_project_in_credits_mode_does_not_list_them(self, caller: Caller, key: ProviderKey) -> None:
        Project.objects.filter(pk=caller.key.project_id).update(mode="credits")
        policy.forget_all()
        assert self.listed(caller) == caller.client.get("/v1/models").json()
