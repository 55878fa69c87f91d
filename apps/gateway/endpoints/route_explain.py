"""`POST /v1/route/explain`: explain which provider would answer a chat completion, without calling any."""

from __future__ import annotations

from functools import partial

import msgspec

from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT
from apps.gateway.endpoints.answering import answer_authenticated, json_response
from apps.gateway.explain import explain
from apps.kernel.concurrency.native_thread_pool import offload


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for; a large one is read beside the event loop."""
    return offload(len(body), partial(CLIENT.read_request, body))


def route_explain(request: ClientRequest) -> ClientResponse:
    """Tell who would answer, and why."""

    def answer_for(token: str) -> ClientResponse:
        return json_response(msgspec.json.encode(explain(request, token, read_request)))

    return answer_authenticated(request, "route_explain", CLIENT, answer_for)
