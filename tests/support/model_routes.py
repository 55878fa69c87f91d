"""The routes that reach models, each asked in its own words, and what an error looks like in each family."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from gateway_project.wsgi import application
from tests.support.image_requests import PNG, data_url
from tests.support.upstream import Caller

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "generations": "/v1/images/generations",
    "edits": "/v1/images/edits",
}
ROUTES = tuple(PATHS)
# Anthropic's word for a status (decisions, section 10); any other 4xx and 5xx has the last two.
_ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def body_of(route: str, content: str = "hello", **fields: Any) -> dict[str, Any]:
    """Return a good body of the route, of `sandbox/echo` or `sandbox/painter`; a field that is None is left out."""
    body: dict[str, Any]
    if route in {"chat", "messages"}:
        body = {"model": "sandbox/echo", "max_tokens": 100, "messages": [{"role": "user", "content": content}]}
    else:
        body = {"model": "sandbox/painter", "prompt": content}
        if route == "edits":
            body["images"] = [{"image_url": data_url(PNG)}]
    return {name: value for name, value in {**body, **fields}.items() if value is not None}


@dataclass(frozen=True)
class Answer:
    """A response; headers by their names in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the body."""
        return json.loads(self.content)


def post(caller: Caller, route: str, content: str = "hello", **fields: Any) -> Answer:
    """Ask. `headers` are HTTP headers (None takes one away), `raw` a body as it is, `content_type` its type, `environ`
    what a server would say besides."""
    headers = {"authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    environ = {
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items() if value is not None},
        "CONTENT_TYPE": fields.pop("content_type", "application/json"),
        **fields.pop("environ", {}),
    }
    raw = fields.pop("raw", None)
    return call(PATHS[route], json.dumps(body_of(route, content, **fields)).encode() if raw is None else raw, environ)


def call(path: str, body: bytes, environ: dict[str, Any]) -> Answer:
    """Ask the WSGI door itself, as a server does, and read the answer to its end."""
    told: list[Any] = []
    whole = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
        **environ,
    }
    pieces = application(whole, lambda *status_and_headers: told.extend(status_and_headers))
    content = b"".join(pieces)
    getattr(pieces, "close", lambda: None)()
    return Answer(int(told[0].split()[0]), {name.lower(): value for name, value in told[1]}, content)


def error_of(route: str, status: int, kind: str, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """Return the whole body of an error: `kind`, `code` and `param` are OpenAI's."""
    if route == "messages":
        usual = "invalid_request_error" if status < 500 else "api_error"
        detail = {"type": _ANTHROPIC.get(status, usual), "message": message}
        return {"type": "error", "error": detail, "status": status, "message": message}
    return {
        "error": {"message": message, "type": kind, "param": param, "code": code},
        "status": status,
        "message": message,
    }
