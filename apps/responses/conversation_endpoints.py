"""`/v1/conversations`: create, read, update and delete conversations; add, list, read and delete their items."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.chat.responses.client import Asked
from apps.gateway.dialects.chat.responses.client.read_request import read_wire
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.gateway.endpoints.response_state import OrganizationCipher
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses import conversations, public_ids
from apps.responses.items import (
    Item,
    list_object,
    listed,
    read_include,
    read_items,
    read_metadata,
    read_object,
    read_page,
)
from apps.responses.retention import has_room, keeps

Record = dict[str, Any]


def create_conversation(request: ClientRequest) -> ClientResponse:
    """Create a conversation, with some items if the client sends any."""

    def create(policy: Policy) -> Record:
        body = _body(request, policy)
        metadata, items = read_metadata(body), read_items(body, required=False)
        _check_readable(policy, items)
        _refuse_without_room(policy)
        return database.write(partial(conversations.create, policy, metadata, items))

    return _authenticated(request, create)


def retrieve_conversation(request: ClientRequest) -> ClientResponse:
    """Return a conversation."""
    return _authenticated(
        request, lambda policy: database.read(partial(conversations.retrieve, policy, _conversation_id(request)))
    )


def update_conversation(request: ClientRequest) -> ClientResponse:
    """Replace the metadata of a conversation."""

    def update(policy: Policy) -> Record:
        body = _body(request, policy)
        if "metadata" not in body:
            raise InvalidRequest("metadata is required", param="metadata")
        metadata = read_metadata(body)
        return database.write(partial(conversations.update, policy, _conversation_id(request), metadata))

    return _authenticated(request, update)


def delete_conversation(request: ClientRequest) -> ClientResponse:
    """Delete a conversation with its items; responses that belonged to it stay."""

    def delete(policy: Policy) -> Record:
        conversation_id = _conversation_id(request)
        conversations.delete(policy, conversation_id)
        return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}

    return _authenticated(request, delete)


def create_items(request: ClientRequest) -> ClientResponse:
    """Add items to a conversation."""

    def create(policy: Policy) -> Record:
        include, body = read_include(request.query_values), _body(request, policy)
        items = read_items(body, required=True)
        _check_readable(policy, items)
        _refuse_without_room(policy)
        added = database.write(partial(conversations.add_items, policy, _conversation_id(request), items))
        return list_object(listed(added, include), has_more=False)

    return _authenticated(request, create)


def list_items(request: ClientRequest) -> ClientResponse:
    """List the items of a conversation."""

    def list_page(policy: Policy) -> Record:
        page = read_page(request.query_values)
        return database.read(partial(conversations.list_items, policy, _conversation_id(request), page))

    return _authenticated(request, list_page)


def retrieve_item(request: ClientRequest) -> ClientResponse:
    """Return one item of a conversation."""

    def retrieve(policy: Policy) -> Record:
        include = read_include(request.query_values)
        find = partial(conversations.retrieve_item, policy, _conversation_id(request), request.parameters["item_id"])
        return listed([database.read(find)], include)[0]

    return _authenticated(request, retrieve)


def delete_item(request: ClientRequest) -> ClientResponse:
    """Delete one item of a conversation; return the conversation."""
    return _authenticated(
        request,
        lambda policy: database.write(
            partial(conversations.delete_item, policy, _conversation_id(request), request.parameters["item_id"])
        ),
    )


def _authenticated(request: ClientRequest, work: Callable[[Policy], Record]) -> ClientResponse:
    def answer_for(token: str) -> ClientResponse:
        return json_response(msgspec.json.encode(work(find_current_policy(token))))

    return answer_authenticated(request, "conversations", OPENAI, answer_for)


def _conversation_id(request: ClientRequest) -> str:
    return request.parameters["conversation_id"]


def _body(request: ClientRequest, policy: Policy) -> Record:
    """Return the body of a call that would store content. Raises InvalidRequest where nothing may be stored."""
    body, _ = read_body(request, policy.organization_id)
    if not keeps(policy):
        raise public_ids.nothing_is_kept("conversation", "Conversations")
    return read_object(body)


def _check_readable(policy: Policy, items: list[Item]) -> None:
    """Raise InvalidRequest for an item that no model could be asked with: it would spoil every later request."""
    if not items:
        return
    wire = {"model": "any", "input": items}
    data = msgspec.json.encode(wire)
    try:
        offload(len(data), partial(read_wire, wire, data, Asked(cipher=OrganizationCipher(policy.organization_id))))
    except InvalidRequest as error:
        param = None if error.param is None else error.param.replace("input", "items", 1)
        raise InvalidRequest(error.message.replace("input", "items", 1), param=param) from None


def _refuse_without_room(policy: Policy) -> None:
    if not has_room(policy):
        raise InvalidRequest(
            "The organization's stored responses and conversations take up all the room they may: delete some, "
            "or add credits on the free plan",
            code="storage_limit_exceeded",
        )
