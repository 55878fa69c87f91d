"""OpenAI's own client against the running product: pictures made and changed."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import closing
from http.client import HTTPConnection
from io import BytesIO
from uuid import uuid4

import openai
import pytest
import requests

from tests.stack.product import Product, eventually
from tests.support.image_requests import MASK, OTHER, PNG, size_of

pytestmark = pytest.mark.stack


@pytest.fixture
def client(product: Product) -> openai.OpenAI:
    """The official client, told where the product is and nothing else; it does not repeat itself."""
    return openai.OpenAI(base_url=f"{product.url}/v1", api_key=product.demo["apiKey"], max_retries=0)


def file(name: str, data: bytes) -> tuple[str, BytesIO, str]:
    """Return a file as the client takes it."""
    return name, BytesIO(data), "image/png"


def test_images_generate(client: openai.OpenAI, product: Product) -> None:
    name = f"images-{uuid4().hex}"
    made = client.images.generate(
        model="painter",
        prompt="a cat",
        n=2,
        size="1536x1024",
        quality="high",
        response_format="b64_json",
        extra_headers={"x-request-id": name},
    )
    assert made.data is not None
    assert made.usage is not None
    assert [size_of(image.b64_json or "") for image in made.data] == [(1536, 1024)] * 2
    assert (made.size, made.quality, made.usage.output_tokens) == ("1536x1024", "medium", 2112)
    log = product.log_of(name)
    assert (log["usedModel"], log["usedProvider"], log["imageOutputTokens"]) == ("painter", "sandbox", "2112")
    assert (log["cost"], log["imageOutputCost"]) == (0.0669606, 0.0669504)


def test_images_edit_with_several_files_and_a_mask(client: openai.OpenAI, product: Product) -> None:
    name = f"edits-{uuid4().hex}"
    made = client.images.edit(
        model="painter",
        image=[file("one.png", PNG), file("two.png", OTHER)],
        mask=file("mask.png", MASK),
        prompt="a hat",
        n=2,
        size="1024x1536",
        input_fidelity="high",
        output_format="png",
        extra_headers={"x-request-id": name},
    )
    assert made.data is not None
    assert made.usage is not None
    assert [size_of(image.b64_json or "") for image in made.data] == [(1024, 1536)] * 2
    assert made.data[0].revised_prompt == "You said: a hat (2 images, 1 mask)"
    assert made.usage.input_tokens_details.image_tokens == 255
    log = product.log_of(name)
    assert (log["imageInputTokens"], log["imageOutputTokens"]) == ("255", "2112")
    # 2 tokens at 5.1, 255 at 8.3, 2,112 at 31.7 USD per million.
    assert log["cost"] == 0.0690771


def test_images_edit_with_one_file_by_a_model_that_draws_in_chats(client: openai.OpenAI) -> None:
    made = client.images.edit(model="sketcher", image=BytesIO(PNG), prompt="a hat", extra_body={"aspect_ratio": "3:2"})
    assert made.data is not None
    assert size_of(made.data[0].b64_json or "") == (48, 32)


def test_images_stream_with_unfinished_ones_ahead(client: openai.OpenAI, product: Product) -> None:
    name = f"images-{uuid4().hex}"
    stream = client.images.generate(
        model="painter", prompt="a cat", stream=True, partial_images=2, extra_headers={"x-request-id": name}
    )
    *partial, last = list(stream)
    assert [(event.type, getattr(event, "partial_image_index", None)) for event in partial] == [
        ("image_generation.partial_image", 0),
        ("image_generation.partial_image", 1),
    ]
    assert last.type == "image_generation.completed"
    assert size_of(last.b64_json) == (1024, 1024)
    assert (last.output_format, last.quality, last.usage.output_tokens) == ("png", "medium", 1_256)
    assert product.log_of(name)["imageOutputTokens"] == "1256"


def test_edits_stream(client: openai.OpenAI) -> None:
    stream = client.images.edit(
        model="painter", image=file("one.png", PNG), prompt="a hat", stream=True, partial_images=1
    )
    events = list(stream)
    assert [event.type for event in events] == ["image_edit.partial_image", "image_edit.completed"]
    assert {type(event).__name__ for event in events} == {"ImageEditPartialImageEvent", "ImageEditCompletedEvent"}


def test_an_error_within_a_stream_is_raised(client: openai.OpenAI) -> None:
    stream = client.images.generate(model="painter", prompt="a cat [[sandbox error=1]]", stream=True, partial_images=1)
    with pytest.raises(openai.APIError, match="The server had an error"):
        list(stream)


def test_links_lead_to_the_images(keeping_product: Product) -> None:
    client = openai.OpenAI(base_url=f"{keeping_product.url}/v1", api_key=keeping_product.demo["apiKey"], max_retries=0)
    made = client.images.generate(model="painter", prompt="a cat", n=2, extra_body={"image_links": True})
    assert made.data is not None
    for image in made.data:
        assert image.b64_json is None
        answer = requests.get(image.url or "", timeout=60)
        assert (answer.status_code, answer.content[:4]) == (200, b"\x89PNG")
        assert answer.headers["Cache-Control"].startswith("private, max-age=35")
        assert (answer.headers["X-Content-Type-Options"], answer.headers["Content-Type"]) == ("nosniff", "image/png")
    assert requests.get(f"{made.data[0].url}0", timeout=60).status_code == 401


def test_no_links_where_nothing_is_kept(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(model="painter", prompt="a cat", extra_body={"image_links": True})
    assert (caught.value.param, caught.value.code) == ("image_links", "zero_data_retention")


def test_more_images_than_a_call_makes(client: openai.OpenAI) -> None:
    made = client.images.generate(model="sketcher", prompt="a cat", n=3)
    assert made.data is not None
    assert [size_of(image.b64_json or "") for image in made.data] == [(64, 64)] * 3


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(model="painter", prompt="a cat", n=11)
    assert (caught.value.param, caught.value.code) == ("n", "invalid_parameters")
    assert "Invalid request parameters: n: must be between 1 and 10" in caught.value.message
    with pytest.raises(openai.BadRequestError) as lacking:
        client.images.edit(model="sketcher", image=PNG, mask=MASK, prompt="a hat")
    assert (lacking.value.param, lacking.value.code) == ("mask", "unsupported_feature")


def test_a_model_that_draws_streams_its_picture_in_a_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="sketcher", messages=[{"role": "user", "content": "a cat"}], modalities=["text", "image"], stream=True
    )
    deltas = [choice.delta.model_dump() for chunk in stream for choice in chunk.choices]
    (images,) = [delta["images"] for delta in deltas if delta.get("images")]
    assert images[0]["type"] == "image_url"
    head, _, data = images[0]["image_url"]["url"].partition(",")
    assert (head, b64decode(data)[:4]) == ("data:image/png;base64", b"\x89PNG")
    assert "".join(delta["content"] or "" for delta in deltas) == "You said: a cat"


def test_a_client_that_leaves_is_noticed_and_pays_nothing(product: Product) -> None:
    name, tag = f"gone-{uuid4().hex}", uuid4().hex
    headers = {
        "Authorization": f"Bearer {product.demo['apiKey']}",
        "Content-Type": "application/json",
        "x-request-id": name,
    }
    body = {"model": "painter", "prompt": f"a cat [[sandbox hang=head tag={tag}]]"}
    with closing(HTTPConnection("127.0.0.1", product.port)) as client:
        client.request("POST", "/v1/images/generations", json.dumps(body), headers)
        eventually(lambda: product.sandbox("GET", "/sandbox/requests", tag=tag)["requests"])
    log = product.log_of(name)
    assert (log["canceled"], log["unifiedFinishReason"], log["cost"]) == (True, "canceled", 0)
    (asked,) = product.sandbox("GET", "/sandbox/requests", tag=tag)["requests"]
    assert asked["outcome"] == "client_closed"
