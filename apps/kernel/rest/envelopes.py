"""Error envelopes: the format of errors for each family of routes, as its client libraries expect. Pure.

The route table (`apps.kernel.rest.routes`) assigns families to routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, NamedTuple

from apps.kernel.errors import ApiError, InvalidRequest


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """A family of routes whose clients expect one format of errors; a client format may bring its own."""

    name: str
    # Returns an error's body.
    body_of: Callable[[ApiError], dict[str, Any]]
    # The body's name among the schemas of the OpenAPI document.
    schema: str

    OPENAI: ClassVar[Family]
    ANTHROPIC: ClassVar[Family]
    GOOGLE: ClassVar[Family]
    # JSON-RPC.
    MCP: ClassVar[Family]
    # Logs, health, metrics, and paths outside of every API.
    LOGS: ClassVar[Family]
    MANAGEMENT: ClassVar[Family]
    OAUTH: ClassVar[Family]
    # Browsers: errors are pages.
    PAGES: ClassVar[Family]


def camel(name: str) -> str:
    """Return a column's name in the API."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


class Issue(NamedTuple):
    """The problem of one field; `path` as the client wrote it, empty for the whole body."""

    path: str
    message: str


class InvalidFields(InvalidRequest):
    """A request with fields that are missing, malformed or out of range."""

    def __init__(self, issues: list[Issue]) -> None:
        path, message = issues[0]
        super().__init__(f"Invalid request parameters: {f'{path}: ' if path else ''}{message}", param=path or None)
        self.issues = issues


# Anthropic's error types by status; any other 4xx is an `invalid_request_error`, any other 5xx an `api_error`.
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# Google's statuses (google.rpc.Code); any other 4xx is FAILED_PRECONDITION, any other 5xx INTERNAL.
_GOOGLE_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ALREADY_EXISTS",
    410: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# OAuth's error codes that our errors have as `code`.
_OAUTH_WORDS = frozenset({"invalid_client_metadata", "invalid_redirect_uri", "unsupported_grant_type"})
# The domain of this gateway's errors in Google's `ErrorInfo`.
_GOOGLE_DOMAIN = "gateway"
_GOOGLE_TYPE = "type.googleapis.com/google.rpc."
# JSON-RPC's codes for the client's errors and for others.
_RPC_INVALID_REQUEST, _RPC_INTERNAL_ERROR = -32600, -32603


def _openai_body(error: ApiError) -> dict[str, Any]:
    detail = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": detail, "status": error.status, "message": error.message}


def _anthropic_body(error: ApiError) -> dict[str, Any]:
    detail = {"type": anthropic_type(error.status), "message": error.message}
    return {"type": "error", "error": detail, "status": error.status, "message": error.message}


def _mcp_body(error: ApiError) -> dict[str, Any]:
    """Return JSON-RPC's error. The request was not read, so its id is unknown."""
    code = _RPC_INVALID_REQUEST if error.status < 500 else _RPC_INTERNAL_ERROR
    data = {"status": error.status, "type": error.type, "code": error.code}
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": error.message, "data": data}}


def _plain_body(error: ApiError) -> dict[str, Any]:
    return {"error": True, "status": error.status, "message": error.message}


def _management_body(error: ApiError) -> dict[str, Any]:
    if isinstance(error, InvalidFields):
        return {"message": error.message, "issues": [issue._asdict() for issue in error.issues]}
    return {"message": error.message}


def _oauth_body(error: ApiError) -> dict[str, Any]:
    return {"error": _oauth_word(error), "error_description": error.message}


def _oauth_word(error: ApiError) -> str:
    """Return OAuth's code for an error (RFC 6749, 7591): the error's own if it is one."""
    if error.code in _OAUTH_WORDS:
        return error.code
    if error.status in {429, 503}:
        return "temporarily_unavailable"
    return "invalid_request" if error.status < 500 else "server_error"


def anthropic_type(status: int) -> str:
    """Return Anthropic's error type for a status."""
    return _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def _google_body(error: ApiError) -> dict[str, Any]:
    """Return Google's `Status` as a body, with reason, invalid field, and retry time in its details."""
    info = {"@type": f"{_GOOGLE_TYPE}ErrorInfo", "reason": error.code.upper(), "domain": _GOOGLE_DOMAIN}
    details: list[dict[str, Any]] = [info]
    if error.param:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": f"{_GOOGLE_TYPE}BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None:
        details.append({"@type": f"{_GOOGLE_TYPE}RetryInfo", "retryDelay": f"{max(1, ceil(error.retry_after))}s"})
    usual = "FAILED_PRECONDITION" if error.status < 500 else "INTERNAL"
    word = _GOOGLE_STATUSES.get(error.status, usual)
    return {"error": {"code": error.status, "message": error.message, "status": word, "details": details}}


Family.OPENAI = Family("openai", _openai_body, "OpenAIError")
Family.ANTHROPIC = Family("anthropic", _anthropic_body, "AnthropicError")
Family.GOOGLE = Family("google", _google_body, "GoogleError")
Family.MCP = Family("mcp", _mcp_body, "McpError")
Family.LOGS = Family("logs", _plain_body, "GatewayError")
Family.MANAGEMENT = Family("management", _management_body, "ManagementError")
Family.OAUTH = Family("oauth", _oauth_body, "OAuthError")
Family.PAGES = Family("pages", _plain_body, "GatewayError")
