"""Editions over real HTTP: who names one is answered by it and pays its price, whole and streamed; rules on the model
hold for it, and no other edition answers unless a provider was named and the answer tells."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.keys.models import IamRule
from apps.logs.models import RequestLog
from apps.organizations.models import Project
from tests.stack.product import PROJECT, eventually, free_port
from tests.support.model_routes import Answer, error_of, post
from tests.support.upstream import Caller, answers, nothing_happened, settle_all

# By provider: its key's variable, and where the sandbox speaks its format.
PLACES = {
    "openai": ("OPENAI_API_KEY", "/v1"),
    "azure": ("AZURE_API_KEY", "/v1"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", ""),
    "deepinfra": ("DEEPINFRA_API_KEY", "/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "/v1"),
}
MODELS = ["gpt-4o", "claude-opus-4-8", "deepseek-v3.2", "gpt-oss-120b"]
USAGE = "usage=1000000,100000"
# The sandbox, which answers to the names of real models too.
SANDBOX = """
import runpy, sys
from apps.sandbox.scenario import MODELS
names, sys.argv = sys.argv[3:], sys.argv[:3]
MODELS |= dict.fromkeys(names, MODELS["echo"])
runpy.run_module("apps.sandbox", run_name="__main__")
"""
NAMES = [
    *("gpt-4o", "gpt-4o-2024-08-06", "gpt-4o-2024-05-13", "FW-DeepSeek-V3.2", "claude-opus-4-8"),
    *("openai/gpt-oss-120b", "openai/gpt-oss-120b-Turbo", "anthropic.claude-opus-4-8"),
    *(f"{profile}.anthropic.claude-opus-4-8" for profile in ("global", "eu", "us-gov")),
]


@pytest.fixture(scope="module")
def sandbox_url() -> Iterator[str]:
    """The address of a sandbox that has these models, in place of the test run's own."""
    port = free_port()
    command = [sys.executable, "-c", SANDBOX, "--port", str(port), *NAMES]
    process = subprocess.Popen(command, cwd=PROJECT)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(autouse=True)
def _providers(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, (key, path) in PLACES.items():
        monkeypatch.setenv(key, "secret")
        monkeypatch.setenv(f"{provider.upper()}_BASE_URL", caller.sandbox_url + path)
    # Some have ended, and all will.
    for row in ModelProvider.objects.filter(provider_id__in=PLACES, model_id__in=MODELS):
        editions = row.facts.get("editions", [])
        row.facts["editions"] = [{**one, "deactivated": "2999-01-01"} for one in editions]
        row.deactivated_at = None
        row.save()
    generation.bump(generation.CATALOG)


def ask(caller: Caller, model: str, script: str = USAGE, **fields: Any) -> tuple[Answer, RequestLog]:
    """Ask once; return the answer and its row in the log."""
    settle_all()
    RequestLog.objects.all().delete()
    answer = post(caller, "chat", f"hi [[sandbox {script}]]", model=model, **fields)
    assert answer.status == 200, answer.content
    settle_all()
    return answer, RequestLog.objects.get()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("asked", "sent", "input_cost", "output_cost"),
    [
        ("openai/gpt-4o", "gpt-4o", "2.5", "1"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o-2024-08-06", "2.5", "1"),
        ("openai/gpt-4o-2024-05-13", "gpt-4o-2024-05-13", "5", "1.5"),
        ("azure/gpt-4o-2024-05-13", "gpt-4o-2024-05-13", "5", "1.5"),
        ("azure/FW-DeepSeek-V3.2", "FW-DeepSeek-V3.2", "0.62", "0.185"),
        ("bedrock/claude-opus-4-8", "global.anthropic.claude-opus-4-8", "5", "2.5"),
        ("bedrock/global.anthropic.claude-opus-4-8", "global.anthropic.claude-opus-4-8", "5", "2.5"),
        ("bedrock/anthropic.claude-opus-4-8", "anthropic.claude-opus-4-8", "5", "2.5"),
        ("bedrock/eu.anthropic.claude-opus-4-8", "eu.anthropic.claude-opus-4-8", "5.5", "2.75"),
        ("bedrock/us-gov.anthropic.claude-opus-4-8", "us-gov.anthropic.claude-opus-4-8", "6", "3"),
        ("deepinfra/gpt-oss-120b", "openai/gpt-oss-120b", "0.037", "0.017"),
        ("deepinfra/openai/gpt-oss-120b-Turbo", "openai/gpt-oss-120b-Turbo", "0.15", "0.06"),
    ],
)
def test_the_edition_that_is_named_answers_at_its_price(
    caller: Caller, asked: str, sent: str, input_cost: str, output_cost: str, stream: bool
) -> None:
    tag = uuid4().hex
    answer, row = ask(caller, asked, f"{USAGE} tag={tag}", stream=stream)
    [request] = caller.sent(tag)
    assert request["model"] == sent
    provider, _, _ = asked.partition("/")
    total = Decimal(input_cost) + Decimal(output_cost)
    assert (row.used_provider, row.underlying_model, row.streamed) == (provider, sent, stream)
    assert (row.input_cost, row.output_cost, row.cost) == (Decimal(input_cost), Decimal(output_cost), total)
    assert Decimal(row.prices["input"]) == Decimal(input_cost)
    assert f'"underlying_used_model":"{sent}"' in answer.content.decode()


def test_cached_tokens_of_an_edition_cost_its_price(caller: Caller) -> None:
    _, regional = ask(caller, "bedrock/eu.anthropic.claude-opus-4-8", "usage=1000000,0,1000000")
    assert (regional.input_cost, regional.cached_input_cost, regional.cost) == (0, Decimal("0.55"), Decimal("0.55"))
    # It has no price of its own for them.
    _, dated = ask(caller, "openai/gpt-4o-2024-05-13", "usage=1000000,0,1000000")
    assert (dated.cached_input_cost, dated.cost) == (0, Decimal(5))


def test_without_a_provider_only_those_that_have_the_edition_are_asked(caller: Caller) -> None:
    # Both have it; the usual edition costs half at either.
    ModelProvider.objects.filter(provider_id="openai", model_id="gpt-4o").update(active=False)
    generation.bump(generation.CATALOG)
    _, row = ask(caller, "gpt-4o-2024-05-13")
    assert (row.used_provider, row.underlying_model, row.cost) == ("azure", "gpt-4o-2024-05-13", Decimal("6.5"))
    ModelProvider.objects.filter(provider_id="azure", model_id="gpt-4o").update(active=False)
    generation.bump(generation.CATALOG)
    answer = post(caller, "chat", model="gpt-4o-2024-05-13")
    message = "gpt-4o-2024-05-13 is no longer served by any provider"
    assert (answer.status, answer.json()["error"]["message"]) == (410, message)
    assert nothing_happened(caller)


def test_an_edition_whose_day_has_passed_is_refused_though_the_model_goes_on(caller: Caller) -> None:
    row = ModelProvider.objects.get(provider_id="openai", model_id="gpt-4o")
    row.facts["editions"][0]["deactivated"] = "2026-10-23"
    row.save()
    generation.bump(generation.CATALOG)
    answer = post(caller, "chat", model="openai/gpt-4o-2024-05-13")
    message = (
        "openai/gpt-4o-2024-05-13: the provider openai no longer serves it since 2026-10-23; "
        "these providers serve gpt-4o: azure, nanogpt, openrouter, vercel, zenmux"
    )
    assert answer.json() == error_of("chat", 400, "invalid_request_error", "model_not_found", message, "model")
    assert nothing_happened(caller)
    _, served = ask(caller, "openai/gpt-4o")
    assert served.cost == Decimal("3.5")


def test_a_fallback_to_another_edition_is_told_and_pays_its_own_price(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("AZURE_API_KEY", "DEEPINFRA_API_KEY"):
        monkeypatch.delenv(other)
    script = f"{USAGE} status=503 times=1 tag={uuid4().hex}"
    answer, row = ask(caller, "bedrock/eu.anthropic.claude-opus-4-8", script)
    metadata = answer.json()["metadata"]
    assert (metadata["used_provider"], metadata["underlying_used_model"]) == ("anthropic", "claude-opus-4-8")
    assert [(one["provider"], one["model"], one["succeeded"]) for one in metadata["routing"]] == [
        ("bedrock", "eu.anthropic.claude-opus-4-8", False),
        ("anthropic", "claude-opus-4-8", True),
    ]
    assert (row.used_provider, row.underlying_model, row.cost) == ("anthropic", "claude-opus-4-8", Decimal("7.5"))


@pytest.mark.parametrize("model", ["bedrock/eu.anthropic.claude-opus-4-8", "bedrock/claude-opus-4-8"])
def test_a_rule_on_the_model_holds_for_its_editions(caller: Caller, model: str) -> None:
    rule = IamRule.objects.create(
        api_key=caller.key, rule_type="deny_models", rule_value={"models": ["claude-opus-4-8"]}, status="active"
    )
    policy.forget_all()
    answer = post(caller, "chat", model=model)
    assert (answer.status, answer.json()["error"]["message"]) == (
        403,
        f"Access denied by IAM rule {rule.id} (deny_models) of this API key",
    )
    assert nothing_happened(caller)


def test_a_rule_on_prices_looks_at_the_editions(caller: Caller) -> None:
    IamRule.objects.create(
        api_key=caller.key,
        rule_type="allow_pricing",
        rule_value={"pricingType": "paid", "maxInputPrice": "5"},
        status="active",
    )
    policy.forget_all()
    assert post(caller, "chat", model="bedrock/claude-opus-4-8").status == 200
    assert post(caller, "chat", model="bedrock/eu.anthropic.claude-opus-4-8").status == 403


def test_preferences_of_providers_keep_the_edition(caller: Caller) -> None:
    _, row = ask(caller, "bedrock/eu.anthropic.claude-opus-4-8", provider={"order": ["bedrock"]})
    assert (row.underlying_model, row.cost) == ("eu.anthropic.claude-opus-4-8", Decimal("8.25"))
    _, row = ask(caller, "openai/gpt-4o-2024-05-13", provider={"order": ["azure"]})
    assert (row.used_provider, row.underlying_model, row.cost) == ("azure", "gpt-4o-2024-05-13", Decimal("6.5"))


def test_an_explanation_says_who_lacks_the_edition(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "secret")
    told = caller.client.post(
        "/v1/route/explain",
        {"model": "gpt-4o-2024-05-13", "messages": [{"role": "user", "content": "hi"}]},
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}"},
    ).json()
    assert told["underlying_used_model"] == "gpt-4o-2024-05-13"
    assert {one["provider"] for one in told["order"]} == {"openai", "azure"}
    without_key = [{"provider": name, "reason": "no credential"} for name in ("nanogpt", "vercel", "zenmux")]
    lacking = {"provider": "openrouter", "reason": "does not have gpt-4o-2024-05-13"}
    assert sorted(told["excluded"], key=lambda one: str(one["provider"])) == sorted(
        [*without_key, lacking], key=lambda one: str(one["provider"])
    )


def test_an_edition_is_not_answered_with_what_another_one_said(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    script = f"{USAGE} tag={uuid4().hex}"
    names = ("azure/gpt-4o", "azure/gpt-4o-2024-05-13", "azure/gpt-4o-2024-05-13", "azure/gpt-4o")
    answers_given = [ask(caller, name, script) for name in names]
    assert [answer.headers["x-gateway-cache"] for answer, _ in answers_given] == ["miss", "miss", "hit", "hit"]
    assert [row.cost for _, row in answers_given] == [Decimal("3.5"), Decimal("6.5"), 0, 0]
