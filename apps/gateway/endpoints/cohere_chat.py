"""`POST /v2/chat`: Cohere's chat format, version 2, in and out."""

from __future__ import annotations

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.cohere import CLIENT
from apps.gateway.endpoints.answering import answer_chat


def cohere_chat(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""
    return answer_chat(request, "cohere_chat", CLIENT)
