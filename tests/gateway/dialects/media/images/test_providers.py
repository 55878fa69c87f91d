"""Wire formats of pictures towards providers: written requests, and the reading of strange answers."""

from __future__ import annotations

import json
from base64 import b64encode
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Chat, DroppedField, Image, Message, Target, Text
from apps.gateway.canonical.events import Event, Failed, Finished, ImageMade, OpaqueDelta, Started, UsageReported
from apps.gateway.canonical.task_options import ImageRequest
from apps.gateway.client.multipart import read_form
from apps.gateway.dialects.media import boundary_of, write_form
from apps.gateway.dialects.media.images import (
    ImageCapabilities,
    find_image_dialect,
    find_image_format,
    needs_of,
    prepare_for_target,
    shape_of,
)
from apps.gateway.dialects.media.images import provider as image_providers
from apps.gateway.dialects.media.images.provider import dashscope, openai, stability
from apps.kernel.usage import Usage
from tests.support.image_requests import MASK, PNG, data_url

EVERYTHING = {
    "dialect": "openai",
    "most": 10,
    "inputs": 16,
    "takes": ["mask", "background", "style", "input_fidelity", "output_compression", "moderation", "user", "any_size"],
    "qualities": ["low", "high"],
    "formats": ["png", "webp"],
    "sizes": ["1024x1024", "1536x1024"],
}
FORMATS = {
    name: dialect
    for _, name, _ in iter_modules(image_providers.__path__)
    if (dialect := find_image_format(name)) is not None
}


def asking(n: int | None = None, user: str | None = None, inputs: int = 0, **image_request: Any) -> Chat:
    """Return a request for pictures of a cat."""
    parts = [*[Image(url=data_url(PNG)) for _ in range(inputs)], Text(text="a cat")]
    return Chat(
        model="painter",
        messages=[Message(role="user", parts=parts)],
        n=n,
        user=user,
        image_request=ImageRequest(edits=inputs > 0, **image_request),
    )


def target(**facts: Any) -> Target:
    """Return the target of a model that takes everything, but for these facts."""
    return Target(model_name="upstream-model", facts={"images": {**EVERYTHING, **facts}}, dropped_fields=[])


def told(event: Event) -> Any:
    """Return what an event says, its failure in short."""
    return ("Failed", event.error.status, event.error.code) if isinstance(event, Failed) else event


def test_every_format_is_found_by_its_name() -> None:
    assert set(FORMATS) == {"openai", "stability", "dashscope", "bfl"}
    assert all(find_image_dialect({"images": {"dialect": name}}, "openai") is FORMATS[name] for name in FORMATS)
    assert find_image_dialect({}, "openai") is None
    assert find_image_dialect({"images": {"dialect": "image_request"}}, "openai") is None
    chatting = find_image_dialect({"images": {"dialect": "chat"}}, "google")
    assert getattr(chatting, "name", None) == "google"


def test_new_pictures_are_asked_for_in_json() -> None:
    chat = asking(n=3, user="u-1", size="640x480", quality="high", background="opaque", style="vivid", moderation="low")
    asked = target()
    assert (openai.path(chat, asked), openai.headers(chat, asked)) == ("/images/generations", {})
    assert json.loads(openai.write_request(chat, asked)) == {
        "model": "upstream-model",
        "prompt": "a cat",
        "n": 3,
        "quality": "high",
        "background": "opaque",
        "style": "vivid",
        "moderation": "low",
        "user": "u-1",
        "size": "640x480",
    }
    assert asked.dropped_fields == []


def test_what_a_model_does_not_take_is_lost_and_not_sent() -> None:
    chat = asking(user="u-1", quality="standard", style="vivid", output_compression=5, moderation="low")
    asked = target(takes=[])
    assert json.loads(openai.write_request(chat, asked)) == {"model": "upstream-model", "prompt": "a cat"}
    assert [dropped.param for dropped in asked.dropped_fields] == ["style", "output_compression", "moderation", "user"]


def test_pictures_to_change_are_sent_as_a_form() -> None:
    chat = asking(inputs=2, mask=data_url(MASK), size="1024x1024", moderation="low")
    asked = target()
    content_type = openai.headers(chat, asked)["Content-Type"]
    assert openai.path(chat, asked) == "/images/edits"
    fields = read_form(openai.write_request(chat, asked), content_type)
    assert [(field.name, field.filename, field.data) for field in fields] == [
        ("model", None, b"upstream-model"),
        ("prompt", None, b"a cat"),
        ("size", None, b"1024x1024"),
        ("image[]", "image.png", PNG),
        ("image[]", "image.png", PNG),
        ("mask", "mask.png", MASK),
    ]
    assert asked.dropped_fields == [DroppedField("moderation", "edits have no such option")]


@given(st.lists(st.tuples(st.sampled_from(["prompt", "user"]), st.text(max_size=40)), min_size=1, max_size=4))
def test_no_text_can_end_its_field(fields: list[tuple[str, str]]) -> None:
    boundary = boundary_of(fields)
    read = read_form(write_form(fields, boundary), f"multipart/form-data; boundary={boundary}")
    assert [(one.name, one.data) for one in read] == [(name, text.encode("utf-8", "replace")) for name, text in fields]


def test_an_answer_has_pictures_words_about_them_and_counts() -> None:
    body = {
        "created": 7,
        "output_format": "webp",
        "size": "1024x1024",
        "data": [{"b64_json": "AAAA", "revised_prompt": "a nice cat"}, {"url": "https://x.example/1"}, {}, None],
        "usage": {
            "input_tokens": 100,
            "output_tokens": 50,
            "input_tokens_details": {"image_tokens": 60, "text_tokens": 40, "cached_tokens": 10},
            "output_tokens_details": {"image_tokens": 45, "text_tokens": 5},
        },
    }
    assert list(openai.read_reply(json.dumps(body).encode())) == [
        Started(created=7),
        OpaqueDelta(dialect="images", data={"output_format": "webp", "size": "1024x1024"}, of="reply"),
        OpaqueDelta(dialect="images", data={"revised_prompt": "a nice cat"}),
        ImageMade(url="data:image/webp;base64,AAAA"),
        Finished(reason="stop"),
        ImageMade(choice=1, url="https://x.example/1"),
        Finished(choice=1, reason="stop"),
        UsageReported(usage=Usage(input=30, cache_read=10, image_input=60, output=5, image_output=45, images=2)),
    ]


def test_what_is_written_is_pictures_unless_it_is_told_apart() -> None:
    body = b'{"created": 1, "data": [{"b64_json": "AA"}], "usage": {"input_tokens": 5, "output_tokens": 1056}}'
    *_, last = openai.read_reply(body)
    assert last == UsageReported(usage=Usage(input=5, image_output=1056, images=1))


def test_stability_gets_a_form_and_gives_one_picture() -> None:
    chat = asking(aspect_ratio="3:2", output_format="png")
    asked = target(dialect="stability", path="generate/sd3", takes=["model"], sizes=[], aspect_ratios=["1:1", "3:2"])
    assert stability.path(chat, asked) == "/v2beta/stable-image/generate/sd3"
    fields = read_form(stability.write_request(chat, asked), stability.headers(chat, asked)["Content-Type"])
    assert [(field.name, field.data) for field in fields] == [
        ("prompt", b"a cat"),
        ("model", b"upstream-model"),
        ("output_format", b"png"),
        ("aspect_ratio", b"3:2"),
    ]
    picture = b64encode(PNG).decode()
    body = json.dumps({"image": picture, "finish_reason": "SUCCESS", "seed": 1}).encode()
    assert list(stability.read_reply(body)) == [
        Started(),
        ImageMade(url=f"data:image/png;base64,{picture}"),
        Finished(reason="stop", native="SUCCESS"),
        UsageReported(usage=Usage(images=1)),
    ]
    filtered = json.dumps({"image": picture, "finish_reason": "CONTENT_FILTERED"}).encode()
    assert list(stability.read_reply(filtered)) == [
        Started(),
        Finished(reason="content_filter", native="CONTENT_FILTERED"),
    ]
    failure = stability.read_failure(400, b'{"id": "1", "name": "bad_request", "errors": ["prompt: required", "x"]}')
    assert (failure.message, failure.code) == ("prompt: required; x", "bad_request")


def test_stability_is_sent_the_image_to_change_and_how_far_to_go() -> None:
    facts = {"dialect": "stability", "path": "generate/sd3", "sizes": [], "aspect_ratios": ["3:2"], "inputs": 1}
    asked = target(**facts, takes=["model", "input_fidelity"])
    chat = asking(inputs=1, size="1536x1024", input_fidelity="high")
    fields = read_form(stability.write_request(chat, asked), stability.headers(chat, asked)["Content-Type"])
    assert [(field.name, field.data) for field in fields] == [
        ("prompt", b"a cat"),
        ("model", b"upstream-model"),
        ("mode", b"image-to-image"),
        ("image", PNG),
        ("strength", b"0.35"),
    ]
    assert asked.dropped_fields == [DroppedField("size", "this model's edits have the shape of the image")]
    plain = target(**facts, takes=[])
    chat = asking(inputs=1, output_format="webp")
    fields = read_form(stability.write_request(chat, plain), stability.headers(chat, plain)["Content-Type"])
    assert [field.name for field in fields] == ["prompt", "image", "strength", "output_format"]
    assert (fields[2].data, plain.dropped_fields) == (b"0.65", [])


def test_dashscope_gets_a_chat_and_gives_addresses() -> None:
    chat = asking(n=2, size="1536x1024")
    asked = target(dialect="dashscope")
    url = "https://dash.example/api/v1/services/aigc/multimodal-generation/generation"
    assert dashscope.url("https://dash.example/compatible-mode/v1", chat, asked) == url
    assert json.loads(dashscope.write_request(chat, asked)) == {
        "model": "upstream-model",
        "input": {"messages": [{"role": "user", "content": [{"text": "a cat"}]}]},
        "parameters": {"n": 2, "watermark": False, "size": "1536*1024"},
    }
    content = [{"image": "https://x.example/1"}, {"text": "?"}]
    body = {"output": {"choices": [{"message": {"content": content}}]}, "code": "", "message": "", "request_id": "1"}
    assert list(dashscope.read_reply(json.dumps(body).encode())) == [
        Started(),
        ImageMade(url="https://x.example/1"),
        Finished(reason="stop"),
        UsageReported(usage=Usage(images=1)),
    ]
    refused = b'{"code": "DataInspectionFailed", "message": "Not allowed", "request_id": "1"}'
    assert [told(event) for event in dashscope.read_reply(refused)] == [("Failed", 502, "DataInspectionFailed")]


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("body", [b"", b"<html>", b"null", b"[]", b"{}", b'{"data": 7}', b'{"output": {"choices": 7}}'])
def test_an_answer_that_cannot_be_read_is_a_failure(dialect: Any, body: bytes) -> None:
    assert [told(event) for event in dialect.read_reply(body)] == [("Failed", 502, "upstream_broken")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "usage", "output", "choices", "message", "content", "image", "b64_json", "url", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("dialect", FORMATS.values(), ids=FORMATS)
@given(value=json_values)
def test_no_answer_is_too_strange_to_be_read(dialect: Any, value: Any) -> None:
    for event in dialect.read_reply(json.dumps(value).encode()):
        assert isinstance(event, Event)


@pytest.mark.parametrize(
    ("asked", "facts", "shape"),
    [
        ({"size": "1536x1024"}, {"sizes": ["1536x1024"]}, ("size", "1536x1024", True)),
        ({"size": "1536x1025"}, {"sizes": ["1536x1024"]}, None),
        ({"size": "640x480"}, {"takes": ["any_size"]}, ("size", "640x480", True)),
        ({"aspect_ratio": "3:2"}, {"sizes": ["1024x1024", "1536x1024"]}, ("size", "1536x1024", True)),
        ({"aspect_ratio": "6:4"}, {"sizes": ["1536x1024"]}, ("size", "1536x1024", True)),
        ({"aspect_ratio": "16:9"}, {"sizes": ["1024x1024"]}, None),
        ({"aspect_ratio": "16:9"}, {"sizes": ["1024x1024"], "takes": ["any_size"]}, ("size", "1536x864", True)),
        ({"aspect_ratio": "7:4"}, {"takes": ["any_size"]}, ("size", "1456x832", True)),
        ({"aspect_ratio": "4:1"}, {"takes": ["any_size"]}, None),
        ({"aspect_ratio": "997:991"}, {"takes": ["any_size"]}, None),
        ({"aspect_ratio": "19.5:9"}, {"aspect_ratios": ["1:1", "19.5:9"]}, ("aspect_ratio", "19.5:9", True)),
        ({"aspect_ratio": "7:4"}, {"aspect_ratios": ["1:1"], "takes": ["any_size"]}, None),
        ({"size": "1024x1024"}, {"aspect_ratios": ["1:1"]}, ("aspect_ratio", "1:1", False)),
        ({"size": "832x1248"}, {"aspect_ratios": ["3:4", "2:3"], "sizes": ["832x1248"]}, ("aspect_ratio", "2:3", True)),
        ({"size": "864x1184"}, {"aspect_ratios": ["3:4", "2:3"], "sizes": ["864x1184"]}, ("aspect_ratio", "3:4", True)),
        ({"size": "1792x1024"}, {"aspect_ratios": ["16:9", "3:2"]}, None),
        ({"size": "512x512"}, {}, None),
    ],
)
def test_how_a_model_is_told_the_shape(asked: dict[str, Any], facts: dict[str, Any], shape: Any) -> None:
    model = ImageCapabilities(
        dialect="openai",
        sizes=tuple(facts.get("sizes", ())),
        aspect_ratios=tuple(facts.get("aspect_ratios", ())),
        takes=frozenset(facts.get("takes", ())),
    )
    assert shape_of(ImageRequest(**asked), model) == shape


def test_a_request_without_wishes_needs_nothing() -> None:
    assert (
        needs_of(asking(quality="standard", background="opaque", style="vivid"), ImageRequest(quality="standard")) == []
    )


def test_a_chat_about_pictures_keeps_the_messages_and_says_what_it_can() -> None:
    asked = target(dialect="chat", takes=["resolution", "seed"], aspect_ratios=["3:2"], sizes=[], qualities=[])
    chat = asking(inputs=1, aspect_ratio="3:2", resolution="2K", user="u-1", style="vivid")
    chat.seed = 7
    written = prepare_for_target(chat, asked)
    assert written.messages == chat.messages
    assert (written.image_request, written.modalities, written.n, written.user) == (None, ["text", "image"], None, None)
    assert written.image_config == {"aspect_ratio": "3:2", "image_size": "2K", "seed": 7}
    assert [dropped.param for dropped in asked.dropped_fields] == ["style", "user"]
