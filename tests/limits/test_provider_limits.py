"""Limits of providers: routing leaves a provider out beyond its limit; a request is refused when none is left."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.kernel.valkey import redis as kernel_redis
from apps.limits.models import Limit
from tests.limits.test_limited_requests import limit, used
from tests.support.round_trips import round_trips
from tests.support.sandbox_providers import Adding, add_provider, clock
from tests.support.upstream import Caller, nothing_happened, settle_all

__all__ = ["add_provider", "clock"]
pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def second(add_provider: Adding) -> str:
    """A provider that is dearer than the sandbox, which is asked first."""
    return add_provider("second", "9")


def on(caller: Caller, provider: str, **fields: Any) -> Limit:
    return limit(caller, **{"name": f"of {provider}", "scope": "provider", "provider": provider, **fields})


def ask(caller: Caller, model: str = "echo", content: str = "hi", **fields: Any) -> tuple[str, Any]:
    """Ask, and return the provider that answered with the explanation of the limits."""
    answer = caller.chat(content, model=model, **fields)
    assert answer.status_code == 200, answer.content
    metadata = answer.json()["metadata"]
    return metadata["used_provider"], metadata.get("limitedProviders")


def test_a_provider_beyond_its_limit_is_left_out_and_the_last_one_refuses(caller: Caller, second: str) -> None:
    first, last = on(caller, "sandbox", amount=Decimal(1)), on(caller, second, amount=Decimal(2))
    left_out = [{"providerId": "sandbox", "limit": "of sandbox"}]
    assert [ask(caller) for _ in range(2)] == [("sandbox", None), (second, left_out)]
    settle_all()
    # Only the provider that answered counts, though both were held.
    assert (used(first), used(last)) == (1, 1)
    assert ask(caller) == (second, left_out)
    settle_all()
    refused = caller.chat(model="echo")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_reached")
    assert refused.json()["error"]["message"].startswith(
        'The limit "of second" of the provider second, 2 requests in all, does not cover this request: 2 used'
    )
    assert nothing_happened(caller)
    assert (used(first), used(last)) == (1, 2)


def test_a_limit_of_a_provider_holds_for_nothing_that_others_answer(caller: Caller, second: str) -> None:
    one = on(caller, second, amount=Decimal(0))
    assert [ask(caller) for _ in range(2)] == [("sandbox", [{"providerId": second, "limit": "of second"}])] * 2
    settle_all()
    assert used(one) == 0


def test_a_named_provider_is_left_out_unless_its_client_wants_no_other(caller: Caller, second: str) -> None:
    on(caller, "sandbox", amount=Decimal(0))
    assert ask(caller, "sandbox/echo")[0] == second
    refused = caller.chat(model="sandbox/echo", headers={"x-no-fallback": "true"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_reached")
    refused = caller.chat(model="sandbox/echo", provider={"allow_fallbacks": False})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_reached")
    # One of its choice is no fallback.
    assert ask(caller, headers={"x-no-fallback": "true"})[0] == second
    assert caller.chat(model="echo", provider={"only": ["sandbox"]}).status_code == 429


def test_an_answer_is_not_cut_short_for_a_provider_that_another_can_stand_in_for(caller: Caller, second: str) -> None:
    on(caller, "sandbox", counts="output_tokens", amount=Decimal(2_000))
    assert ask(caller, content="hi [[sandbox tag=whole]]")[0] == second
    assert caller.sent("whole")[0]["body"].get("max_tokens") is None
    # The last one left gives what there is.
    answer = caller.chat("hi [[sandbox tag=part]]", model="sandbox/echo", headers={"x-no-fallback": "true"})
    assert answer.status_code == 200, answer.content
    assert caller.sent("part")[0]["body"]["max_tokens"] == 500


def test_it_combines_with_a_key_and_a_model(caller: Caller, second: str) -> None:
    key = str(caller.key.id)
    on(caller, "sandbox", scope="key", scope_id=key, model="ec*", amount=Decimal(1))
    on(caller, "sandbox", name="other", scope="key", scope_id=key, model="gpt-*", amount=Decimal(0))
    assert [ask(caller)[0] for _ in range(2)] == ["sandbox", second]


def test_a_warm_request_past_a_used_up_provider_makes_no_query_and_two_round_trips(
    caller: Caller, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(caller, "sandbox", amount=Decimal(1))
    assert ask(caller)[0] == "sandbox"
    settle_all()
    assert ask(caller)[0] == second
    trips = round_trips(monkeypatch, kernel_redis.client())
    with CaptureQueriesContext(connection) as queries:
        assert ask(caller)[0] == second
    assert (len(queries), trips) == (0, ["EVALSHA", "EVALSHA"])


def test_explaining_a_route_names_the_limit(caller: Caller, second: str) -> None:
    def explain(**headers: str) -> Any:
        body = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
        answer = caller.client.post(
            "/v1/route/explain",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {caller.token}", **headers},
        )
        assert answer.status_code == 200, answer.content
        return answer.json()

    on(caller, "sandbox", amount=Decimal(1))
    assert (explain()["used_provider"], "limitedProviders" in explain()) == ("sandbox", False)
    assert ask(caller)[0] == "sandbox"
    settle_all()
    told = explain()
    assert (told["used_provider"], told["limitedProviders"]) == (
        second,
        [{"providerId": "sandbox", "limit": "of sandbox"}],
    )
    assert {"provider": "sandbox", "reason": 'the limit "of sandbox" is used up'} in told["excluded"]
