"""`POST /v1/responses` and `/v1/responses/input_tokens`: OpenAI's Responses format in and out, for every model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from apps.gateway.access.policy import Policy, count_refusal, find_current_policy, find_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Failed
from apps.gateway.client.http_request import ClientRequest, ClientResponse, TrackedResponse
from apps.gateway.count_tokens import count_tokens
from apps.gateway.dialects.chat.openai.wire import encode
from apps.gateway.dialects.chat.responses import CLIENT
from apps.gateway.dialects.chat.responses.client import Asked
from apps.gateway.dialects.chat.responses.client.read_request import read_wire
from apps.gateway.dialects.chat.responses.client.write_reply import response_of, write_events
from apps.gateway.dialects.reading import fields
from apps.gateway.endpoints.answering import (
    EVENTS,
    answer_authenticated,
    headers_about,
    json_response,
    stream_response,
    whole_response,
)
from apps.gateway.endpoints.response_state import AnsweredElsewhere, OrganizationCipher, items_of, open_state
from apps.gateway.pipeline import open_chat
from apps.gateway.run import ChatRun
from apps.gateway.server_tools import responses_form
from apps.gateway.server_tools.loop import ServerToolRequest, ToolLoop
from apps.gateway.server_tools.toolset import Toolset
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import ApiError, ClientGone

log = structlog.get_logger(__name__)

Record = dict[str, Any]

# The route in the request log.
ROUTE: Final = "responses"
# The code of a prompt that is longer than what the model reads.
TOO_LONG: Final = "context_length_exceeded"


def create_response(request: ClientRequest) -> ClientResponse:
    """Answer a request, whole or streamed."""
    return answer_authenticated(request, "responses", CLIENT, partial(answer, request))


def answer(request: ClientRequest, token: str) -> ClientResponse:
    """Answer a request for the token of a key, whole or streamed. Raises ApiError."""
    teller = _Teller()
    try:
        run = _with_tools(open_chat(request, ROUTE, token, partial(_read, request, token, teller)), teller)
        return stream_response(run, teller.write_events) if run.chat.stream else _whole(run, teller)
    except AnsweredElsewhere as elsewhere:
        return elsewhere.answer
    except ApiError as error:
        teller.fail(error)
        chat = teller.chat
        # A background response has no client that reads it now.
        if error.code == TOO_LONG and chat is not None and chat.stream and request.response_state is None:
            count_refusal(request, error)
            return _failed_stream(error, chat)
        raise


def _failed_stream(error: ApiError, chat: Chat) -> ClientResponse:
    """Return a stream that fails at once. OpenAI fails a prompt that is too long in this way: Codex, which then
    compacts its conversation, looks for it nowhere else."""
    return whole_response(b"".join(write_events([Failed(error=error)], chat)), EVENTS)


def count_input_tokens(request: ClientRequest) -> ClientResponse:
    """Tell how many tokens a prompt has: the provider's count, else about how many. Free, and nothing is recorded."""

    def count(token: str) -> ClientResponse:
        policy = find_policy(token)
        body, hold = read_body(request, policy.organization_id)
        chat = _read(request, token, _Teller(), body, is_asked=False)
        counted = count_tokens(policy, chat, token, body, hold.reserve)
        return json_response(msgspec.json.encode({"object": "response.input_tokens", "input_tokens": counted}))

    return answer_authenticated(request, "responses", CLIENT, count)


def _read(request: ClientRequest, token: str, teller: _Teller, body: bytes, *, is_asked: bool = True) -> Chat:
    """Return the chat that a body asks for, with the earlier items that it refers to. Raises ApiError.

    A request whose tokens are only counted is neither stored nor answered in the background.
    """
    wire = offload(len(body), partial(fields.read_json, body))
    # Whether an answer is stored is decided here, before admission.
    policy, given = find_current_policy(token), dict(wire)
    if not is_asked:
        wire |= {"store": False, "background": False}
    state = teller.state = open_state(request, policy, wire)
    said = {name: value for name, value in wire.items() if name not in ("input", "stream")}
    wire = _with_functions(request, token, policy, wire, teller)
    if wire.keys() != given.keys() or any(wire[name] is not value for name, value in given.items()):
        body = offload(len(body), partial(encode, wire))
    asked = teller.asked = Asked(
        fields=said,
        cipher=OrganizationCipher(policy.organization_id),
        response_id=state.response_id,
        echo=state.echo,
    )
    teller.chat = offload(len(body), partial(read_wire, wire, body, asked))
    return teller.chat


def _with_functions(request: ClientRequest, token: str, policy: Policy, wire: Record, teller: _Teller) -> Record:
    """Return a body with functions instead of MCP servers and of earlier calls of their tools. Raises ApiError."""
    if responses_form.names_servers(wire):
        wanted = responses_form.read_servers(wire)
        tools = ServerToolRequest(request, token, ROUTE)
        toolset = tools.find_toolset(policy, wanted, responses_form.own_names(wire))
        teller.tools, teller.form = tools, responses_form.ResponsesForm(wire, wanted, toolset, items_of(wire))
        return teller.form.first_wire()
    if responses_form.has_calls(wire.get("input")):
        return {**wire, "input": responses_form.plain_items(wire["input"], Toolset([]))}
    return wire


def _with_tools(run: ChatRun, teller: _Teller) -> ChatRun | ToolLoop:
    """Return the run, with those that follow it where the gateway calls tools for the model."""
    if teller.tools is None or teller.form is None:
        return run

    def read(body: bytes) -> Chat:
        wire = offload(len(body), partial(fields.read_json, body))
        return offload(len(body), partial(read_wire, wire, body, teller.asked))

    return teller.tools.loop(run, teller.form, read)


def _whole(run: ChatRun | ToolLoop, teller: _Teller) -> ClientResponse:
    """Run to the end and return the whole answer. Raises ApiError."""
    response = response_of(run.events(), run.chat)
    teller.finish(response)
    whole = json_response(encode(response))
    whole.headers += headers_about(run)
    return whole


class _Teller:
    """Writes a streamed answer, and tells the response's state how it goes; what fails there spoils no answer."""

    def __init__(self) -> None:
        self.state: TrackedResponse | None = None
        # The request's fields that the response repeats, and how the gateway calls tools for it; None where it does
        # not.
        self.asked: Asked | None = None
        self.chat: Chat | None = None
        self.tools: ServerToolRequest | None = None
        self.form: responses_form.ResponsesForm | None = None
        self._over = False

    def write_events(self, events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
        """Yield a streamed answer. A client that leaves before its end breaks it off."""
        try:
            yield from write_events(events, chat, self._hear)
        finally:
            self.fail(ClientGone("The client closed the connection"))

    def finish(self, response: Record) -> None:
        """Tell of the final response object, once."""
        if self.state is not None and not self._over:
            self._over = True
            _tell(self.state.finished, response)

    def fail(self, error: ApiError) -> None:
        """Report an answer that failed, or whose client has left; once."""
        if self.state is not None and not self._over:
            self._over = True
            _tell(self.state.failed, error)

    def _hear(self, event: Record) -> None:
        if self.state is not None and self.state.wants_events:
            _tell(self.state.event, event)
        if event["type"] in _LAST:
            self.finish(event["response"])


_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})


def _tell(tell: Callable[[Any], None], what: Any) -> None:
    try:
        tell(what)
    except Exception:
        log.exception("responses.state_failed")
