"""Refused image requests: nothing is called, held or recorded (sections 4.9 and 7)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.image_requests import generate
from tests.support.upstream import Caller, nothing_happened


@pytest.mark.parametrize(
    ("fields", "param", "name"),
    [
        ({"size": "512x512"}, "size", "size 512x512"),
        ({"aspect_ratio": "7:4"}, "aspect_ratio", "aspect ratio 7:4"),
        ({"quality": "hd"}, "quality", "quality hd"),
        ({"image_config": {"image_size": "4K"}}, "image_config.image_size", "image size 4K"),
        ({"model": "sketcher", "quality": "high"}, "quality", "quality high"),
        ({"model": "sketcher", "background": "transparent"}, "background", "a transparent background"),
        ({"model": "sketcher", "output_format": "webp"}, "output_format", "output format webp"),
        ({"model": "sketcher", "size": "1792x1024"}, "size", "size 1792x1024"),
    ],
)
def test_a_feature_that_the_model_lacks_is_400_naming_it(
    caller: Caller, fields: dict[str, Any], param: str, name: str
) -> None:
    response = generate(caller, **fields)
    model = fields.get("model", "painter")
    assert response.status_code == 400
    assert response.json()["error"] == {
        "message": f"{model} does not support {name}",
        "type": "invalid_request_error",
        "param": param,
        "code": "unsupported_feature",
    }
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prompt": None}, "prompt: Required"),
        ({"prompt": ""}, "prompt: must not be empty"),
        ({"prompt": ["a"]}, "prompt: must be a string"),
        ({"n": 0}, "n: must be between 1 and 10"),
        ({"n": 11}, "n: must be between 1 and 10"),
        ({"n": 1.5}, "n: must be an integer"),
        ({"n": 10**30}, "n: must be between 1 and 10"),
        ({"n": 2, "image_config": {"n": 3}}, "n: contradicts image_config.n"),
        ({"size": "huge"}, "size: must be auto or WIDTHxHEIGHT, such as 1024x1024"),
        ({"size": "0x0"}, "size: must be auto or WIDTHxHEIGHT, such as 1024x1024"),
        ({"aspect_ratio": "wide"}, "aspect_ratio: must be WIDTH:HEIGHT, such as 16:9"),
        ({"aspect_ratio": "16:0"}, "aspect_ratio: must be WIDTH:HEIGHT, such as 16:9"),
        ({"quality": "best"}, "quality: must be one of standard, hd, low, medium, high, xhigh, max, auto"),
        ({"style": "bold"}, "style: must be one of vivid, natural"),
        (
            {"response_format": "url"},
            "response_format: must be b64_json; for links to the images, set image_links to true",
        ),
        ({"image_links": "yes"}, "image_links: must be true or false"),
        ({"background": "red"}, "background: must be one of transparent, opaque, auto"),
        ({"output_format": "gif"}, "output_format: must be one of png, jpeg, webp"),
        ({"output_compression": 101}, "output_compression: must be between 0 and 100"),
        ({"output_compression": -1}, "output_compression: must be between 0 and 100"),
        ({"moderation": "none"}, "moderation: must be one of low, auto"),
        ({"model": 7}, "model: must be a string"),
        ({"user": 7}, "user: must be a string"),
        ({"image_config": []}, "image_config: must be an object"),
        ({"image_config": {"aspect_ratio": "x"}}, "image_config.aspect_ratio: must be WIDTH:HEIGHT, such as 16:9"),
    ],
)
def test_a_field_out_of_its_range_is_named(caller: Caller, fields: dict[str, Any], problem: str) -> None:
    response = generate(caller, **{"prompt": "a cat", **fields})
    assert response.status_code == 400
    message = f"Invalid request parameters: {problem}"
    assert response.json() == {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": problem.partition(":")[0],
            "code": "invalid_parameters",
        },
        "status": 400,
        "message": message,
    }
    assert nothing_happened(caller)


@pytest.mark.parametrize("model", ["echo", "sandbox/echo", "text-embedding-3-small"])
def test_a_model_that_makes_no_images_is_400(caller: Caller, model: str) -> None:
    response = generate(caller, model=model)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
    assert response.json()["error"]["code"] == "unsupported_feature"
    assert nothing_happened(caller)


def test_an_unknown_model_is_400(caller: Caller) -> None:
    response = generate(caller, model="painted")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "model_not_found")
    assert nothing_happened(caller)
