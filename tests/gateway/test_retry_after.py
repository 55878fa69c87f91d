"""When a provider wants to be asked again: every form of the headers, and of the words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.gateway.canonical.events import Failed
from apps.gateway.dialects.chat import google, openai
from apps.gateway.failures import MAX_RETRY_AFTER, failure_from_error, retry_after_in, retry_after_of

NOW = datetime(2026, 11, 28, 4, 0, 0, tzinfo=UTC)
QUOTA = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.2s"},
        ],
    }
}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "37"}, 37.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": "Sat, 28 Nov 2026 04:01:30 GMT"}, 90.0),
        ({"retry-after": "Saturday, 28-Nov-26 04:01:30 GMT"}, 90.0),
        ({"retry-after": "Sat, 28 Nov 2026 03:59:00 GMT"}, 0.0),
        ({"retry-after": "Thu, 31 Dec 2099 23:59:59 GMT"}, MAX_RETRY_AFTER),
        ({"retry-after": "999999999"}, MAX_RETRY_AFTER),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1" * 200}, None),
        ({"retry-after-ms": "4200"}, 4.2),
        ({"retry-after-ms": "4200", "retry-after": "9"}, 4.2),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "1m2.5s"}, 62.5),
        ({"x-ratelimit-reset-tokens": "6ms"}, 0.006),
        ({"x-ratelimit-reset-requests": "1h", "x-ratelimit-reset-tokens": "2m59.56s"}, 179.56),
        (
            {
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-tokens": "12",
            },
            3_600.0,
        ),
        ({"x-ratelimit-reset": "1795838460"}, 60.0),
        ({"x-ratelimit-reset": "1795838460500"}, 60.5),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"anthropic-ratelimit-requests-reset": "2026-11-28T04:00:20Z"}, 20.0),
        (
            {
                "anthropic-ratelimit-input-tokens-reset": "2026-11-28T04:00:45+00:00",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-28T04:00:01Z",
                "anthropic-ratelimit-requests-remaining": "49",
            },
            45.0,
        ),
        ({"retry-after": "3", "anthropic-ratelimit-requests-reset": "2026-11-28T05:00:00Z"}, 3.0),
        ({"x-ratelimit-reset-requests": "whenever", "x-reset": "5"}, None),
    ],
)
def test_each_form_of_the_headers_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_of(headers, 429, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_resets_of_limits_say_nothing_of_a_provider_that_is_down() -> None:
    assert retry_after_of({"x-ratelimit-reset-requests": "1h"}, 503, NOW) is None
    assert retry_after_of({"retry-after": "2", "x-ratelimit-reset-requests": "1h"}, 503, NOW) == 2.0


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 7.66s. Visit the page", 7.66),
        ("Please try again in 2m59.56s.", 179.56),
        ("Please try again in 6ms.", 0.006),
        ("You exceeded your current quota. Please retry in 37.2s.", 37.2),
        ("Try again in 20 seconds.", 20.0),
        ("Please retry after 9 seconds", 9.0),
        ("Please try again in 2 minutes", None),
        ("Please try again later", None),
    ],
)
def test_each_form_of_the_words_is_read(words: str, seconds: float | None) -> None:
    assert retry_after_in(words) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(("dialect", "body"), [(google, QUOTA), (google, [QUOTA]), (openai, QUOTA), (openai, [QUOTA])])
def test_the_delay_in_googles_details_is_read(dialect: Any, body: Any) -> None:
    assert dialect.read_failure(429, json.dumps(body).encode()).retry_after == 37.2


@pytest.mark.parametrize("delay", ["37", "", "x", "9" * 200 + "s", 37, None])
def test_a_delay_that_is_none_is_none(delay: Any) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}, "x"]
    body = json.dumps({"error": {"message": "No", "details": details}}).encode()
    assert google.read_failure(429, body).retry_after is None


def test_a_refusal_in_a_stream_says_it_too() -> None:
    events = list(google.read_events(iter([json.dumps(QUOTA).encode()])))
    failed = [event for event in events if isinstance(event, Failed)]
    assert [failure_from_error(event.error).retry_after for event in failed] == [37.2]
