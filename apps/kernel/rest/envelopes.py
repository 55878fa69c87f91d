"""Error envelopes: how an error is written for each family of routes, so that its client libraries can read it.

Pure. Knows the bodies of errors. Must never know a framework, nor decide anything but words: who may do what is decided
where routes are resolved, never by a path.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from apps.kernel.errors import ApiError, InvalidRequest


class Family(Enum):
    """Routes whose clients expect one shape of error."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GATEWAY = "gateway"
    MANAGEMENT = "management"


class Issue(NamedTuple):
    """What is wrong with one field; `path` as the client wrote it, empty for the whole body."""

    path: str
    message: str


class InvalidFields(InvalidRequest):
    """A request with fields that are missing, malformed or out of range."""

    def __init__(self, issues: list[Issue]) -> None:
        path, message = issues[0]
        super().__init__(f"Invalid request parameters: {f'{path}: ' if path else ''}{message}", param=path or None)
        self.issues = issues


_MANAGEMENT = frozenset({"auth", "keys", "organization", "projects", "guardrails", "activity", "audit-logs"})

# Anthropic's word for a status; any other 4xx is an `invalid_request_error`, any other 5xx an `api_error`.
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


def family_of(path: str) -> Family:
    """Return the family whose errors the path's clients expect."""
    if path in {"/v1/chat/completions", "/v1/route/explain"} or path.startswith("/v1/images/"):
        return Family.OPENAI
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return Family.ANTHROPIC
    if path.strip("/").partition("/")[0] in _MANAGEMENT:
        return Family.MANAGEMENT
    return Family.GATEWAY


def body_of(family: Family, error: ApiError) -> dict[str, Any]:
    """Return the body that tells a family's clients of the error."""
    match family:
        case Family.OPENAI:
            detail = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
            return {"error": detail, "status": error.status, "message": error.message}
        case Family.ANTHROPIC:
            detail = {"type": _anthropic_type(error.status), "message": error.message}
            return {"type": "error", "error": detail, "status": error.status, "message": error.message}
        case Family.GATEWAY:
            return {"error": True, "status": error.status, "message": error.message}
        case Family.MANAGEMENT if isinstance(error, InvalidFields):
            return {"message": error.message, "issues": [issue._asdict() for issue in error.issues]}
        case Family.MANAGEMENT:
            return {"message": error.message}


def _anthropic_type(status: int) -> str:
    return _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
