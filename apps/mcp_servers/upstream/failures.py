"""Failures of MCP servers; their messages contain no credentials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from apps.kernel.errors import ApiError
from apps.kernel.secrets.redaction import redact

# Characters of a server's message that are shown.
MAX_TOLD: Final = 300


class McpServerFailed(ApiError):
    """An MCP server could not be reached, or violated the protocol."""

    status, type, code = 502, "upstream_error", "mcp_server_failed"
    from_provider = True


class McpServerTimeout(McpServerFailed):
    """An MCP server did not answer in time."""

    status, type, code = 504, "timeout_error", "mcp_server_timeout"


class McpServerRefused(McpServerFailed):
    """An MCP server rejected its registered credentials."""

    code = "mcp_server_refused"


class McpErrorAnswer(McpServerFailed):
    """An MCP server answered with a JSON-RPC error; `rpc_code` is the server's."""

    code = "mcp_server_error"

    def __init__(self, message: str, rpc_code: int) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code


class SessionGone(Exception):
    """The server no longer knows the session; begin a new one."""


def safe_words(words: object, secrets: Iterable[str]) -> str:
    """Return a server's message without credentials, on one line, shortened for display."""
    # Redact first: truncating could leave half of a credential.
    text = redact(words if isinstance(words, str) else "", secrets)
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:MAX_TOLD]


def error_answer(error: Any, secrets: Iterable[str]) -> McpErrorAnswer:
    """Return the error of a JSON-RPC answer."""
    fields = error if isinstance(error, dict) else {}
    code = fields.get("code")
    words = safe_words(fields.get("message"), secrets)
    is_code = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 2**31
    said = f": {words}" if words else ""
    return McpErrorAnswer(f"The MCP server answered with an error{said}", int(code) if is_code and code else 0)
