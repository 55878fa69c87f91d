"""Client of one MCP server: begins a session, lists its tools, calls one. Synchronous; one operation at a time.

It supports the revisions with a handshake and, for servers without one, the revision without. It declares no client
capabilities, so a server has nothing to request from it; such requests are refused. Unknown fields of tools and results
are dropped, as are icons by address and metadata of the server, because clients would load and follow them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from apps.mcp_servers.http_exchange import (
    HttpExchange,
    McpErrorAnswer,
    McpServerFailed,
    McpTarget,
    Message,
    SessionGone,
    error_answer,
    safe_words,
)

# Tools of one server, characters of a tool's name, blocks of a result.
MAX_TOOLS, MAX_NAME, MAX_BLOCKS = 500, 128, 1_000
_MEMBERS: Final = ("title", "description", "outputSchema", "annotations")
_TYPES: Final = {"title": str, "description": str, "outputSchema": dict, "annotations": dict}
# Results that are complete; others need input from the client first (revision 2026-07-28), which is not supported.
_COMPLETE: Final = (None, "complete")


class Tool(msgspec.Struct, frozen=True):
    """A tool: its name, and its complete definition for clients, including the name."""

    name: str
    definition: dict[str, Any]

    @property
    def has_effects(self) -> bool | None:
        """Whether its annotations say that it changes something (`readOnlyHint`, `destructiveHint`); None if they do
        not."""
        hints = self.definition.get("annotations")
        if not isinstance(hints, dict):
            return None
        if isinstance(hints.get("readOnlyHint"), bool):
            return not hints["readOnlyHint"]
        return True if hints.get("destructiveHint") is True else None


class ToolAnswer(msgspec.Struct, frozen=True):
    """A tool's answer: content blocks, structured data if any, and whether the tool reported an error."""

    content: list[dict[str, Any]]
    structured: dict[str, Any] | None = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of its blocks, joined."""
        texts = (block.get("text") for block in self.content if block.get("type") == "text")
        return "\n".join(text for text in texts if isinstance(text, str))


def read_tools(page: dict[str, Any]) -> Iterator[Tool]:
    """Yield the callable tools on a page of a list. Raises McpServerFailed if there is no list.

    A tool that must be called as a task (revision 2025-11-25) is dropped, because tasks are not supported.
    """
    listed = page.get("tools")
    if not isinstance(listed, list):
        raise McpServerFailed("The MCP server's list of tools is invalid")
    for one in listed:
        if isinstance(one, dict) and _is_name(one.get("name")) and not _demands_task(one):
            yield Tool(one["name"], _definition_of(one))


def read_result(result: dict[str, Any]) -> ToolAnswer:
    """Return a tool's answer. Raises McpServerFailed for an invalid result."""
    if result.get("resultType") not in _COMPLETE:
        raise McpServerFailed("The MCP server requests input from the user, which is not supported")
    if "task" in result and "content" not in result:
        raise McpServerFailed("The MCP server answered with a task, which was not requested")
    content, structured = result.get("content", []), result.get("structuredContent")
    if not isinstance(content, list) or not all(_is_block(block) for block in content):
        raise McpServerFailed("The MCP server's result has invalid content")
    if len(content) > MAX_BLOCKS:
        raise McpServerFailed(f"The MCP server's result has more than {MAX_BLOCKS} blocks", code="mcp_answer_too_large")
    if structured is not None and not isinstance(structured, dict):
        structured = None
    blocks = [{name: value for name, value in block.items() if name != "_meta"} for block in content]
    return ToolAnswer(blocks, structured, result.get("isError") is True)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable() and name.strip() == name


def _demands_task(tool: dict[str, Any]) -> bool:
    execution = tool.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _is_block(block: object) -> bool:
    return isinstance(block, dict) and isinstance(block.get("type"), str)


def _definition_of(tool: dict[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    definition = {"name": tool["name"], "inputSchema": schema if isinstance(schema, dict) else {"type": "object"}}
    return definition | {name: tool[name] for name in _MEMBERS if isinstance(tool.get(name), _TYPES[name])}


# Revisions with a handshake, newest first, and the one without.
HANDSHAKES: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
STATELESS: Final = "2026-07-28"
# Pages of a list, characters of a cursor and of a session's id; other messages beside the answer.
MAX_PAGES, MAX_CURSOR, MAX_SESSION_ID, MAX_ASIDE = 20, 4_096, 1_024, 1_000
# Requests of a server that are answered, mostly with refusals.
_MAX_ASKED: Final = 20
# Seconds for ending the session.
_GOODBYE: Final = 2.0
_METHOD_NOT_FOUND: Final = -32601
# Errors of servers without a handshake: unknown method, unknown revision, or missing metadata.
_NO_HANDSHAKE: Final = frozenset({_METHOD_NOT_FOUND, -32600, -32602, -32022, -32020, -32000})
_META: Final = "io.modelcontextprotocol/"
# Encloses an encoded name in a header (revision 2026-07-28).
_PACKED: Final = "=?base64?"
_INFO: Final = {"name": "model-gateway", "version": "1.0"}

# Progress, total if known, and message.
OnProgress = Callable[[float, float | None, str | None], None]


class UpstreamSession(msgspec.Struct, frozen=True):
    """A session between operations: the revision, and the server's session id, if any."""

    revision: str
    id: str = ""


class McpClient:
    """A connection to a server; close it after use. Every method raises McpServerFailed."""

    def __init__(self, target: McpTarget, session: UpstreamSession | None = None) -> None:
        """Connect with an existing session; without one, a session is begun, and ended with this client."""
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
        """Keep the session open at the server when this client is closed, and return it; None if there is none."""
        self._kept = True
        return self.session if self.session is not None and self.session.id else None

    def close(self) -> None:
        """End a session that was begun here, and close the connections."""
        if self._is_ours and not self._kept and self.session is not None and self.session.id:
            self._http.delete(self._headers_of(self.session, "", {}), _GOODBYE)
        self._http.close()

    def list_tools(self) -> list[Tool]:
        """Return all of the server's tools in its order, without invalid ones."""
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
                raise McpServerFailed("The MCP server's list has an invalid cursor")
            cursor = following
        raise McpServerFailed(f"The MCP server lists its tools on more than {MAX_PAGES} pages")

    def call_tool(self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> ToolAnswer:
        """Call a tool and return its answer, including the tool's own errors. `on_progress` receives progress."""
        return read_result(self._ask("tools/call", {"name": name, "arguments": arguments}, on_progress))

    def _ask(self, method: str, params: Message, on_progress: OnProgress | None = None) -> Message:
        """Return the result of a request in a session; if the server has forgotten it, in a new one."""
        if self.session is None:
            self.session = self._begin()
        try:
            return self._request(self.session, method, params, on_progress)
        except SessionGone:
            self.session, self._is_ours = self._begin(), True
        try:
            return self._request(self.session, method, params, on_progress)
        except SessionGone as error:
            raise McpServerFailed("The MCP server forgets each session at once") from error

    def _begin(self) -> UpstreamSession:
        """Perform the handshake and return the session; one of the revision without a handshake if the server has
        none."""
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
            raise McpServerFailed(f"The MCP server uses the unknown revision {safe_words(revision, ())!r}")
        if len(identifier) > MAX_SESSION_ID or not (identifier.isascii() and identifier.isprintable()):
            raise McpServerFailed("The MCP server sent an invalid session id")
        session = UpstreamSession(str(revision), identifier)
        _, taken = self._http.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._headers_of(session, "", {})
        )
        # The response is ignored.
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
        """Return the result among an answer's messages. Raises McpErrorAnswer for an error."""
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
            # An error about an unreadable request has no id; this exchange has only one request.
            if "error" in message:
                raise error_answer(message["error"], self._http.secrets)
            if "result" in message and message.get("id") == number:
                if not isinstance(message["result"], dict):
                    break
                return message["result"]
        raise McpServerFailed("The MCP server's answer ended without a result")

    def _answer_back(self, message: Message, headers: dict[str, str]) -> None:
        """Answer a server's request: pings succeed, others are refused."""
        answer: Message = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": _METHOD_NOT_FOUND, "message": "The client does not support this"}
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
    """Return a name as a header value: encoded if it is not plain, or looks encoded."""
    if name.isascii() and name.isprintable() and not name.startswith(_PACKED):
        return name
    return f"{_PACKED}{b64encode(name.encode()).decode()}?="


def _report(message: Message, number: object, on_progress: OnProgress, secrets: list[str]) -> None:
    """Report the request's progress; invalid messages are ignored."""
    params = message.get("params")
    if not isinstance(params, dict) or params.get("progressToken") != number:
        return
    progress, total, words = params.get("progress"), params.get("total"), params.get("message")
    if not isinstance(progress, int | float) or isinstance(progress, bool):
        return
    is_total = isinstance(total, int | float) and not isinstance(total, bool)
    on_progress(progress, total if is_total else None, safe_words(words, secrets) if isinstance(words, str) else None)
