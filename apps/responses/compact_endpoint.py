"""`POST /v1/responses/compact`: sum up a conversation into one item that stands for it, with any model.

Asks the model through the ordinary pipeline: a compaction is a request like others, admitted, logged and charged.
"""

from __future__ import annotations

import time
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
from apps.responses import compaction, refusals
from apps.responses.history import items_before, resolved
from apps.responses.items import Item, read_object, with_ids
from apps.responses.public_ids import new_public_id
from apps.responses.retention import keeps

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
    response = _summarized(request, token, wire, compaction.opened(policy.project_id, items))
    summary = "".join(_texts(response.get("output") or []))
    if not summary.strip():
        raise InternalError("The model answered with no summary; try again, or with another model")
    users = [item for item in with_ids(items) if item["type"] == "message" and item.get("role") == "user"]
    compacted = {
        "id": new_public_id("resp"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*users, compaction.compaction_item(policy.project_id, summary)],
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
            raise refusals.nothing_is_kept("previous_response_id", "Previous response")
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
