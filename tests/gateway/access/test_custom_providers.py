"""`custom:<providerName>/<model>`: an organization's own provider, called where its key says and nowhere else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.access import policy
from apps.gateway.upstream import open_exchange
from apps.kernel.concurrency import name_lookup
from apps.keys.models import IamRule, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

MODEL = "custom:our-own/echo"


@pytest.fixture(autouse=True)
def _forget() -> None:
    open_exchange.forget_addresses()


@pytest.fixture
def own(caller: Caller, settings: Any) -> ProviderKey:
    """A provider of the organization's own: the sandbox, by a name that its operator allows to be private."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    return add_key(caller, f"{caller.sandbox_url}/v1".replace("127.0.0.1", "localhost"))


def add_key(caller: Caller, base_url: str, name: str = "our-own") -> ProviderKey:
    policy.forget_all()
    return ProviderKey.objects.create(
        organization_id=caller.organization_id,
        provider="custom",
        provider_name=name,
        base_url=base_url,
        encrypted_token=encrypt_credential("sk-of-acme"),
    )


def test_it_is_called_with_its_own_credential_and_the_model_as_written(caller: Caller, own: ProviderKey) -> None:
    tag = uuid4().hex
    assert caller.chat(f"hi [[sandbox tag={tag}]]", model=MODEL).status_code == 200
    (sent,) = caller.sent(tag)
    headers = {name.lower(): value for name, value in sent["headers"].items()}
    assert sent["body"]["model"] == "echo"
    assert headers["authorization"].endswith("...acme"), "the journal shows the ends of credentials only"
    assert headers["host"].startswith("localhost:")


def test_a_model_name_may_hold_slashes_and_its_refusal_is_told(caller: Caller, own: ProviderKey) -> None:
    response = caller.chat(model="custom:our-own/vendor/fox-1")
    assert response.status_code == 502
    assert "The model `vendor/fox-1` does not exist" in response.json()["error"]["message"]


def test_its_answer_costs_no_credits_and_is_logged_as_unpriced(caller: Caller, own: ProviderKey) -> None:
    response = caller.chat("hi [[sandbox usage=1000,200]]", model=MODEL)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "You said: hi"
    assert response.json()["metadata"]["used_provider"] == "custom:our-own"
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.used_model, row.used_provider, row.used_mode) == (MODEL, "custom:our-own", "api-keys")
    assert (row.cost, row.unpriced, row.prompt_tokens, row.provider_key_id) == (Decimal(0), True, 1000, own.id)
    assert Organization.objects.get(pk=caller.organization_id).credits == 100


def test_it_streams(caller: Caller, own: ProviderKey) -> None:
    response = caller.chat("hi", model=MODEL, stream=True)
    chunks = chunks_of(response)
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1] if chunk["choices"])
    assert (text, chunks[-1]) == ("You said: hi", "[DONE]")


@pytest.mark.parametrize("stream", [False, True])
def test_its_credential_is_masked_in_an_answer_that_echoes_it(caller: Caller, own: ProviderKey, stream: bool) -> None:
    response = caller.chat("Bearer sk-of-acme, sk-of-acorns", model=MODEL, stream=stream)
    if stream:
        chunks = [chunk for chunk in chunks_of(response)[:-1] if chunk["choices"]]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    else:
        text = response.json()["choices"][0]["message"]["content"]
    assert text == "You said: Bearer ..., sk-of-acorns"


def test_a_private_address_is_not_called(caller: Caller, own: ProviderKey, settings: Any) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = False
    tag = uuid4().hex
    response = caller.chat(f"hi [[sandbox tag={tag}]]", model=MODEL)
    assert response.status_code == 502
    assert "Must not lead to a private, loopback or link-local address" in response.json()["error"]["message"]
    assert caller.sent(tag) == []


def test_a_name_is_not_looked_up_again_after_it_was_checked(
    caller: Caller, own: ProviderKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the name is public when it is checked and private when it is called."""
    asked = []
    look_up = name_lookup._getaddrinfo

    def watched(host: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        return look_up(host, *args, **kwargs)

    monkeypatch.setattr(name_lookup, "_getaddrinfo", watched)
    assert caller.chat(model=MODEL).status_code == 200
    assert asked.count("localhost") == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("custom:our-own", "A model of your own provider is named custom:<providerName>/<model>"),
        ("custom:our-own/", "A model of your own provider is named custom:<providerName>/<model>"),
        ("custom:other/echo", "There is no active provider key named `other`"),
    ],
)
def test_a_name_that_means_nothing_is_refused(caller: Caller, own: ProviderKey, model: str, message: str) -> None:
    response = caller.chat(model=model)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "model_not_found")
    assert response.json()["error"]["message"] == message
    assert nothing_happened(caller)


def test_another_organizations_provider_is_out_of_reach(caller: Caller, own: ProviderKey) -> None:
    own.organization = Organization.objects.create(name="Elsewhere")
    own.save()
    assert caller.chat(model=MODEL).json()["error"]["message"] == "There is no active provider key named `our-own`"


def test_a_project_in_credits_mode_does_not_reach_it(caller: Caller, own: ProviderKey) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(mode="credits")
    policy.forget_all()
    response = caller.chat(model=MODEL)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("This project is in credits mode")
    assert nothing_happened(caller)


def test_access_rules_hold_for_it(caller: Caller, own: ProviderKey) -> None:
    IamRule.objects.create(api_key=caller.key, rule_type="deny_providers", rule_value={"providers": ["custom:our-own"]})
    policy.forget_all()
    assert caller.chat(model=MODEL).status_code == 403
    assert nothing_happened(caller)
