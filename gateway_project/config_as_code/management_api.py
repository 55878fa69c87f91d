"""The management API of a gateway, as the configuration's client calls it: bounded, retried, never redirected.

A POST is sent with an `Idempotency-Key`: it is sent again when its answer was lost, and done once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import requests
from requests.auth import AuthBase

from gateway_project.config_as_code.yaml_file import ConfigError

# Seconds to connect, and between two reads of an answer: providers and MCP servers are asked within a request.
_TIMEOUT: Final = (10, 90)
MAX_ANSWER: Final = 64 * 1024 * 1024
_TRIES: Final = 4
# Seconds that an answer may ask to wait for; without that it is tried again after 1, 2 and 4.
_MAX_WAIT: Final = 60
_AGAIN: Final = frozenset({429, 502, 503, 504})


class RequestRefused(ConfigError):
    """A request that the gateway refused: its status, message and issues by field."""

    def __init__(self, request: str, status: int, message: str, issues: list[tuple[str, str]]) -> None:
        super().__init__("", f"{request} was refused ({status}): {message}")
        self.request, self.status, self.message, self.issues = request, status, message, issues


class Unreachable(ConfigError):
    """A gateway that does not answer, or not as a gateway does; it is unknown whether the request was done."""


class _Bearer(AuthBase):
    """The key; set as the session's authentication so that no `.netrc` replaces it."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class ManagementApi:
    """The API at a base URL, with a management key or a session token."""

    def __init__(self, base_url: str, key: str) -> None:
        """Raises ConfigError for an address or a key that cannot be one."""
        parts = urlsplit(base_url)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise ConfigError("", "--base-url must be an address such as https://gateway.example.com")
        if not key or not (key.isascii() and key.isprintable()) or " " in key:
            raise ConfigError("", "Set GATEWAY_API_KEY to a management key (docs/management-keys.md)")
        self.base_url = base_url.rstrip("/")
        self._session = requests.Session()
        self._session.auth = _Bearer(key)

    def get(self, path: str, name: str = "", **query: str) -> Any:
        """Return an answer, or its member `name`. Raises RequestRefused, Unreachable."""
        return _member(self._send("GET", path, query), name, f"GET {path}")

    def send(self, method: str, path: str, body: Mapping[str, Any], name: str = "", **query: str) -> Any:
        """Send a body; return the answer, or its member `name`. Raises RequestRefused, Unreachable."""
        return _member(self._send(method, path, query, body), name, f"{method} {path}")

    def delete(self, path: str) -> None:
        """Delete something; one that is gone already is fine. Raises RequestRefused, Unreachable."""
        try:
            self._send("DELETE", path, {})
        except RequestRefused as error:
            # Such as a second try of a request whose answer was lost.
            if error.status != 404:
                raise

    def _send(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Idempotency-Key": str(uuid4())} if method == "POST" else {}
        problem, wait = "", 0.0
        for attempt in range(_TRIES):
            time.sleep(wait)
            try:
                status, text, retry_after = self._exchange(method, path, query, body, headers)
            except requests.RequestException as error:
                problem, wait = f"{self.base_url} does not answer: {_reason(error)}", 2.0**attempt
                continue
            if status in _AGAIN:
                problem, wait = f"{method} {path} is answered with {status}", _wait(retry_after, attempt)
                continue
            return _read(f"{method} {path}", status, text)
        raise Unreachable("", problem)

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None, headers: dict[str, str]
    ) -> tuple[int, bytes, str]:
        with self._session.request(
            method,
            f"{self.base_url}{path}",
            params=query,
            json=body,
            headers={**headers, "Accept": "application/json"},
            timeout=_TIMEOUT,
            allow_redirects=False,
            stream=True,
        ) as response:
            text = b""
            for piece in response.iter_content(65536):
                text += piece
                if len(text) > MAX_ANSWER:
                    raise Unreachable("", f"{method} {path} is answered with more than {MAX_ANSWER} bytes")
            return response.status_code, text, response.headers.get("Retry-After", "")


def _wait(retry_after: str, attempt: int) -> float:
    asked = int(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0
    return min(max(asked, 2.0**attempt), _MAX_WAIT)


def _read(request: str, status: int, text: bytes) -> Any:
    """Return an answer's JSON. Raises RequestRefused; Unreachable where the answer is no gateway's."""
    try:
        answer = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreachable("", f"{request} is answered with {status} and no JSON; is --base-url a gateway?") from error
    if 200 <= status < 300:
        return answer
    said = answer if isinstance(answer, dict) else {}
    message = said.get("message") if isinstance(said.get("message"), str) else ""
    issues = [
        (str(one.get("path", "")), str(one.get("message", "")))
        for one in said.get("issues") or ()
        if isinstance(one, dict)
    ]
    raise RequestRefused(request, status, message or "no reason is given", issues)


def _member(answer: Any, name: str, request: str) -> Any:
    if not name:
        return answer
    if not isinstance(answer, dict) or name not in answer:
        raise Unreachable("", f"{request} is answered without `{name}`: this gateway has another version")
    return answer[name]


def _reason(error: requests.RequestException) -> str:
    """Return why a request failed, without the request's headers."""
    if isinstance(error, requests.exceptions.SSLError):
        return "no TLS, or a certificate that is not trusted"
    if isinstance(error, requests.Timeout):
        return "it took too long"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__
