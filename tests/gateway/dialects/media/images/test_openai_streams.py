"""OpenAI's streams of pictures towards providers: the reading of good ones and of strange ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    ImageMade,
    OpaqueDelta,
    PartialImage,
    Started,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects.media.images.provider import openai
from apps.kernel.usage import Usage

words = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("image_edit.completed")
fields = st.sampled_from(["type", "b64_json", "url", "created_at", "partial_image_index", "usage", "error", "size"])
answers = words | st.dictionaries(fields, words | st.dictionaries(fields, words, max_size=2), max_size=5)


def _failures_of(frames: list[bytes]) -> list[tuple[int, str]]:
    """Return status and code of each failure; there is nothing else."""
    return [(event.error.status, event.error.code) for event in openai.read_events(frames) if isinstance(event, Failed)]


@given(values=st.lists(answers, max_size=3))
def test_no_stream_is_too_strange_to_be_read(values: list[Any]) -> None:
    *_, last = openai.read_events([json.dumps(value).encode() for value in values])
    assert isinstance(last, Event)


def test_a_stream_gives_unfinished_pictures_and_adds_its_counts_up() -> None:
    usage = {"input_tokens": 5, "output_tokens": 1156, "input_tokens_details": {"image_tokens": 2, "text_tokens": 3}}
    told = {"b64_json": "AA", "created_at": 1767225600, "output_format": "webp", "size": "1024x1024"}
    frames = [
        b"",
        json.dumps({**told, "type": "image_generation.partial_image", "partial_image_index": 1}).encode(),
        json.dumps({**told, "type": "image_generation.new_event"}).encode(),
        json.dumps({**told, "type": "image_edit.completed", "usage": usage}).encode(),
        json.dumps({**told, "type": "image_edit.completed", "usage": usage}).encode(),
        b"[DONE]",
        b"nothing is read behind the end",
    ]
    echo = OpaqueDelta(dialect="images", data={"output_format": "webp", "size": "1024x1024"}, of="reply")
    assert list(openai.read_events(frames)) == [
        Waiting(),
        Started(created=1767225600),
        PartialImage(url="data:image/webp;base64,AA", index=1),
        echo,
        ImageMade(url="data:image/webp;base64,AA"),
        Finished(reason="stop"),
        echo,
        ImageMade(choice=1, url="data:image/webp;base64,AA"),
        Finished(choice=1, reason="stop"),
        UsageReported(usage=Usage(input=6, image_input=4, image_output=2312, images=2)),
    ]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], "upstream_cut"),
        ([b"<html>"], "upstream_broken"),
        ([b'{"type": "image_generation.completed"}'], "upstream_cut"),
        ([b'{"type": "error", "error": {"message": "no", "code": "moderation_blocked"}}'], "moderation_blocked"),
    ],
)
def test_a_stream_without_its_picture_is_a_failure(frames: list[bytes], code: str) -> None:
    assert _failures_of(frames) == [(502, code)]
