"""Endpoints that answer with values: embeddings, rankings and judgements, each in the formats of its clients.

`POST /v1/embeddings` in OpenAI's format, Cohere's `/v2/embed`, Google's `embedContent` and `batchEmbedContents`;
`POST /v1/rerank`, and `/v2/rerank` of Cohere's clients; `POST /v1/moderations` in OpenAI's format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.google import CLIENT as GOOGLE
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.values.embeddings.client import cohere, google, openai
from apps.gateway.dialects.values.moderations import client as moderations_client
from apps.gateway.dialects.values.rerank import client as rerank_client
from apps.gateway.endpoints.answering import ReplyWriter, answer_authenticated, complete_response
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import offload

EMBEDDINGS = "embeddings"


def embeddings(request: ClientRequest) -> ClientResponse:
    """Answer a request for embeddings."""
    return _answer(request, EMBEDDINGS, openai.ERRORS, openai.write_reply, openai.read_request)


def embed(request: ClientRequest) -> ClientResponse:
    """Answer a request for embeddings, in Cohere's format."""
    return _answer(request, EMBEDDINGS, OPENAI, cohere.write_reply, cohere.read_request)


def embed_content(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a request for the vector of one content, in Google's format."""
    return _answer(request, EMBEDDINGS, GOOGLE, google.write_single, partial(google.read_single, model=model))


def batch_embed_contents(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a request for the vectors of many contents, in Google's format."""
    return _answer(request, EMBEDDINGS, GOOGLE, google.write_batch, partial(google.read_batch, model=model))


def rerank(request: ClientRequest) -> ClientResponse:
    """Answer a request to put documents in the order of their relevance to a query."""
    return _answer(request, "rerank", rerank_client.ERRORS, rerank_client.write_reply, rerank_client.read_request)


def moderations(request: ClientRequest) -> ClientResponse:
    """Answer a request to judge whether texts and images may be harmful."""
    return _answer(request, "moderations", OPENAI, moderations_client.write_reply, moderations_client.read_request)


def _answer(
    request: ClientRequest,
    route: str,
    errors: ClientErrorWriter,
    write_reply: ReplyWriter,
    read: Callable[[bytes], Chat],
) -> ClientResponse:
    def read_apart(body: bytes) -> Chat:
        return offload(len(body), partial(read, body))

    return answer_authenticated(
        request,
        route,
        errors,
        lambda token: complete_response(open_chat(request, route, token, read_apart), write_reply),
    )
