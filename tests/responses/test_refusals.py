"""Refusals of stored responses: others' ids, histories without end or with a hole, wrong fields; by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai as sdk
import pytest
from django.test import override_settings
from openai import OpenAI
from pytest_django import DjangoAssertNumQueries

from apps.keys.models import ApiKey
from apps.organizations.models import Organization, RetentionLevel
from apps.responses import access, history
from apps.responses.models import Conversation, StoredResponse
from tests.responses.conftest import Clients, neighbour, stranger
from tests.support import responses_calls
from tests.support.upstream import Caller, settle_all

MODEL = "sandbox/echo"
UNKNOWN = "resp_" + "0" * 48


def test_what_is_anothers_cannot_be_told_from_what_never_was(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    made = openai.responses.create(model=MODEL, input="secret")
    conversation = openai.conversations.create()

    def answers(client: OpenAI, response_id: str, item_id: str, conversation_id: str) -> list[tuple[int, str]]:
        def create(**fields: Any) -> Any:
            return client.responses.create(**{"model": MODEL, "input": "hello", **fields})

        calls = [
            lambda: client.responses.retrieve(response_id),
            lambda: list(client.responses.retrieve(response_id, stream=True)),
            lambda: client.responses.delete(response_id),
            lambda: client.responses.cancel(response_id),
            lambda: client.responses.input_items.list(response_id),
            lambda: create(previous_response_id=response_id),
            lambda: client.responses.compact(model=MODEL, previous_response_id=response_id),
            lambda: create(input=[{"type": "item_reference", "id": item_id}]),
            lambda: create(conversation=conversation_id),
        ]
        told = []
        for ask in calls:
            with pytest.raises(sdk.APIStatusError) as refused:
                ask()
            text = refused.value.response.text
            for word in (response_id, item_id, conversation_id):
                text = text.replace(word, "ID")
            told.append((refused.value.status_code, text))
        return told

    for token in (neighbour(keeper), stranger(keeper)):
        client = clients(token)
        foreign = answers(client, made.id, made.output[0].id, conversation.id)
        assert foreign == answers(client, UNKNOWN, "msg_" + "0" * 48, "conv_" + "0" * 48)
        assert [status for status, _ in foreign] == [404, 404, 404, 404, 404, 400, 400, 404, 404]
    assert openai.responses.retrieve(made.id).output_text == made.output_text


def test_a_chain_is_bounded_in_length_and_bytes(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    previous: str | None = None
    for _ in range(4):
        previous = openai.responses.create(model=MODEL, input="hello " * 100, previous_response_id=previous).id
    with override_settings(BODY_LIMIT=2_000), pytest.raises(sdk.APIStatusError) as large:
        openai.responses.create(model=MODEL, input="hello", previous_response_id=previous)
    assert (large.value.status_code, large.value.param) == (413, "previous_response_id")
    monkeypatch.setattr(history, "MAX_CHAIN_LENGTH", 3)
    with pytest.raises(sdk.BadRequestError) as long:
        openai.responses.create(model=MODEL, input="hello", previous_response_id=previous)
    assert (long.value.code, long.value.param) == ("chain_too_long", "previous_response_id")


def test_half_a_history_is_never_taken_for_a_whole_one(openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="one")
    second = openai.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    third = openai.responses.create(model=MODEL, input="three", previous_response_id=second.id)
    openai.responses.delete(first.id)
    for previous in (second, third):
        with pytest.raises(sdk.BadRequestError) as refused:
            openai.responses.create(model=MODEL, input="four", previous_response_id=previous.id)
        assert refused.value.code == "previous_response_not_found"
        assert first.id in refused.value.message


def test_without_room_a_response_is_answered_and_not_stored_unless_it_must_be(openai: OpenAI) -> None:
    with override_settings(STORED_BYTES_PER_ORGANIZATION=0):
        made = openai.responses.create(model=MODEL, input="hello")
        assert made.store is False
        with pytest.raises(sdk.BadRequestError) as refused:
            openai.responses.create(model=MODEL, input="hello", store=True)
    assert (refused.value.code, refused.value.param) == ("storage_limit_exceeded", "store")
    assert not StoredResponse.objects.exists()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"store": "yes"}, "store"),
        ({"background": 1}, "background"),
        ({"previous_response_id": 7}, "previous_response_id"),
        ({"conversation": 7}, "conversation"),
        ({"conversation": {}}, "conversation"),
        ({"previous_response_id": UNKNOWN, "conversation": "conv_1"}, "previous_response_id"),
        ({"background": True, "store": False}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": [{"type": "item_reference", "id": 7}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": "a b"}]}, "input[0].id"),
    ],
)
def test_a_wrong_field_is_named_and_nobody_is_asked(openai: OpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.responses.create(**{"model": MODEL, "input": "hello", **fields})
    assert refused.value.param == param
    assert (StoredResponse.objects.count(), settle_all()) == (0, 0)


def test_reference_beside_an_item_with_an_odd_id_is_looked_for_in_vain(caller: Caller) -> None:
    odd: Any = {"role": "user", "content": "hi", "id": ["msg_m"]}
    refused = responses_calls.ask(caller, [odd, {"type": "item_reference", "id": "msg_m"}], model=MODEL)
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "input[1].id")
    assert (StoredResponse.objects.count(), settle_all()) == (0, 0)


def test_a_conversation_is_bounded_in_items_and_bytes(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    said: Any = [{"role": "user", "content": "hello " * 100}] * 3
    conversation = openai.conversations.create(items=said)
    with override_settings(BODY_LIMIT=1_500), pytest.raises(sdk.APIStatusError) as large:
        openai.responses.create(model=MODEL, input="hello", conversation=conversation.id)
    monkeypatch.setattr(history, "MAX_ITEMS", 2)
    with pytest.raises(sdk.APIStatusError) as many:
        openai.responses.create(model=MODEL, input="hello", conversation=conversation.id)
    for refused in (large, many):
        assert (refused.value.status_code, refused.value.param) == (413, "conversation")
    assert not StoredResponse.objects.exists()


def test_a_thought_that_nobody_keeps_is_left_out_and_told(openai: OpenAI) -> None:
    given: Any = [{"type": "item_reference", "id": "rs_nobodys"}, {"role": "user", "content": "hello"}]
    made = openai.responses.create(model=MODEL, input=given)
    assert made.output_text == "You said: hello"
    assert [one["param"].split(".")[0] for one in made.to_dict()["gateway"]["warnings"]] == ["input"]


@pytest.mark.parametrize("path", [f"/v1/responses/{UNKNOWN}", f"/v1/responses/{UNKNOWN}/input_items"])
def test_a_method_that_a_path_does_not_have_is_told_before_a_body_is_looked_at(caller: Caller, path: str) -> None:
    headers = {"Authorization": f"Bearer {caller.token}"}
    answer = caller.client.generic("POST", path, b"", content_type="", headers=headers)
    assert answer.status_code == 405, answer.content


def test_a_revoked_key_reads_and_makes_nothing_more(
    keeper: Caller, openai: OpenAI, django_capture_on_commit_callbacks: Any
) -> None:
    made, conversation = openai.responses.create(model=MODEL, input="secret"), openai.conversations.create()
    keeper.key.status = ApiKey.Status.INACTIVE
    with django_capture_on_commit_callbacks(execute=True):
        keeper.key.save()
    calls: list[Callable[[], Any]] = [
        lambda: openai.responses.retrieve(made.id),
        lambda: openai.responses.input_items.list(made.id),
        lambda: openai.responses.delete(made.id),
        lambda: openai.responses.compact(model=MODEL, previous_response_id=made.id),
        lambda: openai.conversations.retrieve(conversation.id),
        lambda: openai.conversations.create(),
    ]
    for ask in calls:
        with pytest.raises(sdk.AuthenticationError):
            ask()
    assert (StoredResponse.objects.count(), Conversation.objects.count()) == (1, 1)


def test_a_new_retention_level_holds_from_the_next_request_on(
    keeper: Caller, openai: OpenAI, django_capture_on_commit_callbacks: Any
) -> None:
    made = openai.responses.create(model=MODEL, input="kept")
    organization = Organization.objects.get(pk=keeper.organization_id)
    organization.retention_level = RetentionLevel.NONE
    with django_capture_on_commit_callbacks(execute=True):
        organization.save()
    unkept = openai.responses.create(model=MODEL, input="not kept")
    assert unkept.to_dict()["store"] is False
    with pytest.raises(sdk.NotFoundError):
        openai.responses.retrieve(made.id)
    assert not StoredResponse.objects.exclude(pk=made.id).exists()


def test_an_id_that_was_never_made_here_is_refused_without_a_store(
    keeper: Caller, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    def read_aside(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(access, "find_aside", read_aside)
    headers = {"Authorization": f"Bearer {keeper.token}"}
    paths = [
        "/v1/responses/resp_nothing",
        f"/v1/responses/resp_{'0' * 47}",
        f"/v1/responses/resp_{'A' * 48}",
        "/v1/files/file-nothing",
        "/v1/batches/batch_nothing",
        "/v1/conversations/conv_nothing",
    ]
    assert keeper.client.get(paths[0], headers=headers).status_code == 404
    with django_assert_num_queries(0):
        answers = [keeper.client.get(path, headers=headers) for path in paths]
    assert [answer.status_code for answer in answers] == [404] * len(paths)
