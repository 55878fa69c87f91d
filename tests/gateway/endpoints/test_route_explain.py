"""`POST /v1/route/explain`: the choice as the request itself would make it, without a call to a provider."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.keys.models import IamRule
from tests.support.upstream import Caller, nothing_happened


def ask(caller: Caller, content: str = "hello", headers: dict[str, str] | None = None, **fields: Any) -> Any:
    body = {"model": "echo", "messages": [{"role": "user", "content": content}], **fields}
    sent = {"Authorization": f"Bearer {caller.token}", **(headers or {})}
    return caller.client.post("/v1/route/explain", body, content_type="application/json", headers=sent)


def test_it_tells_what_the_request_would_do_and_does_nothing(caller: Caller, backup: str) -> None:
    tag = uuid4().hex
    response = ask(caller, f"hi [[sandbox tag={tag}]]", max_tokens=100)
    assert response.status_code == 200
    told = response.json()
    assert (told["used_provider"], told["used_model"], told["requested_provider"]) == ("sandbox", "echo", None)
    assert told["selectionReason"] == "price-only-no-metrics"
    assert [one["provider"] for one in told["order"]] == ["sandbox", "backup"]
    assert [one["providerId"] for one in told["providerScores"]] == ["sandbox", "backup"]
    assert told["excluded"] == []
    assert told["estimate"]["prompt_tokens"] > 0
    assert caller.sent(tag) == []
    assert nothing_happened(caller)


def test_it_agrees_with_the_request(caller: Caller, backup: str) -> None:
    told = ask(caller).json()
    metadata = caller.chat(model="echo").json()["metadata"]
    for name in ("used_provider", "used_model", "underlying_used_model", "selectionReason", "availableProviders"):
        assert told[name] == metadata[name]


@pytest.mark.parametrize("why", ["credential", "rule", "need"])
def test_it_says_why_a_provider_is_left_out(
    caller: Caller, backup: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    fields: dict[str, Any] = {}
    if why == "credential":
        monkeypatch.delenv("BACKUP_API_KEY")
    elif why == "rule":
        value = {"providers": [backup]}
        rule = IamRule.objects.create(api_key=caller.key, rule_type="deny_providers", rule_value=value)
        policy.forget_all()
    else:
        ModelProvider.objects.filter(provider_id=backup).update(json_output=False)
        fields["response_format"] = {"type": "json_object"}
    reasons = {
        "credential": "no credential",
        "rule": f"access rule {rule.id} (deny_providers)" if why == "rule" else "",
        "need": "does not support JSON output",
    }
    assert ask(caller, **fields).json()["excluded"] == [{"provider": "backup", "reason": reasons[why]}]


def test_it_refuses_what_the_request_would_be_refused_for(caller: Caller) -> None:
    response = ask(caller, model="nobody")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "model_not_found")
    assert ask(caller, headers={"Authorization": "Bearer nonsense"}).status_code == 401
