"""Stored responses, by the official client's own methods: chained, retrieved, listed, deleted, only by their owner."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import Mock
from uuid import uuid4

import openai as sdk
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from openai import OpenAI

from apps.kernel.postgres import database
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from apps.organizations.deletion import erase_deleted
from apps.organizations.models import Organization, RetentionLevel
from apps.responses import response_rows, retention
from apps.responses.models import Conversation, StoredResponse
from tests.responses.conftest import Clients, keep
from tests.support.upstream import Caller, settle_all

MODEL = "sandbox/echo"
UNKNOWN = "resp_" + "0" * 48


def sent_texts(caller: Caller, tag: str) -> list[tuple[str, str]]:
    """Return role and text of each message that the provider was sent."""
    (sent,) = caller.sent(tag)
    return [(one["role"], one["content"]) for one in sent["body"]["messages"]]


def test_a_response_goes_on_from_the_one_before_at_once(keeper: Caller, openai: OpenAI) -> None:
    tag = uuid4().hex
    first = openai.responses.create(model=MODEL, input="I am Ada", instructions="Be brief")
    second = openai.responses.create(model=MODEL, input="and I like tea", previous_response_id=first.id)
    third = openai.responses.create(
        model=MODEL, input=f"who am I? [[sandbox tag={tag}]]", previous_response_id=second.id
    )
    assert (first.store, first.previous_response_id) == (True, None)
    assert (third.previous_response_id, third.status) == (second.id, "completed")
    # The instructions of an earlier response do not come along.
    assert sent_texts(keeper, tag) == [
        ("user", "I am Ada"),
        ("assistant", first.output_text),
        ("user", "and I like tea"),
        ("assistant", second.output_text),
        ("user", f"who am I? [[sandbox tag={tag}]]"),
    ]


def test_a_streamed_response_is_there_before_its_last_event(openai: OpenAI) -> None:
    for event in openai.responses.create(model=MODEL, input="hello", stream=True):
        if event.type == "response.completed":
            assert openai.responses.retrieve(event.response.id).output_text == event.response.output_text
            return
    pytest.fail("the stream did not complete")


def test_a_response_is_retrieved_as_it_was_answered_and_deleted(openai: OpenAI) -> None:
    made = openai.responses.create(model=MODEL, input="hello", metadata={"a": "b"})
    assert openai.responses.retrieve(made.id).to_dict() == made.to_dict()
    openai.responses.delete(made.id)
    for ask in (openai.responses.retrieve, openai.responses.delete, openai.responses.input_items.list):
        with pytest.raises(sdk.NotFoundError) as refused:
            ask(made.id)
        assert refused.value.response.json()["message"] == f"Response with id '{made.id}' not found."
    with pytest.raises(sdk.BadRequestError) as lost:
        openai.responses.create(model=MODEL, input="go on", previous_response_id=made.id)
    assert (lost.value.code, lost.value.param) == ("previous_response_not_found", "previous_response_id")


def test_input_items_are_listed_with_those_of_earlier_responses(openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="one")
    second = openai.responses.create(
        model=MODEL, input=[{"role": "user", "content": "two"}], previous_response_id=first.id
    )
    items = list(openai.responses.input_items.list(second.id, order="asc", limit=1))
    assert [item.content[0].text for item in items] == ["one", first.output_text, "two"]
    assert len({item.id for item in items}) == 3
    newest = openai.responses.input_items.list(second.id, limit=2)
    assert newest.has_more is True
    assert [item.id for item in newest.data] == [items[2].id, items[1].id]


def test_an_item_is_referred_to_by_its_id(keeper: Caller, openai: OpenAI) -> None:
    tag = uuid4().hex
    made = openai.responses.create(model=MODEL, input="hello")
    openai.responses.create(
        model=MODEL,
        input=[
            {"role": "user", "content": "hello"},
            {"type": "item_reference", "id": made.output[0].id},
            {"role": "user", "content": f"again [[sandbox tag={tag}]]"},
        ],
    )
    assert sent_texts(keeper, tag)[1] == ("assistant", made.output_text)
    with pytest.raises(sdk.NotFoundError) as refused:
        openai.responses.create(model=MODEL, input=[{"type": "item_reference", "id": "msg_nobodys"}])
    assert refused.value.param == "input[0].id"
    assert "Item with id 'msg_nobodys' not found." in refused.value.message


def test_a_conversation_grows_by_what_is_asked_and_answered(keeper: Caller, openai: OpenAI) -> None:
    tag = uuid4().hex
    conversation = openai.conversations.create(items=[{"type": "message", "role": "developer", "content": "Be kind"}])
    first = openai.responses.create(model=MODEL, input="hello", conversation=conversation.id)
    assert first.conversation is not None
    assert first.conversation.id == conversation.id
    second = openai.responses.create(
        model=MODEL, input=f"and? [[sandbox tag={tag}]]", conversation={"id": conversation.id}, stream=True
    )
    answer = [event.response.output_text for event in second if event.type == "response.completed"]
    said = [("user", "hello"), ("assistant", first.output_text), ("user", f"and? [[sandbox tag={tag}]]")]
    assert sent_texts(keeper, tag)[1:] == said
    items = list(openai.conversations.items.list(conversation.id, order="asc"))
    assert [item.content[0].text for item in items] == [
        "Be kind",
        *(text for _, text in said),
        *answer,
    ]


def test_a_stateless_request_touches_no_table_and_leaves_nothing(keeper: Caller, openai: OpenAI) -> None:
    openai.responses.create(model=MODEL, input="warm", store=False)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        made = openai.responses.create(model=MODEL, input="hello", store=False)
    assert (len(queries), made.store) == (0, False)
    assert not StoredResponse.objects.exists()
    with pytest.raises(sdk.NotFoundError):
        openai.responses.retrieve(made.id)


@pytest.mark.parametrize("level", [RetentionLevel.NONE, RetentionLevel.METADATA])
def test_nothing_is_stored_where_no_content_is_kept(caller: Caller, clients: Clients, level: str) -> None:
    keep(caller, level)
    client = clients(caller.token)
    made = client.responses.create(model=MODEL, input="hello", store=True)
    assert (made.status, made.store) == ("completed", False)
    with pytest.raises(sdk.NotFoundError):
        client.responses.retrieve(made.id)
    for fields, param in (
        ({"previous_response_id": made.id}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
    ):
        with pytest.raises(sdk.BadRequestError) as refused:
            client.responses.create(model=MODEL, input="hello", **fields)
        assert (refused.value.param, "Zero Data Retention" in refused.value.message) == (param, True)
    assert not StoredResponse.objects.exists()


def test_nothing_of_a_response_lies_in_the_database_in_clear(openai: OpenAI) -> None:
    openai.responses.create(model=MODEL, input="a falcon flies", metadata={"bird": "falcon"})
    assert "falcon" not in str(list(StoredResponse.objects.values_list()))


def test_an_expired_response_is_not_there_and_is_removed(openai: OpenAI) -> None:
    old = openai.responses.create(model=MODEL, input="hello")
    kept = openai.responses.create(model=MODEL, input="hello")
    row = StoredResponse.objects.get(pk=kept.id)
    assert timedelta(days=30) - timedelta(minutes=1) < row.expires_at - timezone.now() <= timedelta(days=30)
    StoredResponse.objects.filter(pk=old.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(sdk.NotFoundError):
        openai.responses.retrieve(old.id)
    assert retention.purge(timezone.now()) == 1
    assert [row.pk for row in StoredResponse.objects.all()] == [kept.id]


def test_a_plan_with_fewer_days_shortens_what_is_stored(keeper: Caller, openai: OpenAI) -> None:
    made = openai.responses.create(model=MODEL, input="hello")
    StoredResponse.objects.filter(pk=made.id).update(created_at=timezone.now() - timedelta(days=4))
    organization = keeper.key.project.organization
    organization.refresh_from_db()
    organization.plan = "free"
    organization.save()
    assert retention.purge(timezone.now()) == 1
    assert not StoredResponse.objects.exists()


def test_erasing_an_organization_takes_its_responses_and_what_comes_late(keeper: Caller, openai: OpenAI) -> None:
    openai.responses.create(model=MODEL, input="hello", conversation=openai.conversations.create().id)
    late = openai.responses.create(model=MODEL, input="hello")
    row = StoredResponse.objects.get(pk=late.id)
    Organization.objects.filter(pk=keeper.organization_id).update(status=Organization.Status.DELETED)
    assert erase_deleted() == [keeper.organization_id]
    assert (StoredResponse.objects.count(), Conversation.objects.count()) == (0, 0)
    row.save(force_insert=True)
    assert retention.purge(timezone.now()) == 1


def test_a_response_survives_a_database_that_is_away_when_it_ends(
    keeper: Caller, openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "write", Mock(side_effect=OperationalError("away")))
        made = openai.responses.create(model=MODEL, input="hello")
    assert not StoredResponse.objects.exists()
    assert b"hello" not in b"".join(str(valkey().get(key)).encode() for key in valkey().scan_iter("responses:aside:*"))
    # Meanwhile it is read from where it waits.
    assert openai.responses.retrieve(made.id).output_text == made.output_text
    second = openai.responses.create(model=MODEL, input="go on", previous_response_id=made.id)
    assert response_rows.bring_in() == 1
    assert {row.pk for row in StoredResponse.objects.all()} == {made.id, second.id}
    assert response_rows.bring_in() == 0
    assert openai.responses.retrieve(made.id).output_text == made.output_text


def test_what_waits_for_the_database_is_bounded(
    keeper: Caller, openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "write", Mock(side_effect=OperationalError("away")))
        first = openai.responses.create(model=MODEL, input="hello")
        size = int(valkey().hget("responses:aside-bytes", keeper.organization_id.hex) or 0)
        patch.setattr(response_rows, "MAX_ASIDE", size + 10)
        second = openai.responses.create(model=MODEL, input="hello")
        assert second.output_text == "You said: hello"
        patch.setattr(response_rows, "MAX_ASIDE", 10 * size)
        patch.setattr(response_rows, "MAX_ASIDE_IN_ALL", size + 10)
        openai.responses.create(model=MODEL, input="hello")
    assert size > 0
    assert valkey().hgetall("responses:aside-bytes") == {keeper.organization_id.hex: str(size), "": str(size)}
    assert response_rows.bring_in() == 1
    assert [row.pk for row in StoredResponse.objects.all()] == [first.id]
    assert not valkey().exists("responses:aside-bytes")


def test_its_log_row_is_one_like_any_other(keeper: Caller, openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="hello")
    openai.responses.create(model=MODEL, input="and?", previous_response_id=first.id)
    assert settle_all() == 2
    rows = RequestLog.objects.order_by("created_at")
    assert [(row.route, row.status_code, row.unified_finish_reason) for row in rows] == [
        ("responses", 200, "completed")
    ] * 2


def test_a_chain_is_one_session_of_the_log(keeper: Caller, openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="I am Ada")
    second = openai.responses.create(model=MODEL, input="and I like tea", previous_response_id=first.id)
    openai.responses.create(model=MODEL, input="so?", previous_response_id=second.id, background=True)
    openai.responses.create(model=MODEL, input="or?", previous_response_id=second.id, store=False)
    begun = openai.responses.create(model=MODEL, input="alone", background=True)
    openai.responses.create(model=MODEL, input="nothing kept", store=False)
    settle_all()
    rows = RequestLog.objects.order_by("id").values_list("session_id", flat=True)
    assert list(rows) == [first.id] * 4 + [begun.id, None]


def test_a_conversation_is_a_session_of_the_log(keeper: Caller, openai: OpenAI) -> None:
    conversation = openai.conversations.create()
    for background in (False, True):
        openai.responses.create(model=MODEL, input="hello", conversation=conversation.id, background=background)
    settle_all()
    assert set(RequestLog.objects.values_list("session_id", flat=True)) == {conversation.id}
    assert RequestLog.objects.count() == 2
