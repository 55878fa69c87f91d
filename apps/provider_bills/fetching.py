"""GET of JSON from a provider's administration API: bounded in bytes, time and retries; redirects are not followed.

No error names a credential: it is in a header, and messages have the path only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import requests

from apps.provider_bills.stated_lines import InvalidBill

# Bytes of a page; seconds for a page, and without a byte.
MAX_BYTES: Final = 8_000_000
_MAX_SECONDS, _MAX_SILENCE = 60.0, 20.0
# Tries of a page, and the longest pause between two: a rate limit that asks for more ends the reading until the next.
_MAX_TRIES: Final = 4
_MAX_PAUSE: Final = 20.0
_BUSY: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
# Pages of one report; a cursor that never ends would be followed for ever.
MAX_PAGES: Final = 100

Parameters = Sequence[tuple[str, str]]


class BillUnavailable(Exception):
    """The provider did not give its bill; the message says why, without a secret."""


class BillClient:
    """Asks one provider's API, at `base`, with the given headers. `sleep` waits between tries."""

    def __init__(self, base: str, headers: Mapping[str, str], sleep: Callable[[float], None] = time.sleep) -> None:
        self._base, self._headers, self._sleep = base.rstrip("/"), dict(headers), sleep

    def get(self, path: str, parameters: Parameters) -> dict[str, Any]:
        """Return the JSON object at a path, tried again while the provider is busy.

        Numbers are exact. Raises BillUnavailable and InvalidBill.
        """
        for tried in range(1, _MAX_TRIES + 1):
            is_last = tried == _MAX_TRIES
            try:
                found, pause = self._try(path, parameters)
            except requests.RequestException as error:
                if is_last:
                    raise BillUnavailable(f"{path}: {type(error).__name__}") from error
                pause, found = 2.0**tried, None
            if found is not None:
                return found
            if is_last or pause > _MAX_PAUSE:
                break
            self._sleep(pause)
        raise BillUnavailable(f"{path}: the provider is busy; the next reading tries again")

    def pages(self, path: str, parameters: Parameters) -> list[dict[str, Any]]:
        """Return the objects in `data` of all pages, by `has_more` and `next_page`. Raises as `get` does."""
        found: list[dict[str, Any]] = []
        cursors: set[str] = set()
        own = list(parameters)
        for _ in range(MAX_PAGES):
            page = self.get(path, own)
            found += rows(page, "data", path)
            if page.get("has_more") is not True:
                return found
            cursor = page.get("next_page")
            if not isinstance(cursor, str) or not cursor or cursor in cursors:
                raise InvalidBill(f"{path}: there are more pages, and next_page is none that was not read yet")
            cursors.add(cursor)
            own = [*parameters, ("page", cursor)]
        raise InvalidBill(f"{path}: more than {MAX_PAGES} pages")

    def _try(self, path: str, parameters: Parameters) -> tuple[dict[str, Any] | None, float]:
        """Return the object, or None and the seconds to wait before another try."""
        ends = time.monotonic() + _MAX_SECONDS
        with requests.get(
            self._base + path,
            params=list(parameters),
            headers=self._headers,
            stream=True,
            timeout=_MAX_SILENCE,
            allow_redirects=False,
        ) as answer:
            if answer.status_code in _BUSY:
                return None, _pause_of(answer.headers.get("Retry-After"))
            if answer.status_code != requests.codes.ok:
                raise BillUnavailable(f"{path}: HTTP status {answer.status_code}")
            content = b""
            for chunk in answer.iter_content(65_536):
                content += chunk
                if len(content) > MAX_BYTES:
                    raise InvalidBill(f"{path}: more than {MAX_BYTES:,} bytes")
                if time.monotonic() > ends:
                    raise BillUnavailable(f"{path}: took more than {_MAX_SECONDS:.0f} seconds")
        return read_object(content, path), 0.0


def read_json(content: bytes | str, place: str) -> Any:
    """Return a JSON document with exact numbers; NaN and Infinity are refused. Raises InvalidBill."""
    try:
        return json.loads(content, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise InvalidBill(f"{place}: not JSON") from error


def read_object(content: bytes | str, place: str) -> dict[str, Any]:
    """Return a JSON object. Raises InvalidBill."""
    document = read_json(content, place)
    if not isinstance(document, dict):
        raise InvalidBill(f"{place}: not a JSON object")
    return document


def rows(table: Mapping[str, Any], field: str, place: str) -> list[dict[str, Any]]:
    """Return a field that is a list of objects. Raises InvalidBill: an answer without it is no empty bill."""
    value = table.get(field)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidBill(f"{place}: {field} is not a list of objects")
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _pause_of(stated: str | None) -> float:
    return float(stated) if stated is not None and stated.isdecimal() and len(stated) < 6 else 2.0
