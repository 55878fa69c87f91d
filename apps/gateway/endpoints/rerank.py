"""`POST /v1/rerank`, and `/v2/rerank` of Cohere's clients: documents in the order of their relevance to a query."""

from __future__ import annotations

from functools import partial

from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.values.rerank import client as cohere
from apps.gateway.endpoints.answering import answer_authenticated, complete_response
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import offload

ROUTE = "rerank"


def rerank(request: ClientRequest) -> ClientResponse:
    """Answer a request to rank documents."""

    def read(body: bytes) -> Chat:
        return offload(len(body), partial(cohere.read_request, body))

    def answer(token: str) -> ClientResponse:
        return complete_response(open_chat(request, ROUTE, token, read), cohere.write_reply)

    return answer_authenticated(request, ROUTE, cohere.ERRORS, answer)
