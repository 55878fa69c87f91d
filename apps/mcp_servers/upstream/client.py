"""Client of one MCP server: begins a session, lists its tools, calls one. Synchronous; one piece of work at a time.

Speaks the revisions with a handshake, and to servers that know none the one without. It says that it is able to do
nothing beyond asking, so that a server has nothing to ask it back; what a server asks all the same is refused. Knows
the protocol's messages. Must never know who calls, nor what a tool does.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from apps.mcp_servers.upstream.failures import McpErrorAnswer, McpServerFailed, SessionGone, error_answer, safe_words
from apps.mcp_servers.upstream.http_exchange import HttpExchange, McpTarget, Message
from apps.mcp_servers.upstream.tools import MAX_TOOLS, Tool, ToolAnswer, read_result, read_tools

# Revisions that begin with a handshake, the newest first, and the one that does not.
HANDSHAKES: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
STATELESS: Final = "2026-07-28"
# Pages of a list, characters of a cursor and of a session's id; messages beside the answer.
MAX_PAGES, MAX_CURSOR, MAX_SESSION_ID, MAX_ASIDE = 20, 4_096, 1_024, 1_000
# What a server asks back that is answered, refusals mostly.
_MAX_ASKED: Final = 20
# Seconds for saying goodbye.
_GOODBYE: Final = 2.0
_METHOD_NOT_FOUND: Final = -32601
# How servers without a handshake say so: no such method, no such revision, or no metadata in the request.
_NO_HANDSHAKE: Final = frozenset({_METHOD_NOT_FOUND, -32600, -32602, -32022, -32020, -32000})
_META: Final = "io.modelcontextprotocol/"
# Around a name in a header that is not plain ASCII (revision 2026-07-28).
_PACKED: Final = "=?base64?"
_INFO: Final = {"name": "model-gateway", "version": "1.0"}

# Progress so far, of how much where that is known, and in which words.
OnProgress = Callable[[float, float | None, str | None], None]


class UpstreamSession(msgspec.Struct, frozen=True):
    """What a server is known by from one piece of work to the next: the revision, and its id of the session if any."""

    revision: str
    id: str = ""


class McpClient:
    """A server, for as long as it takes; to be closed. Everything raises McpServerFailed."""

    def __init__(self, target: McpTarget, session: UpstreamSession | None = None) -> None:
        """Take the server, and the session to go on with; without one another is begun, and ended with this client."""
        self._http = HttpExchange(target)
        self._numbers = 0
        self._is_ours = session is None
        self._kept = False
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def keep_session(self) -> UpstreamSession | None:
        """Leave the session open at the server when this client is closed, and return it; None where there is none."""
        self._kept = True
        return self.session if self.session is not None and self.session.id else None

    def close(self) -> None:
        """End what was begun here, and close the connections."""
        if self._is_ours and not self._kept and self.session is not None and self.session.id:
            self._http.delete(self._headers_of(self.session, "", {}), _GOODBYE)
        self._http.close()

    def list_tools(self) -> list[Tool]:
        """Return all of the server's tools, in its order; what is no tool is left out."""
        found: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            for tool in read_tools(page):
                found.setdefault(tool.name, tool)
            if len(found) > MAX_TOOLS:
                raise McpServerFailed(f"The MCP server lists more than {MAX_TOOLS} tools")
            following = page.get("nextCursor")
            if following is None:
                return list(found.values())
            if not isinstance(following, str) or len(following) > MAX_CURSOR or following == cursor:
                raise McpServerFailed("The MCP server's list goes on at a place that cannot be read")
            cursor = following
        raise McpServerFailed(f"The MCP server lists its tools on more than {MAX_PAGES} pages")

    def call_tool(self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> ToolAnswer:
        """Call a tool; return what it says, errors of its own included. `on_progress` is told how it goes on."""
        return read_result(self._ask("tools/call", {"name": name, "arguments": arguments}, on_progress))

    def _ask(self, method: str, params: Message, on_progress: OnProgress | None = None) -> Message:
        """Return the result of a request, within a session; where the server has forgotten it, within another."""
        if self.session is None:
            self.session = self._begin()
        try:
            return self._request(self.session, method, params, on_progress)
        except SessionGone:
            self.session, self._is_ours = self._begin(), True
        try:
            return self._request(self.session, method, params, on_progress)
        except SessionGone as error:
            raise McpServerFailed("The MCP server forgets each session as soon as it has begun") from error

    def _begin(self) -> UpstreamSession:
        """Shake hands, and return the session; one of the revision without a handshake where the server knows none."""
        params = {"protocolVersion": HANDSHAKES[0], "capabilities": {}, "clientInfo": _INFO}
        try:
            asked = self._numbered("initialize", params)
            headers, messages = self._http.post(asked, {})
            result = self._answer_in(messages, asked["id"], {}, None)
        except McpErrorAnswer as error:
            if error.rpc_code not in _NO_HANDSHAKE:
                raise
            return UpstreamSession(STATELESS)
        revision, identifier = result.get("protocolVersion"), headers.get("Mcp-Session-Id", "")
        if revision not in HANDSHAKES:
            raise McpServerFailed(
                f"The MCP server speaks the revision {safe_words(revision, ())!r}, which is not known here"
            )
        if len(identifier) > MAX_SESSION_ID or not (identifier.isascii() and identifier.isprintable()):
            raise McpServerFailed("The MCP server's session has an id that cannot be sent")
        session = UpstreamSession(str(revision), identifier)
        _, taken = self._http.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._headers_of(session, "", {})
        )
        # Whatever it says to that.
        for _ in taken:
            break
        return session

    def _request(
        self, session: UpstreamSession, method: str, params: Message, on_progress: OnProgress | None
    ) -> Message:
        meta: Message = {}
        if session.revision == STATELESS:
            meta = {
                f"{_META}protocolVersion": STATELESS,
                f"{_META}clientInfo": _INFO,
                f"{_META}clientCapabilities": {},
            }
        message = self._numbered(method, params)
        if on_progress is not None:
            meta["progressToken"] = message["id"]
        if meta:
            message["params"] = {**params, "_meta": meta}
        headers = self._headers_of(session, method, params)
        _, messages = self._http.post(message, headers)
        return self._answer_in(messages, message["id"], headers, on_progress)

    def _answer_in(
        self, messages: Iterator[Message], number: object, headers: dict[str, str], on_progress: OnProgress | None
    ) -> Message:
        """Return the result among the messages of an answer. Raises McpErrorAnswer for an error."""
        asked = 0
        for count, message in enumerate(messages):
            if count > MAX_ASIDE:
                break
            if "method" in message:
                if "id" in message:
                    asked += 1
                    if asked > _MAX_ASKED:
                        break
                    self._answer_back(message, headers)
                elif message["method"] == "notifications/progress" and on_progress is not None:
                    _report(message, number, on_progress, self._http.secrets)
                continue
            # An error to what could not be read has no number; this exchange has one request alone.
            if "error" in message:
                raise error_answer(message["error"], self._http.secrets)
            if "result" in message and message.get("id") == number:
                if not isinstance(message["result"], dict):
                    break
                return message["result"]
        raise McpServerFailed("The MCP server's answer ended without a result")

    def _answer_back(self, message: Message, headers: dict[str, str]) -> None:
        """Answer what a server asks its client: that it is there, and nothing else."""
        answer: Message = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": _METHOD_NOT_FOUND, "message": "The client does not do this"}
        with suppress(SessionGone):
            for _ in self._http.post(answer, headers)[1]:
                break

    def _numbered(self, method: str, params: Message) -> Message:
        self._numbers += 1
        return {"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params}

    def _headers_of(self, session: UpstreamSession, method: str, params: Message) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": session.revision}
        if session.id:
            headers["Mcp-Session-Id"] = session.id
        if session.revision == STATELESS and method:
            headers["Mcp-Method"] = method
            name = params.get("name")
            if isinstance(name, str):
                headers["Mcp-Name"] = _in_header(name)
        return headers


def _in_header(name: str) -> str:
    """Return a name as a header holds it: packed where it is not plain, or looks as if it were packed."""
    if name.isascii() and name.isprintable() and not name.startswith(_PACKED):
        return name
    return f"{_PACKED}{b64encode(name.encode()).decode()}?="


def _report(message: Message, number: object, on_progress: OnProgress, secrets: list[str]) -> None:
    """Tell of progress that is this request's; what cannot be read is not told."""
    params = message.get("params")
    if not isinstance(params, dict) or params.get("progressToken") != number:
        return
    progress, total, words = params.get("progress"), params.get("total"), params.get("message")
    if not isinstance(progress, int | float) or isinstance(progress, bool):
        return
    is_total = isinstance(total, int | float) and not isinstance(total, bool)
    on_progress(progress, total if is_total else None, safe_words(words, secrets) if isinstance(words, str) else None)
