"""`POST /model/{modelId}/converse` and `/converse-stream`: Bedrock's Converse in and out, for every model.

The path names the model, in the gateway's words or as Bedrock's own data file has it.
"""

from __future__ import annotations

from functools import partial

from apps.catalog import catalog_cache
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.bedrock import CLIENT
from apps.gateway.dialects.chat.bedrock.client.read_request import read_request
from apps.gateway.endpoints.answering import answer_chat
from apps.kernel.concurrency.native_thread_pool import offload

# The provider whose names for models clients of this format know.
_BEDROCK = "bedrock"


def converse(request: ClientRequest) -> ClientResponse:
    """Answer a chat request with a whole answer."""
    return _answer(request, stream=False)


def converse_stream(request: ClientRequest) -> ClientResponse:
    """Answer a chat request with a stream."""
    return _answer(request, stream=True)


def _answer(request: ClientRequest, *, stream: bool) -> ClientResponse:
    model = request.parameters["model_id"]

    def read(body: bytes) -> Chat:
        return offload(len(body), partial(read_request, body, _model_of(model), stream=stream))

    return answer_chat(request, "converse", CLIENT, read)


def _model_of(name: str) -> str:
    """Return the model that a path names; one of Bedrock's own names asks Bedrock."""
    prefixed = f"{_BEDROCK}/{name}"
    return prefixed if prefixed in catalog_cache.current().prefixed else name
