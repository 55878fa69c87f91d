"""`POST /v1/chat/completions`: OpenAI's chat format in and out."""

from __future__ import annotations

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects import openai
from apps.gateway.endpoints.answering import answer_chat


def chat_completions(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""
    return answer_chat(request, "chat_completions", openai)
