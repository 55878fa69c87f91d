"""`/v1/responses/{id}` (retrieve, resume, delete, cancel, list what it was made of) and `POST /v1/responses/compact`.

Compacting sums up a conversation into one item that stands for it, with any model: it asks the model through the
ordinary pipeline, as a request like others, admitted, logged and charged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.gateway.endpoints.response_state import ResponseState, items_of
from apps.gateway.endpoints.responses import answer
from apps.kernel.errors import ApiError, InternalError, InvalidRequest
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import encrypt_json
from apps.responses import event_stream, history, public_ids, response_rows, run_leases
from apps.responses.access import access_response
from apps.responses.background import stop_here
from apps.responses.event_stream import FROM_THE_START, resumed_answer
from apps.responses.history import items_before, items_used_by, resolved
from apps.responses.items import Item, last_of, listed, page_of, read_include, read_object, read_page, with_ids
from apps.responses.models import StoredResponse
from apps.responses.public_ids import new_public_id
from apps.responses.response_rows import output_of, response_of, response_place
from apps.responses.retention import keeps

# Digits of a sequence number that is taken for one.
_MAX_DIGITS = 9
_WORDS = {None: False, "false": False, "true": True}


def retrieve_response(request: ClientRequest) -> ClientResponse:
    """Return a stored response, or the events of one that was streamed in the background."""

    def retrieve(policy: Policy) -> ClientResponse:
        query = request.query_values
        stream = _WORDS.get(last_of(query, "stream"))
        if stream is None:
            raise InvalidRequest("stream must be true or false", param="stream")
        after = _read_cursor(query)
        row = _find(policy, request)
        if stream:
            return resumed_answer(policy, row, after)
        if after != FROM_THE_START:
            raise InvalidRequest("starting_after goes with stream=true", param="starting_after")
        response = response_of(row)
        return _answer({**response, "output": listed(output_of(response), read_include(query))})

    return _authenticated(request, retrieve)


def delete_response(request: ClientRequest) -> ClientResponse:
    """Delete a stored response; one that is still answered is stopped."""

    def delete(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        database.write(StoredResponse.objects.filter(pk=row.pk).delete)
        response_rows.discard_aside(row.id)
        stop_here(row.id)
        event_stream.drop(row.organization_id, row.id)
        return _answer({"id": row.id, "object": "response", "deleted": True})

    return _authenticated(request, delete)


def cancel_response(request: ClientRequest) -> ClientResponse:
    """Cancel a background response; one that has ended stays as it is."""

    def cancel(policy: Policy) -> ClientResponse:
        row = _find(policy, request)
        if not row.background:
            raise InvalidRequest("Cannot cancel a synchronous response: only a background one can be cancelled.")
        cancelled = {**response_of(row), "status": "cancelled"}
        sealed = encrypt_json(cancelled, row.project_id, response_place(row.id))
        if database.write(partial(run_leases.cancel, row, sealed)):
            stop_here(row.id)
            return _answer(cancelled)
        return _answer(response_of(_find(policy, request)))

    return _authenticated(request, cancel)


def list_input_items(request: ClientRequest) -> ClientResponse:
    """List the items that a response was made of, those of earlier responses that it goes on from included."""

    def list_items(policy: Policy) -> ClientResponse:
        page = read_page(request.query_values)
        row = _find(policy, request)
        return _answer(page_of(items_used_by(policy, row), page))

    return _authenticated(request, list_items)


def _authenticated(request: ClientRequest, work: Callable[[Policy], ClientResponse]) -> ClientResponse:
    return answer_authenticated(request, "responses", OPENAI, lambda token: work(find_current_policy(token)))


def _find(policy: Policy, request: ClientRequest) -> StoredResponse:
    """Return the response that the path names. Raises NotFound."""
    return access_response(policy, request.parameters["response_id"])


def _read_cursor(query: Mapping[str, Sequence[str]]) -> int:
    text = last_of(query, "starting_after")
    if text is None:
        return FROM_THE_START
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise InvalidRequest("starting_after must be the sequence_number of an event", param="starting_after")
    return int(text)


def _answer(body: dict[str, Any]) -> ClientResponse:
    return json_response(msgspec.json.encode(body))


# The fields of the request that also hold for the one that the model is asked.
_PASSED_ON: Final = ("model", "prompt_cache_key", "service_tier")
_INSTRUCTIONS: Final = (
    "You compress conversations so that they can be continued without their full text. Write a summary of the "
    "conversation above for the assistant that will continue it. Keep every fact, decision, constraint, name, number, "
    "path, identifier, open question and unfinished step that later turns may need, and what tools returned as far as "
    "it matters. Leave out pleasantries and repetition. Write nothing but the summary, and do not answer the "
    "conversation itself."
)
TASK: Final = "Summarize the conversation so far, as instructed."


class _Answer(ResponseState):
    """Holds what the model answered."""

    response: dict[str, Any] | None = None
    error: ApiError | None = None

    def finished(self, response: dict[str, Any]) -> None:
        """Take the answer."""
        self.response = response

    def failed(self, error: ApiError) -> None:
        """Take the error."""
        self.error = error


def compact_response(request: ClientRequest) -> ClientResponse:
    """Answer with the user's messages and one compaction item that stands for all else."""
    return answer_authenticated(request, "responses", OPENAI, lambda token: _compact(request, token))


def _compact(request: ClientRequest, token: str) -> ClientResponse:
    policy = find_current_policy(token)
    body, _ = read_body(request, policy.organization_id)
    wire = read_object(body)
    items = _items(policy, wire)
    response = _summarized(request, token, wire, history.opened(policy.project_id, items))
    summary = "".join(_texts(response.get("output") or []))
    if not summary.strip():
        raise InternalError("The model answered with no summary; try again, or with another model")
    users = [item for item in with_ids(items) if item["type"] == "message" and item.get("role") == "user"]
    compacted = {
        "id": new_public_id("resp"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*users, history.compaction_item(policy.project_id, summary)],
        "usage": response.get("usage"),
    }
    return json_response(msgspec.json.encode(compacted))


def _items(policy: Policy, wire: dict[str, Any]) -> list[Any]:
    """Return the items to summarize. Raises ApiError."""
    previous_id = wire.get("previous_response_id")
    before: list[Item] = []
    if previous_id is not None:
        if not isinstance(previous_id, str):
            raise InvalidRequest("previous_response_id must be the id of a response", param="previous_response_id")
        if not keeps(policy):
            raise public_ids.nothing_is_kept("previous_response_id", "Previous response")
        before = items_before(policy, previous_id)
    items = resolved(policy, [*before, *items_of(wire)])
    if not items:
        raise InvalidRequest("input or previous_response_id is required", param="input")
    return items


def _summarized(request: ClientRequest, token: str, wire: dict[str, Any], items: list[Any]) -> dict[str, Any]:
    """Return the model's answer to the request for a summary. Raises ApiError."""
    instructions = wire.get("instructions")
    if not isinstance(instructions, str | None):
        raise InvalidRequest("instructions must be a string", param="instructions")
    asked = {name: wire[name] for name in _PASSED_ON if wire.get(name) is not None}
    before = [_message("developer", f"The assistant's instructions were:\n\n{instructions}")] if instructions else []
    asked |= {
        "instructions": _INSTRUCTIONS,
        "input": [*before, *items, _message("user", TASK)],
        "store": False,
        "stream": False,
    }
    state = _Answer()
    inner = request.with_body(msgspec.json.encode(asked))
    inner.response_state = state
    try:
        answer(inner, token)
    finally:
        inner.release_bytes()
    if state.error is not None:
        raise state.error
    if state.response is None:
        raise InternalError("The answer ended without a summary")
    return state.response


def _message(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _texts(output: list[Item]) -> list[str]:
    """Return the texts that a model answered."""
    parts = [part for item in output if item.get("type") == "message" for part in item.get("content") or []]
    return [part["text"] for part in parts if part.get("type") == "output_text"]
