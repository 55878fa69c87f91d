"""Answer errors of any dialect: unreadable JSON, truncated streams, error objects in place of content."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects import Failure
from apps.gateway.dialects.reading.context_overflow import code_of_status, status_of
from apps.gateway.retry_after import retry_after_in
from apps.kernel.errors import AllProvidersFailed, ApiError, UpstreamRefused

# Some providers answer with a page of HTML, or quote the whole request.
MAX_ERROR_LENGTH = 2_000
_HALVES = re.compile("[\ud800-\udfff]")
_DECODER = msgspec.json.Decoder()


def read_answer(body: bytes) -> Any:
    """Return the JSON value of a provider's answer. Raises ValueError.

    Providers get away with what clients do not: half of a surrogate pair, raw control characters, bytes that are no
    UTF-8, and NaN (which becomes null).
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = json.loads(body.decode("utf-8", "replace"), strict=False, parse_constant=lambda _: None)
        return _DECODER.decode(_HALVES.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def read_refusal(status: int, body: bytes, find_failure: Callable[[Any], Failure | None]) -> Failure:
    """Return what `find_failure` finds in an answer that is not 2xx, else that it has this status."""
    try:
        answer = read_answer(body)
    except ValueError:
        answer = None
    found = find_failure(answer)
    return found or Failure(message=f"The provider answered with status {status}", code=code_of_status(status))


def failure_event(failure: Failure, status: int) -> Failed:
    """Return the end of an answer that holds an error: the request's own fault, or the provider's (429 and 5xx)."""
    status = status_of(failure.code, status)
    if status < 500 and status != 429:
        error: ApiError = UpstreamRefused(failure.message, status=status, code=failure.code, param=failure.param)
    else:
        wait = failure.retry_after
        if wait is None and status == 429:
            wait = retry_after_in(failure.message)
        code = failure.code or "upstream_error"
        error = AllProvidersFailed(failure.message, status=status, code=code, retry_after=wait)
    return Failed(error=error)


def unreadable_answer(message: str) -> Failed:
    """Return the end of an answer that cannot be read."""
    return Failed(error=AllProvidersFailed(message, code="upstream_broken"))


def truncated_answer() -> Failed:
    """Return the end of an answer that stopped in the middle."""
    return Failed(error=AllProvidersFailed("The provider's answer ended before it was complete", code="upstream_cut"))


def drain_frames(frames: Iterator[bytes]) -> None:
    """Read to the end of a complete answer, so that the connection can be reused; unless the provider is too slow.
    A connection error now is not the answer's failure."""
    with suppress(Exception):
        while next(frames, None):
            pass
