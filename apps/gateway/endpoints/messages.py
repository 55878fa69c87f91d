"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's messages format in and out, for every model."""

from __future__ import annotations

import re
from functools import partial

import msgspec

from apps.gateway.access.policy import find_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.count_tokens import count_tokens as prompt_tokens
from apps.gateway.dialects import anthropic
from apps.gateway.endpoints.answering import answer_authenticated, answer_chat, json_response
from apps.kernel.offload import offload

_BETA = re.compile(r"[\w.-]{1,100}")
# Claude Code sends eight.
_MAX_BETAS = 50


def messages(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""

    def read_request(body: bytes) -> Chat:
        chat = offload(len(body), partial(anthropic.read_request, body))
        chat.betas = _betas(request)
        return chat

    return answer_chat(request, "messages", anthropic, read_request)


def count_tokens(request: ClientRequest) -> ClientResponse:
    """Tell how many tokens a prompt has: the provider's count, else about how many. Free, and nothing is recorded."""

    def count(token: str) -> ClientResponse:
        policy = find_policy(token)
        body, _ = read_body(request, policy.organization_id)
        chat = offload(len(body), partial(anthropic.read_prompt, body))
        chat.betas = _betas(request)
        return json_response(msgspec.json.encode({"input_tokens": prompt_tokens(policy, chat, token, len(body))}))

    return answer_authenticated(request, "messages", anthropic, count)


def _betas(request: ClientRequest) -> list[str] | None:
    """Return the previews that the client switches on: what is no name of one is left out."""
    names = [name.strip() for name in (request.header("anthropic-beta") or "").split(",")[:_MAX_BETAS]]
    return [name for name in names if _BETA.fullmatch(name)] or None
