"""`POST /v1/moderations`, in OpenAI's format: whether texts and images may be harmful."""

from __future__ import annotations

from functools import partial

from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.values.moderations import client as openai
from apps.gateway.endpoints.answering import answer_authenticated, complete_response
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import offload

ROUTE = "moderations"


def moderations(request: ClientRequest) -> ClientResponse:
    """Answer a request to judge content."""

    def read(body: bytes) -> Chat:
        return offload(len(body), partial(openai.read_request, body))

    def answer(token: str) -> ClientResponse:
        return complete_response(open_chat(request, ROUTE, token, read), openai.write_reply)

    return answer_authenticated(request, ROUTE, OPENAI, answer)
