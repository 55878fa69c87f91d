"""One HTTP request to a destination: sent to the checked address in time; errors have messages for its owner.

Redirects are refused, because credentials are sent. Only the beginning of an answer is read. Credentials never appear
in messages or logs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

import gevent
import msgspec
import requests
from urllib3.exceptions import HTTPError

from apps.kernel.secrets.redaction import redact
from apps.keys.ssrf_guard import UnsafeAddressError, resolve_safe_address

# Timeouts in seconds: to connect, for each piece of an answer, and in total.
CONNECT_TIMEOUT, READ_TIMEOUT, TIMEOUT = 5.0, 10.0, 20.0
# Bytes of an answer that are read, and characters of it that are shown.
_MAX_READ: Final = 8_192
_MAX_TOLD: Final = 300
_MAX_PAUSE: Final = 3_600


class DeliveryRequest(NamedTuple):
    """An HTTP request to send."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class DeliveryFailed(Exception):
    """A destination did not accept a delivery; the message is for its owner. `pause`: seconds that it asks to wait."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.pause = pause


def send(request: DeliveryRequest, secrets: list[str], owner: UUID) -> None:
    """Send a request of an organization, and return once it is accepted.

    Raises DeliveryFailed, whose message contains none of the secrets.
    """
    try:
        session = resolve_safe_address(request.url, owner).session()
    except UnsafeAddressError as error:
        raise DeliveryFailed(f"Its address cannot be called: {error}") from error
    ends = time.monotonic() + TIMEOUT
    with session:
        session.headers.update({"User-Agent": "model-gateway", "Accept-Encoding": "identity"})
        with _in_time():
            answer = session.request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
                allow_redirects=False,
                stream=True,
            )
            try:
                said = _beginning(answer, ends)
            finally:
                answer.close()
    if not 200 <= answer.status_code < 300:
        words = _words_of(said, secrets)
        pause = answer.headers.get("Retry-After", "")
        seconds = min(float(pause), _MAX_PAUSE) if pause.isascii() and pause.isdecimal() else 0.0
        if 300 <= answer.status_code < 400:
            raise DeliveryFailed("It redirects, which is not followed: register the final address")
        raise DeliveryFailed(f"It answered {answer.status_code}{f': {words}' if words else ''}", seconds)


@contextmanager
def _in_time() -> Iterator[None]:
    """Limit waiting for the destination to the time limit. Raises DeliveryFailed."""
    try:
        with gevent.Timeout(TIMEOUT, requests.Timeout()):
            yield
    except (requests.Timeout, TimeoutError) as error:
        raise DeliveryFailed(f"It did not answer within {TIMEOUT:g} s") from error
    except (requests.RequestException, HTTPError, OSError) as error:
        # The message may quote the address with its query.
        raise DeliveryFailed("It could not be reached") from error


def _beginning(answer: requests.Response, ends: float) -> bytes:
    """Return the first bytes of an answer that arrive in time."""
    read = b""
    while len(read) < _MAX_READ and time.monotonic() < ends:
        piece = answer.raw.read1(_MAX_READ - len(read))
        if not piece:
            break
        read += piece
    return read


def _words_of(said: bytes, secrets: list[str]) -> str:
    """Return a destination's message without credentials, on one line, shortened for display."""
    # Redact first: truncating could leave half of a credential.
    text = redact(_message_in(said) or said.decode("utf-8", "replace"), secrets)
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:_MAX_TOLD]


def _message_in(said: bytes) -> str:
    """Return the message in a JSON answer, if it is at the usual place."""
    try:
        fields = msgspec.json.decode(said)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    found = fields.get("message") or fields.get("error") if isinstance(fields, dict) else ""
    return found if isinstance(found, str) else ""
