"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's messages format in and out, for every model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from apps.gateway.access.policy import find_current_policy, find_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.canonical.chat import Chat, DroppedField, FunctionTool
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.count_tokens import count_tokens as prompt_tokens
from apps.gateway.dialects.chat.anthropic import CLIENT
from apps.gateway.dialects.chat.anthropic.client.read_request import read_prompt
from apps.gateway.dialects.reading import fields
from apps.gateway.endpoints.answering import answer_authenticated, complete_response, json_response, stream_response
from apps.gateway.pipeline import open_chat
from apps.gateway.run import ChatRun
from apps.gateway.server_tools import messages_form
from apps.gateway.server_tools.loop import ServerToolRequest, ToolLoop
from apps.gateway.server_tools.toolset import Toolset
from apps.kernel.concurrency.native_thread_pool import offload

# The route in the request log.
ROUTE: Final = "messages"

# Translates another form of the format's body, and returns the previews that it enables.
Translation = Callable[[bytes], tuple[bytes, list[str]]]

# The preview under which Anthropic asks another model where one refuses. It answers as one request here, whose models
# all pass access rules, limits and prices of their own: the list is the gateway's, and the provider sees none of it.
_FALLBACK_BETA: Final = "server-side-fallback-"
_REFUSALS_STAY: Final = DroppedField(
    "fallbacks", "the next model is asked when one fails, not when one refuses: ask it in a request of its own"
)

_BETA = re.compile(r"[\w.-]{1,100}")
# Claude Code sends eight.
_MAX_BETAS = 50


def messages(request: ClientRequest, translate: Translation | None = None) -> ClientResponse:
    """Answer a chat request, whole or streamed. `translate` makes a body of this format of another form of it."""
    return answer_authenticated(request, ROUTE, CLIENT, partial(_answer, request, translate))


def count_tokens(request: ClientRequest, translate: Translation | None = None) -> ClientResponse:
    """Tell how many tokens a prompt has: the provider's count, else about how many. Free, and nothing is recorded."""

    def count(token: str) -> ClientResponse:
        policy = find_policy(token)
        body, hold = read_body(request, policy.organization_id)
        if translate is not None:
            body, _ = offload(len(body), partial(translate, body))
        chat = _Asked(request, token, read_prompt).read_first(body)
        return json_response(
            msgspec.json.encode({"input_tokens": prompt_tokens(policy, chat, token, body, hold.reserve)})
        )

    return answer_authenticated(request, ROUTE, CLIENT, count)


def _answer(request: ClientRequest, translate: Translation | None, token: str) -> ClientResponse:
    asked = _Asked(request, token, CLIENT.read_request, translate)
    run = asked.with_tools(open_chat(request, ROUTE, token, asked.read_first))
    if run.chat.stream:
        return stream_response(run, CLIENT.write_events)
    return complete_response(run, CLIENT.write_reply)


class _Asked:
    """One request: its chat, and how the gateway calls tools of MCP servers for it, where it names any."""

    def __init__(
        self,
        request: ClientRequest,
        token: str,
        read: Callable[[bytes], Chat],
        translate: Translation | None = None,
    ) -> None:
        self._request, self._token, self._read, self._translate = request, token, read, translate
        self._betas = read_betas((request.header("anthropic-beta") or "").split(","))
        self._tools: ServerToolRequest | None = None
        self._form: messages_form.MessagesForm | None = None

    def read(self, body: bytes) -> Chat:
        """Return the chat of a body. Raises InvalidRequest."""
        chat = offload(len(body), partial(self._read, body))
        chat.betas = [beta for beta in self._betas if not beta.startswith(_FALLBACK_BETA)] or None
        if len(chat.betas or ()) < len(self._betas) and chat.preferences is not None and chat.preferences.models:
            chat.dropped_fields = [*(chat.dropped_fields or ()), _REFUSALS_STAY]
        return chat

    def read_first(self, body: bytes) -> Chat:
        """Return the chat of the client's own body, with functions instead of servers. Raises ApiError."""
        if self._translate is not None:
            body, betas = offload(len(body), partial(self._translate, body))
            self._betas += [beta for beta in betas if beta not in self._betas]
        chat = self.read(body)
        if not messages_form.speaks_of_servers(chat):
            return chat
        wire = offload(len(body), partial(fields.read_json, body))
        wanted = messages_form.read_servers(wire)
        toolset = Toolset([])
        if wanted:
            self._tools = ServerToolRequest(self._request, self._token, ROUTE)
            own = frozenset(tool.name for tool in chat.tools or () if isinstance(tool, FunctionTool))
            toolset = self._tools.find_toolset(find_current_policy(self._token), wanted, own)
        self._form = messages_form.MessagesForm(wire, wanted, toolset)
        return self.read(self._form.first_body())

    def with_tools(self, run: ChatRun) -> ChatRun | ToolLoop:
        """Return the run, with those that follow it where the gateway calls tools for the model."""
        return run if self._tools is None or self._form is None else self._tools.loop(run, self._form, self.read)


def read_betas(words: Sequence[str]) -> list[str]:
    """Return the previews that the client switches on: no other names, and not what the gateway does itself."""
    names = [name.strip() for name in words[:_MAX_BETAS]]
    return [name for name in names if _BETA.fullmatch(name) and not name.startswith(messages_form.BETA)]
