"""Image streams: OpenAI's events, with partial images where the provider has them, and one bill (section 4.9)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.logs.models import RequestLog
from tests.support.image_requests import edit, edit_form, generate, size_of
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all


def test_unfinished_pictures_come_ahead_and_the_last_event_tells_the_usage(caller: Caller) -> None:
    tag = uuid4().hex
    response = generate(caller, f"a cat [[sandbox tag={tag}]]", stream=True, partial_images=2, size="1536x1024")
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    events = chunks_of(response)
    assert [(event["type"], event.get("partial_image_index")) for event in events] == [
        ("image_generation.partial_image", 0),
        ("image_generation.partial_image", 1),
        ("image_generation.completed", None),
    ]
    assert [size_of(event["b64_json"]) for event in events] == [(8, 8), (8, 8), (1536, 1024)]
    *_, last = events
    assert {name: last[name] for name in ("background", "created_at", "output_format", "quality", "size")} == {
        "background": "opaque",
        "created_at": 1767225600,
        "output_format": "png",
        "quality": "medium",
        "size": "1536x1024",
    }
    prompt = last["usage"]["input_tokens"]
    assert (last["usage"]["output_tokens"], last["usage"]["total_tokens"]) == (1_256, prompt + 1_256)
    (sent,) = caller.sent(tag)
    assert (sent["body"]["stream"], sent["body"]["partial_images"]) == (True, 2)
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert row.cost == (prompt * Decimal("5.1") + 1_256 * Decimal("31.7")) / 1_000_000
    assert (row.streamed, row.unified_finish_reason) == (True, "completed")


def test_each_picture_has_its_own_end_and_the_counts_are_told_once(caller: Caller) -> None:
    tag = uuid4().hex
    events = chunks_of(generate(caller, f"a cat [[sandbox tag={tag}]]", stream=True, n=2))
    assert [event["type"] for event in events] == ["image_generation.completed"] * 2
    assert ["usage" in event for event in events] == [False, True]
    assert events[1]["usage"]["output_tokens"] == 2_112
    # Nothing in an event says of which picture it is: each is a call of its own.
    assert len(caller.sent(tag)) == 2
    assert settle_all() == 1
    assert RequestLog.objects.get().completion_tokens == 2_112


def test_edits_have_names_of_their_own(caller: Caller) -> None:
    form = edit_form(caller, ("image", b"\x89PNG\r\n\x1a\n"), stream="true", partial_images="1")
    for response in (form, edit(caller, stream=True, partial_images=1)):
        assert [event["type"] for event in chunks_of(response)] == ["image_edit.partial_image", "image_edit.completed"]


@pytest.mark.parametrize("model", ["painter-flat", "sketcher"])
def test_who_does_not_stream_gives_the_end_alone(caller: Caller, model: str) -> None:
    events = chunks_of(generate(caller, "a cat", model=model, stream=True, partial_images=3))
    assert [event["type"] for event in events] == ["image_generation.completed"]
    assert set(events[0]) == {
        *("type", "b64_json", "created_at", "background", "output_format", "quality", "size", "usage"),
    }
    assert events[0]["output_format"] == "png"
    settle_all()
    assert RequestLog.objects.get().cost > 0


def test_a_failure_before_the_first_event_is_a_plain_error(caller: Caller) -> None:
    response = generate(caller, "a cat [[sandbox status=400 code=moderation_blocked]]", stream=True)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "moderation_blocked")
    settle_all()
    assert RequestLog.objects.get().cost == 0


def test_a_failure_after_it_is_an_event_and_free(caller: Caller) -> None:
    events = chunks_of(generate(caller, "a cat [[sandbox error=1]]", stream=True, partial_images=1))
    assert [event["type"] for event in events] == ["image_generation.partial_image", "error"]
    assert events[1]["error"]["code"] == "all_providers_failed"
    settle_all()
    row = RequestLog.objects.get()
    assert (row.has_error, row.cost) == (True, Decimal(0))


def test_a_stream_that_ends_without_its_picture_is_an_error(caller: Caller) -> None:
    response = generate(caller, "a cat [[sandbox end=0]]", stream=True)
    assert response.status_code == 502


@pytest.mark.parametrize(
    ("fields", "param", "problem"),
    [
        ({"stream": "yes"}, "stream", "must be true or false"),
        ({"stream": True, "partial_images": 4}, "partial_images", "must be between 0 and 3"),
        ({"stream": True, "partial_images": -1}, "partial_images", "must be between 0 and 3"),
    ],
)
def test_what_no_stream_can_be_is_refused_by_name(
    caller: Caller, fields: dict[str, Any], param: str, problem: str
) -> None:
    response = generate(caller, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert response.json()["message"] == f"Invalid request parameters: {param}: {problem}"
    assert nothing_happened(caller)


def test_a_stream_has_no_links(caller: Caller) -> None:
    response = generate(caller, stream=True, image_links=True)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "image_links", "unsupported_feature")
    assert nothing_happened(caller)


def test_unfinished_pictures_are_of_streams_alone(caller: Caller) -> None:
    tag = uuid4().hex
    assert generate(caller, f"a cat [[sandbox tag={tag}]]", partial_images=3).status_code == 200
    (sent,) = caller.sent(tag)
    assert not {"stream", "partial_images"} & set(sent["body"])
