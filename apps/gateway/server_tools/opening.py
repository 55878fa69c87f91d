"""Opening of turns: the caller of a request's tools, and its further turns as requests of their own.

A further turn has the client's headers, connection and request id, and a record of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.pipeline import open_chat
from apps.gateway.run import ChatRun
from apps.gateway.server_tools.loop import ToolForm, ToolLoop
from apps.gateway.server_tools.toolset import Toolset, WantedServer, find_toolset
from apps.gateway.tool_calls import ToolCaller, caller_of
from apps.kernel.ids import new_id


class TurnRequest(ClientRequest):
    """A client's request with another body, which contains the answer so far."""

    def __init__(self, first: ClientRequest, body: bytes) -> None:
        """Take the client's own request, and the body, which is JSON."""
        super().__init__(first.environ_with_body(body), first.route, first.parameters)
        self._first = first
        self.conversation_id, self.response_chain = first.conversation_id, first.response_chain
        self.stated_effects = first.stated_effects

    @property
    def request_id(self) -> str:
        """That of the client's own request: the log finds all turns by it."""
        return self._first.request_id

    def watch_disconnect(self) -> ClientDisconnect:
        """Return a watch on the client's connection, or whatever else ends its request."""
        return self._first.watch_disconnect()


class ServerToolRequest:
    """One client's request that names servers: the caller of their tools, and the form of its conversation."""

    def __init__(self, request: ClientRequest, token: str, route: str) -> None:
        """Take the client's request. Raises InvalidRequest for one that has come through here before."""
        self._request, self._token, self._route = request, token, route
        # A session of its own at each server: a tool's state is there for the next call of this answer only.
        self._caller: ToolCaller = caller_of(request, token, session_scope=f"answer:{new_id().hex}")

    def find_toolset(self, policy: Policy, wanted: Sequence[WantedServer], taken: frozenset[str]) -> Toolset:
        """Return the tools of the servers that are named. Raises as `toolset.find_toolset` does."""
        # No provider's batch API calls tools: a batch's line is answered as a request of its own.
        if self._request.batch_exchange is not None and not self._request.batch_exchange.is_settled:
            self._request.batch_exchange = None
        toolset = find_toolset(policy, self._caller, wanted, taken)
        self._request.stated_effects = toolset.stated_effects
        return toolset

    def loop(self, first: ChatRun, form: ToolForm, read: Callable[[bytes], Chat]) -> ToolLoop:
        """Return the answer in several turns; `read` reads the body of a further one."""

        def reopen(body: bytes) -> ChatRun:
            turn = TurnRequest(self._request, body)
            try:
                return open_chat(turn, self._route, self._token, read)
            except BaseException:
                turn.release_bytes()
                raise

        return ToolLoop(first, form, self._caller, self._request.watch_disconnect(), reopen)
