"""`POST /v1/completions`: OpenAI's legacy format in and out, answered by chat models."""

from __future__ import annotations

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects.chat.completions import CLIENT
from apps.gateway.endpoints.answering import answer_chat


def completions(request: ClientRequest) -> ClientResponse:
    """Answer a prompt, whole or streamed."""
    return answer_chat(request, "completions", CLIENT)
