"""`POST /v1/embeddings`, in OpenAI's format, Cohere's `/v2/embed`, Google's `embedContent` and `batchEmbedContents`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.google import CLIENT as GOOGLE
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.values.embeddings.client import cohere, google, openai
from apps.gateway.endpoints.answering import ReplyWriter, answer_authenticated, complete_response
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import offload

ROUTE = "embeddings"


def embeddings(request: ClientRequest) -> ClientResponse:
    """Answer a request for embeddings."""
    return _answer(request, openai.ERRORS, openai.write_reply, openai.read_request)


def embed(request: ClientRequest) -> ClientResponse:
    """Answer a request for embeddings, in Cohere's format."""
    return _answer(request, OPENAI, cohere.write_reply, cohere.read_request)


def embed_content(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a request for the vector of one content, in Google's format."""
    return _answer(request, GOOGLE, google.write_single, partial(google.read_single, model=model))


def batch_embed_contents(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a request for the vectors of many contents, in Google's format."""
    return _answer(request, GOOGLE, google.write_batch, partial(google.read_batch, model=model))


def _answer(
    request: ClientRequest, errors: ClientErrorWriter, write_reply: ReplyWriter, read: Callable[[bytes], Chat]
) -> ClientResponse:
    def read_apart(body: bytes) -> Chat:
        return offload(len(body), partial(read, body))

    return answer_authenticated(
        request,
        ROUTE,
        errors,
        lambda token: complete_response(open_chat(request, ROUTE, token, read_apart), write_reply),
    )
