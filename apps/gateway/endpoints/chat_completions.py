"""`POST /v1/chat/completions`, and chats that need no more: OpenAI's `/v1/completions`, Cohere's `/v2/chat`, and
Bedrock's Converse (`/model/{modelId}/converse` and `/converse-stream`), each in and out, for every model.

Converse names the model in the path, in the gateway's words or as Bedrock's own data file has it.
"""

from __future__ import annotations

from functools import partial

from apps.catalog import catalog_cache
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.bedrock import CLIENT as BEDROCK
from apps.gateway.dialects.chat.bedrock.client.read_request import read_request
from apps.gateway.dialects.chat.cohere import CLIENT as COHERE
from apps.gateway.dialects.chat.completions import CLIENT as COMPLETIONS
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.endpoints.answering import answer_chat
from apps.kernel.concurrency.native_thread_pool import offload

# OpenAI's Python client since this version types an answer's `metadata` as strings, and warns of anything else whenever
# an answer is dumped. Its other clients, and its chunks of streams, do not look.
_TYPED_SINCE = (3, 3)


def chat_completions(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""
    return answer_chat(request, "chat_completions", OPENAI, partial(_read, request))


def _read(request: ClientRequest, body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest."""
    chat = offload(len(body), OPENAI.read_request, body)
    language = request.header("x-stainless-lang")
    if language is not None:
        chat.metadata_as_text = warns_of_structures(language, request.header("x-stainless-package-version"))
    return chat


def warns_of_structures(language: str | None, version: str | None) -> bool:
    """Return whether a client, by the headers that OpenAI's libraries send, warns of `metadata` that is not strings."""
    if language is None or language.strip().lower() != "python":
        return False
    major, _, minor = (version or "").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal() and len(major) + len(minor) < 20):
        # A version without a number is taken for a new one.
        return True
    return (int(major), int(minor)) >= _TYPED_SINCE


def completions(request: ClientRequest) -> ClientResponse:
    """Answer a prompt of OpenAI's legacy format, whole or streamed; chat models answer it."""
    return answer_chat(request, "completions", COMPLETIONS)


def cohere_chat(request: ClientRequest) -> ClientResponse:
    """Answer a chat request in version 2 of Cohere's format, whole or streamed."""
    return answer_chat(request, "cohere_chat", COHERE)


# The provider whose names for models clients of this format know.
_PROVIDER = "bedrock"


def converse(request: ClientRequest) -> ClientResponse:
    """Answer a chat request with a whole answer."""
    return _answer_converse(request, stream=False)


def converse_stream(request: ClientRequest) -> ClientResponse:
    """Answer a chat request with a stream."""
    return _answer_converse(request, stream=True)


def _answer_converse(request: ClientRequest, *, stream: bool) -> ClientResponse:
    model = request.parameters["model_id"]

    def read(body: bytes) -> Chat:
        return offload(len(body), partial(read_request, body, _model_of(model), stream=stream))

    return answer_chat(request, "converse", BEDROCK, read)


def _model_of(name: str) -> str:
    """Return the model that a path names; one of Bedrock's own names asks Bedrock."""
    prefixed = f"{_PROVIDER}/{name}"
    return prefixed if prefixed in catalog_cache.current().prefixed else name
