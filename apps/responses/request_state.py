"""State of a request to `/v1/responses`: what it goes on from is put before its input, what it ends with is stored.

A request that asks for neither costs a look at its fields.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.access.policy import Policy
from apps.gateway.admission.byte_budget import ByteReservation
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects.chat.responses.client import Asked
from apps.gateway.dialects.chat.responses.client.read_request import read_wire
from apps.gateway.dialects.chat.responses.client.write_reply import ResponseFrame
from apps.gateway.endpoints.response_state import AnsweredElsewhere, OrganizationCipher, Record, ResponseState, items_of
from apps.kernel.concurrency.native_thread_pool import LARGE
from apps.kernel.errors import InvalidRequest
from apps.responses import history, public_ids
from apps.responses.background import begin, kept_headers
from apps.responses.event_stream import FROM_THE_START, EventStream, queued_answer
from apps.responses.history import chain_before, items_in, items_of_chain, resolved
from apps.responses.items import Item, is_reference, with_ids
from apps.responses.public_ids import new_public_id
from apps.responses.response_rows import draft_of, encrypt_for_conversation, output_of, store
from apps.responses.retention import has_room, keeps
from apps.responses.run_leases import RunRequest

# Fields that are answered here, and that no model is asked.
_OURS = ("previous_response_id", "conversation", "background")


class _Asked(msgspec.Struct, frozen=True):
    """The fields of a request that concern stored state. `store` is None if absent."""

    store: bool | None
    previous_id: str | None
    conversation_id: str | None
    background: bool
    stream: bool


class StoredStates:
    """Opens the state of each request."""

    def open(self, request: ClientRequest, policy: Policy, wire: Record) -> ResponseState:
        """Put what a request goes on from into its input; return what stores its end.

        Raises AnsweredElsewhere for a background response, ApiError for what it refers to in vain.
        """
        asked = _read(wire)
        request.conversation_id = asked.conversation_id or ""
        new_items, kept = items_of(wire), keeps(policy)
        if not kept:
            _refuse_what_needs_content(asked)
        before: list[Item] = []
        if asked.previous_id is not None:
            chain = chain_before(policy, asked.previous_id)
            request.response_chain, before = chain[0].id, items_of_chain(chain)
        elif asked.conversation_id is not None:
            before = items_in(policy, asked.conversation_id)
        items = [*before, *new_items]
        if any(map(is_reference, items)):
            items = resolved(policy, items)
        if history.has_any(items):
            items = history.opened(policy.project_id, items)
        if items != new_items:
            wire["input"] = items
            _reserve_bytes(request, items)
        for name in _OURS:
            wire.pop(name, None)
        stored = kept and asked.store is not False and _fits(policy, asked)
        echo = {
            "previous_response_id": asked.previous_id,
            "conversation": None if asked.conversation_id is None else {"id": asked.conversation_id},
            "background": asked.background,
            "store": stored,
        }
        if not stored:
            return ResponseState(echo=echo)
        if asked.background:
            raise AnsweredElsewhere(_answer_later(request, policy, wire, asked, echo, with_ids(new_items)))
        state = StoredState(policy, asked, echo, with_ids(new_items))
        request.response_chain = request.response_chain or state.response_id
        return state


class StoredState(ResponseState):
    """The state of a response that is stored when it ends."""

    def __init__(self, policy: Policy, asked: _Asked, echo: Record, new_items: list[Item]) -> None:
        super().__init__(response_id=new_public_id("resp"), echo=echo)
        self._policy, self._asked, self._new_items = policy, asked, new_items

    def finished(self, response: Record) -> None:
        """Store the response before its client sees the end: it may be referred to at once."""
        draft = draft_of(
            self._policy,
            response,
            self._new_items,
            previous_id=self._asked.previous_id,
            conversation_id=self._asked.conversation_id,
        )
        if self._asked.conversation_id is not None and response["status"] != "failed":
            items = [*self._new_items, *output_of(response)]
            added = [item for item in items if not is_reference(item)]
            draft.conversation_items = encrypt_for_conversation(
                self._policy.project_id, self._asked.conversation_id, added
            )
        store(draft)


def _read(wire: Record) -> _Asked:
    """Return what a request asks of stored state. Raises InvalidRequest naming the field."""
    for name in ("store", "background", "stream"):
        if not isinstance(wire.get(name), bool | None):
            raise InvalidRequest(f"{name} must be true or false", param=name)
    previous_id, conversation = wire.get("previous_response_id"), wire.get("conversation")
    if not isinstance(previous_id, str | None):
        raise InvalidRequest("previous_response_id must be the id of a response", param="previous_response_id")
    if isinstance(conversation, dict):
        conversation = conversation.get("id", False)
    if not isinstance(conversation, str | None):
        raise InvalidRequest("conversation must be a conversation's id, or an object with it", param="conversation")
    if previous_id is not None and conversation is not None:
        raise InvalidRequest("previous_response_id and conversation cannot both be given", param="previous_response_id")
    if wire.get("prompt") is not None:
        raise InvalidRequest(
            "prompt: templates are not stored here: send instructions and input",
            param="prompt",
            code="unsupported_feature",
        )
    asked = _Asked(
        store=wire.get("store"),
        previous_id=previous_id,
        conversation_id=conversation,
        background=bool(wire.get("background")),
        stream=bool(wire.get("stream")),
    )
    if asked.background and asked.store is False:
        raise InvalidRequest("background needs the response to be stored: leave store out, or true", param="background")
    return asked


def _reserve_bytes(request: ClientRequest, items: list[Any]) -> None:
    """Count what a request expands to as if the client had sent it. Raises RateLimited and Overloaded."""
    size, hold = len(msgspec.json.encode(items)), request.byte_reservation
    if size > LARGE and isinstance(hold, ByteReservation):
        hold.reserve(size)


def _refuse_what_needs_content(asked: _Asked) -> None:
    if asked.previous_id is not None:
        raise public_ids.nothing_is_kept("previous_response_id", "Previous response")
    if asked.conversation_id is not None:
        raise public_ids.nothing_is_kept("conversation", "Conversations")
    if asked.background:
        raise public_ids.nothing_is_kept("background", "Background responses")


def _fits(policy: Policy, asked: _Asked) -> bool:
    """Tell whether there is room for one more. Raises InvalidRequest where the client counts on its being stored."""
    if has_room(policy):
        return True
    if asked.store or asked.background or asked.conversation_id is not None:
        raise InvalidRequest(
            "The organization's stored responses take up all the room they may: delete some, add credits on "
            "the free plan, or send store: false",
            param="store",
            code="storage_limit_exceeded",
        )
    return False


def _answer_later(
    request: ClientRequest, policy: Policy, wire: Record, asked: _Asked, echo: Record, new_items: list[Item]
) -> Any:
    """Begin a background response; return what its client gets now."""
    # An unreadable request is refused here, before anything is stored.
    cipher = OrganizationCipher(policy.organization_id)
    chat = read_wire(
        wire, msgspec.json.encode(wire), Asked(cipher=cipher, response_id=new_public_id("resp"), echo=echo)
    )
    response = ResponseFrame(chat).wire("queued", [])
    draft = draft_of(
        policy,
        response,
        new_items,
        previous_id=asked.previous_id,
        conversation_id=asked.conversation_id,
        background=True,
        streamed=asked.stream,
    )
    # A provider's stream can be cut off, and does not have to begin within the time of a plain answer.
    body = {**wire, "stream": True}
    headers = kept_headers(request)
    run = RunRequest(
        headers=headers,
        wire=body,
        echo=echo,
        new_items=new_items,
        plan=policy.plan,
        chain=request.response_chain or draft.id,
    )
    # Where there is no place for its stream, nothing is begun.
    stream = EventStream(policy, draft.id, FROM_THE_START) if asked.stream else None
    try:
        begin(response, draft, run)
    except BaseException:
        if stream is not None:
            stream.close()
        raise
    return queued_answer(response, stream)
