"""Conversations, by the official client's own methods, and by HTTP where it would not ask such a thing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import openai as sdk
import pytest
from django.test import override_settings
from django.utils import timezone
from openai import OpenAI

from apps.gateway.access import policy
from apps.kernel.valkey.redis import client as valkey
from apps.organizations.models import Organization, RetentionLevel
from apps.responses import retention
from apps.responses.models import Conversation, ConversationItem
from tests.responses.conftest import Clients, keep, neighbour, stranger
from tests.support.upstream import Caller

UNKNOWN = "conv_" + "0" * 48


def user(text: str) -> dict[str, Any]:
    """Return a message of a user's."""
    return {"type": "message", "role": "user", "content": text}


def texts_of(items: Any) -> list[str]:
    """Return what messages say."""
    return [item.content[0].text for item in items]


def test_a_conversation_is_created_read_changed_and_deleted(openai: OpenAI) -> None:
    made = openai.conversations.create(metadata={"topic": "boats"}, items=[user("hello")])
    assert made.id.startswith("conv_")
    assert (made.object, made.metadata) == ("conversation", {"topic": "boats"})
    assert openai.conversations.retrieve(made.id) == made
    changed = openai.conversations.update(made.id, metadata={"topic": "ships"})
    assert (changed.id, changed.metadata) == (made.id, {"topic": "ships"})
    gone = openai.conversations.delete(made.id)
    assert (gone.id, gone.deleted, gone.object) == (made.id, True, "conversation.deleted")
    with pytest.raises(sdk.NotFoundError) as refused:
        openai.conversations.retrieve(made.id)
    assert refused.value.body["message"] == f"Conversation with id '{made.id}' not found."
    assert not ConversationItem.objects.exists()


def test_items_are_added_listed_page_by_page_read_and_deleted(openai: OpenAI) -> None:
    conversation = openai.conversations.create(items=[user("0")])
    for start in (1, 3):
        added = openai.conversations.items.create(conversation.id, items=[user(str(start)), user(str(start + 1))])
        assert texts_of(added.data) == [str(start), str(start + 1)]
    # Every page is fetched by the client, in both directions.
    listing = openai.conversations.items.list
    assert texts_of(listing(conversation.id, limit=2)) == ["4", "3", "2", "1", "0"]
    assert texts_of(listing(conversation.id, limit=2, order="asc")) == ["0", "1", "2", "3", "4"]
    first = listing(conversation.id, limit=2)
    assert (first.has_more, first.last_id) == (True, first.data[1].id)
    item = openai.conversations.items.retrieve(first.data[0].id, conversation_id=conversation.id)
    assert texts_of([item]) == ["4"]
    assert openai.conversations.items.delete(item.id, conversation_id=conversation.id).id == conversation.id
    assert texts_of(listing(conversation.id)) == ["3", "2", "1", "0"]
    with pytest.raises(sdk.NotFoundError):
        openai.conversations.items.retrieve(item.id, conversation_id=conversation.id)


def test_what_is_anothers_cannot_be_told_from_what_never_was(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    made = openai.conversations.create(items=[user("secret")])
    item_id = openai.conversations.items.list(made.id).data[0].id

    def answers(client: OpenAI, conversation_id: str) -> list[tuple[int, str]]:
        calls = [
            lambda: client.conversations.retrieve(conversation_id),
            lambda: client.conversations.update(conversation_id, metadata={}),
            lambda: client.conversations.delete(conversation_id),
            lambda: client.conversations.items.list(conversation_id),
            lambda: client.conversations.items.create(conversation_id, items=[user("mine")]),
            lambda: client.conversations.items.retrieve(item_id, conversation_id=conversation_id),
            lambda: client.conversations.items.delete(item_id, conversation_id=conversation_id),
        ]
        told = []
        for ask in calls:
            with pytest.raises(sdk.APIStatusError) as refused:
                ask()
            told.append((refused.value.status_code, refused.value.response.text.replace(conversation_id, "ID")))
        return told

    for token in (neighbour(keeper), stranger(keeper)):
        client = clients(token)
        foreign = answers(client, made.id)
        assert foreign == answers(client, UNKNOWN)
        assert {status for status, _ in foreign} == {404}
    assert texts_of(openai.conversations.items.list(made.id)) == ["secret"]


def test_nothing_of_a_conversation_lies_in_the_database_in_clear(openai: OpenAI) -> None:
    openai.conversations.create(metadata={"topic": "falcons"}, items=[user("a falcon flies")])
    said = f"{list(Conversation.objects.values_list())}{list(ConversationItem.objects.values_list())}"
    assert "falcon" not in said


@pytest.mark.parametrize("level", [RetentionLevel.NONE, RetentionLevel.METADATA])
def test_no_conversation_is_kept_where_no_content_is(caller: Caller, clients: Clients, level: str) -> None:
    keep(caller, level)
    with pytest.raises(sdk.BadRequestError) as refused:
        clients(caller.token).conversations.create(items=[user("hello")])
    assert refused.value.message.endswith("its retention level keeps no content. An owner may set it to `retain`.")
    assert not Conversation.objects.exists()


def test_a_lowered_retention_hides_at_once_what_the_purge_removes_later(keeper: Caller, openai: OpenAI) -> None:
    made = openai.conversations.create(items=[user("hello")])
    keep(keeper, RetentionLevel.METADATA)
    with pytest.raises(sdk.NotFoundError):
        openai.conversations.retrieve(made.id)
    retention.purge(timezone.now())
    assert (Conversation.objects.count(), ConversationItem.objects.count()) == (0, 0)


def test_an_expired_conversation_is_not_there_and_is_removed(openai: OpenAI) -> None:
    made = openai.conversations.create(items=[user("hello")])
    kept = openai.conversations.create(items=[user("hello")])
    Conversation.objects.filter(pk=made.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(sdk.NotFoundError):
        openai.conversations.retrieve(made.id)
    # The conversation, and its item with it.
    assert retention.purge(timezone.now()) == 2
    assert [row.pk for row in Conversation.objects.all()] == [kept.id]


def test_it_is_kept_for_a_month_and_no_longer_than_the_log(keeper: Caller, openai: OpenAI) -> None:
    row = Conversation.objects.get(pk=openai.conversations.create().id)
    assert row.expires_at - row.created_at == timedelta(days=30)
    organization = keeper.key.project.organization
    organization.plan = "free"
    organization.save()
    row = Conversation.objects.get(pk=openai.conversations.create().id)
    assert row.expires_at - row.created_at == timedelta(days=3)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ("", {"metadata": {"a": 1}}, "metadata.a"),
        ("", {"metadata": []}, "metadata"),
        ("", {"items": "hello"}, "items"),
        ("", {"items": [user("hello")] * 21}, "items"),
        ("", {"items": [7]}, "items[0]"),
        ("", {"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0]"),
        ("", {"items": [{**user("hello"), "id": "a b"}]}, "items[0].id"),
        ("", {"items": [{**user("hello"), "id": "a"}] * 2}, "items[1].id"),
        ("", {"items": [{**user("hello"), "role": "king"}]}, "items[0].role"),
        ("", {"items": [user("hello"), {"type": "nonsense"}]}, "items[1].type"),
        ("/{id}", {}, "metadata"),
        ("/{id}/items", {}, "items"),
        ("/{id}/items", {"items": []}, "items"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_stored(
    keeper: Caller, openai: OpenAI, path: str, body: Any, param: str
) -> None:
    made = openai.conversations.create()
    answer = keeper.client.post(
        f"/v1/conversations{path.format(id=made.id)}",
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {keeper.token}"},
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (Conversation.objects.count(), ConversationItem.objects.count()) == (1, 0)


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=no", "after")],
)
def test_a_wrong_page_is_refused_by_name(keeper: Caller, openai: OpenAI, query: str, param: str) -> None:
    made = openai.conversations.create(items=[user("hello")])
    path = f"/v1/conversations/{made.id}/items?{query}"
    answer = keeper.client.get(path, headers={"Authorization": f"Bearer {keeper.token}"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_organization_stores_no_more_than_it_may(openai: OpenAI) -> None:
    openai.conversations.create(items=[user("hello")])
    valkey().flushall()
    with override_settings(STORED_BYTES_PER_ORGANIZATION=500), pytest.raises(sdk.BadRequestError) as refused:
        openai.conversations.create(items=[user("hello")])
    assert refused.value.code == "storage_limit_exceeded"
    assert Conversation.objects.count() == 1


def test_the_free_plan_stores_little_without_credits_and_more_with_some(
    keeper: Caller, openai: OpenAI, settings: Any
) -> None:
    settings.STORED_BYTES_WITHOUT_CREDITS = 500
    organizations = Organization.objects.filter(pk=keeper.organization_id)
    openai.conversations.create(items=[user("hello " * 100)])
    organizations.update(plan="free", credits=0)
    policy.forget_all()
    valkey().flushall()
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.conversations.create(items=[user("hello")])
    assert refused.value.code == "storage_limit_exceeded"
    assert "add credits" in refused.value.message
    assert Conversation.objects.count() == 1
    organizations.update(credits=1)
    openai.conversations.create(items=[user("hello")])
    organizations.update(plan="pro", credits=0)
    policy.forget_all()
    openai.conversations.create(items=[user("hello")])
    assert Conversation.objects.count() == 3
