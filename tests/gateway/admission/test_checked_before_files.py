"""A caller's limits and credits are looked at before anything that a request names is fetched or read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai as sdk
import pytest
import responses
from django.db import connection
from django.test.utils import CaptureQueriesContext
from openai import OpenAI

from apps.billing import balances
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.kernel.valkey import redis as kernel_redis
from apps.keys.models import ApiKey, IamRule
from apps.organizations.models import Organization
from tests.batches.test_files_in_requests import ask, upload
from tests.responses.conftest import clients, keeper, openai
from tests.support.credits_left import credited
from tests.support.image_requests import PNG, data_url, edit
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, nothing_happened, settle_all

__all__ = ["clients", "keeper", "openai"]

# An address that is public, so that the guard lets it pass without a lookup; nothing is sent there.
ADDRESS = "https://93.184.215.14/cat.png"
BY_ADDRESS = [{"image_url": data_url(PNG)}, {"image_url": ADDRESS}]


@pytest.fixture
def web(caller: Caller) -> Iterator[responses.RequestsMock]:
    """The internet, with one picture."""
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.add_passthru(caller.sandbox_url)
        mock.get(ADDRESS, body=PNG)
        yield mock


def change(caller: Caller, **fields: Any) -> tuple[int, str]:
    """Ask to change pictures, one of them by address; return status and code."""
    answer = edit(caller, images=BY_ADDRESS, **fields)
    body = answer.json()
    return answer.status_code, body["error"]["code"] if "error" in body else ""


def with_limit(caller: Caller, **columns: Any) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(**columns)
    policy.forget_all()


def test_without_credits_no_picture_is_fetched(caller: Caller, web: responses.RequestsMock) -> None:
    credited(caller, 0)
    assert change(caller) == (402, "insufficient_credits")
    assert len(web.calls) == 0
    assert nothing_happened(caller)


def test_with_less_than_any_provider_charges_no_picture_is_fetched(caller: Caller, web: responses.RequestsMock) -> None:
    credited(caller, "0.0001")
    assert change(caller) == (402, "insufficient_credits")
    assert len(web.calls) == 0


def test_with_a_mask_by_address_it_is_the_same(caller: Caller, web: responses.RequestsMock) -> None:
    credited(caller, 0)
    assert edit(caller, mask={"image_url": ADDRESS}).status_code == 402
    assert len(web.calls) == 0


def test_a_key_at_its_limit_has_no_picture_fetched(caller: Caller, web: responses.RequestsMock) -> None:
    with_limit(caller, usage_limit="0.00001")
    assert change(caller) == (402, "usage_limit_exceeded")
    assert len(web.calls) == 0


def test_a_model_that_the_key_may_not_use_has_no_picture_fetched(caller: Caller, web: responses.RequestsMock) -> None:
    IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["painter"]})
    policy.forget_all()
    assert change(caller)[0] == 403
    assert len(web.calls) == 0


def test_the_rate_is_looked_at_first_and_counted_once(caller: Caller, web: responses.RequestsMock) -> None:
    with_limit(caller, requests_per_minute=2)
    assert [change(caller)[0] for _ in range(4)] == [200, 200, 429, 429]
    assert len(web.calls) == 2
    settle_all()


def test_a_picture_that_cannot_be_had_counts_nothing_and_holds_nothing(
    caller: Caller, web: responses.RequestsMock
) -> None:
    with_limit(caller, requests_per_minute=1)
    web.replace(responses.GET, ADDRESS, status=404)
    assert [change(caller)[0] for _ in range(3)] == [400, 400, 400]
    assert nothing_happened(caller)
    web.replace(responses.GET, ADDRESS, body=PNG)
    assert change(caller)[0] == 200


def test_credits_that_came_a_moment_ago_count(caller: Caller, web: responses.RequestsMock) -> None:
    credited(caller, 0)
    assert change(caller)[0] == 402
    credited(caller, 10)
    assert change(caller)[0] == 200
    assert len(web.calls) == 1


def test_a_key_that_was_deleted_a_moment_ago_has_nothing_fetched(caller: Caller, web: responses.RequestsMock) -> None:
    assert change(caller)[0] == 200
    ApiKey.objects.filter(pk=caller.key.pk).update(status="deleted")
    policies_changed(caller)
    assert change(caller)[0] == 401
    assert len(web.calls) == 1


def test_pictures_that_are_sent_along_need_no_look_of_their_own(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [{"image_url": data_url(PNG)}]
    assert edit(caller, images=own).status_code == 200
    trips = round_trips(monkeypatch, kernel_redis.client())
    assert edit(caller, images=own).status_code == 200
    assert trips == ["EVALSHA", "EVALSHA"]


def test_without_credits_no_kept_file_is_read(openai: OpenAI, keeper: Caller) -> None:
    file_id = upload(openai)
    assert read_by(lambda: ask(openai, file_id)) == 1
    Organization.objects.filter(pk=keeper.organization_id).update(credits=0)
    kernel_redis.client().delete(balances.key("organization", keeper.organization_id))
    policies_changed(keeper)

    def refused() -> None:
        with pytest.raises(sdk.APIStatusError) as error:
            ask(openai, file_id)
        assert error.value.status_code == 402

    assert read_by(refused) == 0


def test_over_its_rate_no_kept_file_is_read(openai: OpenAI, keeper: Caller) -> None:
    file_id = upload(openai)
    with_limit(keeper, requests_per_minute=1)
    assert read_by(lambda: ask(openai, file_id)) == 1

    def refused() -> None:
        with pytest.raises(sdk.RateLimitError):
            ask(openai, file_id)

    assert read_by(refused) == 0


def test_without_credits_nothing_is_fetched_for_a_count_which_is_an_estimate(
    caller: Caller, web: responses.RequestsMock
) -> None:
    credited(caller, 0)
    picture = {"type": "image", "source": {"type": "url", "url": ADDRESS}}
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": [picture]}]}
    headers = {"Authorization": f"Bearer {caller.token}"}
    answer = caller.client.post("/v1/messages/count_tokens", body, content_type="application/json", headers=headers)
    assert (answer.status_code, list(answer.json())) == (200, ["input_tokens"])
    assert len(web.calls) == 0


def policies_changed(caller: Caller) -> None:
    """Tell every process that the organization's keys have changed, as an action does."""
    generation.bump(generation.organization_scope(caller.organization_id))


def read_by(work: Any) -> int:
    """Return how many chunks of kept files were read meanwhile."""
    with CaptureQueriesContext(connection) as queries:
        work()
    return sum("sealed_content" in query["sql"] for query in queries.captured_queries)
