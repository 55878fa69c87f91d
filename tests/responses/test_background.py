"""Background responses: polled, streamed and resumed, cancelled, taken over from a lost worker, and charged once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai as sdk
import pytest
from openai import OpenAI
from redis.exceptions import RedisError

from apps.billing.models import LedgerEntry
from apps.gateway.access import policy
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import cache_client
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.responses import background, event_stream
from apps.responses.models import BackgroundRun, StoredResponse
from tests.support.upstream import Caller, nothing_happened, settle_all

MODEL = "sandbox/echo"


def test_a_background_response_is_queued_then_there(openai: OpenAI) -> None:
    queued = openai.responses.create(model=MODEL, input="hello", background=True, metadata={"a": "b"})
    assert (queued.status, queued.background, queued.output, queued.usage) == ("queued", True, [], None)
    done = openai.responses.retrieve(queued.id)
    assert (done.status, done.background, done.output_text) == ("completed", True, "You said: hello")
    assert (done.id, done.metadata) == (queued.id, {"a": "b"})
    assert not BackgroundRun.objects.exists()
    # The next turn goes on from it.
    later = openai.responses.create(model=MODEL, input="and?", previous_response_id=done.id)
    assert later.status == "completed"


def test_it_is_one_log_row_and_one_charge(openai: OpenAI) -> None:
    openai.responses.create(model=MODEL, input="hello", background=True)
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.status_code, row.unified_finish_reason) == ("responses", 200, "completed")
    assert LedgerEntry.objects.get(kind="usage").reference == row.id


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_calls_of_tools_are_in_its_log_row(openai: OpenAI, stream: bool) -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool: Any = {"type": "function", "name": "get_weather", "parameters": city, "strict": False}
    asked: dict[str, Any] = {"model": "sandbox/tools", "input": 'weather in "Oslo"', "tools": [tool]}
    answer = openai.responses.create(**asked, background=True, stream=stream)
    if stream:
        assert list(answer)
    settle_all()
    [call] = RequestLog.objects.get().tool_calls
    assert call == {"id": call["id"], "name": "get_weather", "arguments": '{"city":"Oslo"}'}


def test_a_stream_is_resumed_with_exactly_the_events_that_are_missing(openai: OpenAI) -> None:
    stream = openai.responses.create(model=MODEL, input="hello there", background=True, stream=True)
    whole = [event.to_dict() for event in stream]
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert [event["type"] for event in whole[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert whole[-1]["type"] == "response.completed"
    response_id = whole[-1]["response"]["id"]
    assert [event.to_dict() for event in openai.responses.retrieve(response_id, stream=True)] == whole
    for cursor in range(len(whole) - 1):
        rest = openai.responses.retrieve(response_id, stream=True, starting_after=cursor)
        assert [event.to_dict() for event in rest] == whole[cursor + 1 :]


def test_events_lie_encrypted_and_go_with_the_response(openai: OpenAI) -> None:
    stream = openai.responses.create(model=MODEL, input="a falcon", background=True, stream=True)
    response_id = list(stream)[-1].response.id
    (key,) = cache_client().keys(f"*:responses:events:{response_id}")
    assert "falcon" not in str(cache_client().lrange(key, 0, -1))
    assert 0 < cache_client().ttl(key) <= event_stream.LASTS
    openai.responses.delete(response_id)
    assert not cache_client().exists(key)


def test_a_stream_whose_events_are_no_longer_kept_is_refused(openai: OpenAI) -> None:
    stream = openai.responses.create(model=MODEL, input="hello", background=True, stream=True)
    response_id = list(stream)[-1].response.id
    event_stream.drop(StoredResponse.objects.get().organization_id, response_id)
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.responses.retrieve(response_id, stream=True, starting_after=1)
    assert refused.value.code == "stream_expired"


def test_a_stream_too_long_to_be_kept_ends_with_its_last_event(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_BYTES", 500)
    events = list(openai.responses.create(model=MODEL, input="hello", background=True, stream=True))
    assert [event.type for event in events] == ["response.completed"]
    assert events[0].response.output_text == "You said: hello"


def test_only_what_was_streamed_in_the_background_can_be_resumed(openai: OpenAI) -> None:
    for fields in ({}, {"background": True}):
        made = openai.responses.create(model=MODEL, input="hello", **fields)
        with pytest.raises(sdk.BadRequestError) as refused:
            openai.responses.retrieve(made.id, stream=True)
        assert refused.value.param == "stream"


@pytest.mark.parametrize("query", ["stream=maybe", "stream=true&starting_after=x", "starting_after=1"])
def test_a_wrong_way_to_retrieve_is_refused(keeper: Caller, openai: OpenAI, query: str) -> None:
    made = openai.responses.create(model=MODEL, input="hello", background=True)
    path = f"/v1/responses/{made.id}?{query}"
    answer = keeper.client.get(path, headers={"Authorization": f"Bearer {keeper.token}"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in {"stream", "starting_after"}


def test_what_is_not_admitted_is_refused_at_once_and_leaves_nothing(keeper: Caller, openai: OpenAI) -> None:
    for fields, status in (
        ({"model": "nobodys-model"}, 400),
        ({"temperature": 9}, 400),
        ({"max_output_tokens": "many"}, 400),
    ):
        with pytest.raises(sdk.APIStatusError) as refused:
            openai.responses.create(**{"model": MODEL, "input": "hello", "background": True, **fields})
        assert refused.value.status_code == status
    ApiKey.objects.filter(pk=keeper.key.pk).update(usage_limit=0)
    policy.forget_all()
    with pytest.raises(sdk.APIStatusError) as poor:
        openai.responses.create(model=MODEL, input="hello", background=True)
    assert poor.value.status_code == 402
    assert (StoredResponse.objects.count(), BackgroundRun.objects.count()) == (0, 0)
    assert nothing_happened(keeper)


def test_a_provider_that_fails_is_told_by_the_response(openai: OpenAI) -> None:
    made = openai.responses.create(
        model=MODEL, input="hello [[sandbox status=500]]", background=True, extra_headers={"x-no-fallback": "true"}
    )
    failed = openai.responses.retrieve(made.id)
    assert (failed.status, failed.error is not None) == ("failed", True)
    assert failed.error.code == "server_error"
    settle_all()
    assert RequestLog.objects.get().cost == 0


def test_a_response_that_has_ended_is_not_cancelled_and_one_in_the_foreground_never(openai: OpenAI) -> None:
    made = openai.responses.create(model=MODEL, input="hello", background=True)
    assert openai.responses.cancel(made.id).status == "completed"
    foreground = openai.responses.create(model=MODEL, input="hello")
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.responses.cancel(foreground.id)
    assert "synchronous" in refused.value.message


def test_a_run_beyond_what_a_worker_takes_waits_for_room(openai: OpenAI) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "MAX_RUNS", 0)
        made = openai.responses.create(model=MODEL, input="hello", background=True)
        assert background.take_over() == 0
        assert openai.responses.retrieve(made.id).status == "queued"
    assert background.take_over() == 1
    assert openai.responses.retrieve(made.id).status == "completed"


def test_a_token_of_a_process_is_nobodys_key_outside_of_it(keeper: Caller, clients: Callable[[str], OpenAI]) -> None:
    token = policy.token_of_key(keeper.key.pk)
    assert policy.find_policy(token).api_key_id == keeper.key.pk
    answer = keeper.client.get("/v1/responses/resp_1", headers={"Authorization": f"Bearer {token[1:]}"})
    assert answer.status_code == 401


def test_counting_tokens_counts_what_came_before_and_begins_nothing(openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="hello")
    alone = openai.responses.input_tokens.count(model=MODEL, input="and?")
    more = openai.responses.input_tokens.count(
        model=MODEL, input="and?", previous_response_id=first.id, extra_body={"background": True}
    )
    assert more.input_tokens > alone.input_tokens
    assert (StoredResponse.objects.count(), BackgroundRun.objects.count()) == (1, 0)


def test_a_stream_of_a_response_that_is_deleted_ends_without_a_last_event(openai: OpenAI) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "MAX_RUNS", 0)
        stream = openai.responses.create(model=MODEL, input="hello", background=True, stream=True)
        first = next(stream)
        openai.responses.delete(first.response.id)
    assert [event.type for event in stream] == ["response.queued"]


def test_a_stream_whose_events_cannot_be_kept_ends_with_its_last_event(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise RedisError("away")

    monkeypatch.setattr(cache_client(), "execute_command", away)
    events = list(openai.responses.create(model=MODEL, input="hello", background=True, stream=True))
    assert [event.type for event in events] == ["response.completed"]
    assert events[0].response.output_text == "You said: hello"


def test_a_log_that_the_store_evicts_is_not_gone_on_with(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    append = CacheShare.append

    def evicted(share: CacheShare, name: str, item: bytes | str, seconds: int, *, is_first: bool) -> bool:
        if not is_first:
            cache_client().delete(share.key(name))
        return append(share, name, item, seconds, is_first=is_first)

    monkeypatch.setattr(CacheShare, "append", evicted)
    events = list(openai.responses.create(model=MODEL, input="hello", background=True, stream=True))
    assert [event.type for event in events] == ["response.completed"]
    assert not cache_client().keys("*:responses:events:*")
