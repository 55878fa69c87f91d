"""`/v1/responses/{id}`: retrieve, resume, delete and cancel a stored response, and list what it was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres import database
from apps.responses import event_log, response_rows, run_leases
from apps.responses.access import access_response
from apps.responses.background import stop_here
from apps.responses.encrypted_json import encrypt_json
from apps.responses.event_stream import FROM_THE_START, resumed_answer
from apps.responses.history import items_used_by
from apps.responses.items import last_of, listed, page_of, read_include, read_page
from apps.responses.models import StoredResponse
from apps.responses.response_rows import output_of, response_of, response_place

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
        event_log.drop(row.organization_id, row.id)
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
