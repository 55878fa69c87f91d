"""Image editing, in JSON and as forms, through the whole pipeline and real HTTP (section 4.10)."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import responses

from apps.logs.models import RequestLog
from tests.support.image_requests import MASK, OTHER, PNG, data_url, edit, edit_form, send_form, size_of
from tests.support.upstream import Caller, nothing_happened, settle_all

# An address that is public, so that the guard lets it pass without a look-up; nothing is sent there.
ADDRESS = "https://93.184.215.14/cat.png"


def test_the_answer_is_shaped_as_decided_and_says_what_was_used(caller: Caller) -> None:
    response = edit(caller, "a hat", images=[{"image_url": data_url(PNG)}, {"image_url": data_url(OTHER)}])
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["created"] == 1767225600
    assert [set(image) for image in body["data"]] == [{"b64_json", "revised_prompt"}]
    assert size_of(body["data"][0]["b64_json"]) == (1024, 1024)
    echoed = {name: body[name] for name in ("background", "output_format", "quality", "size")}
    assert echoed == {"background": "opaque", "output_format": "png", "quality": "medium", "size": "1024x1024"}
    assert body["usage"]["input_tokens_details"] == {"text_tokens": 2, "image_tokens": 170}
    assert body["usage"]["total_tokens"] == 1228


def test_it_is_recorded_and_charged_once_inputs_included(caller: Caller) -> None:
    edit(caller, "a hat", images=[{"image_url": data_url(PNG)}, {"image_url": data_url(OTHER)}])
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.image_input_tokens, row.image_output_tokens) == ("images_edits", 170, 1056)
    # 2 tokens at 5.1, 170 at 8.3, 1,056 at 31.7 USD per million.
    assert (row.input_cost, row.image_input_cost) == (Decimal("0.0000102"), Decimal("0.001411"))
    assert (row.image_output_cost, row.cost) == (Decimal("0.0334752"), Decimal("0.0348964"))


def test_the_provider_is_sent_a_form_with_everything_asked(caller: Caller) -> None:
    tag = uuid4().hex
    prompt = f"a hat [[sandbox tag={tag}]]"
    response = edit(
        caller,
        prompt,
        mask={"image_url": data_url(MASK)},
        n=2,
        background="transparent",
        input_fidelity="high",
        quality="low",
        size="1536x1024",
        output_format="webp",
        output_compression=50,
        user="u-1",
    )
    assert response.status_code == 200, response.content
    assert "a hat (1 image, 1 mask)" in response.json()["data"][0]["revised_prompt"]
    (sent,) = caller.sent(tag)
    assert sent["path"] == "/v1/images/edits"
    # The journal shows a form's body as text.
    text = str(sent["body"])
    fields = {
        "model": "painter",
        "prompt": prompt,
        "n": "2",
        "background": "transparent",
        "input_fidelity": "high",
        "quality": "low",
        "size": "1536x1024",
        "output_format": "webp",
        "output_compression": "50",
        "user": "u-1",
    }
    for name, value in fields.items():
        assert f'form-data; name="{name}"\r\n\r\n{value}\r\n' in text
    assert text.count("Content-Disposition") == len(fields) + 2
    assert 'name="image"; filename="image.png"\r\nContent-Type: image/png' in text
    assert 'name="mask"; filename="mask.png"' in text


@pytest.mark.parametrize("name", ["image", "image[]", "file"])
def test_a_form_names_its_pictures_in_three_ways(caller: Caller, name: str) -> None:
    response = edit_form(caller, (name, PNG), (name, OTHER), prompt="a hat")
    assert response.status_code == 200, response.content
    assert response.json()["data"][0]["revised_prompt"] == "You said: a hat (2 images)"


def test_a_form_says_what_json_says(caller: Caller) -> None:
    fields = {"n": "2", "size": "1536x1024", "quality": "low", "output_compression": "7", "stream": "false"}
    response = edit_form(caller, ("image", PNG), ("mask", MASK), prompt="a hat", **fields)
    assert response.status_code == 200, response.content
    assert [size_of(image["b64_json"]) for image in response.json()["data"]] == [(1536, 1024)] * 2
    assert response.json()["data"][0]["revised_prompt"] == "You said: a hat (1 image, 1 mask)"
    shaped = edit_form(caller, ("image", PNG), prompt="a hat", **{"image_config[aspect_ratio]": "2:3"})
    assert size_of(shaped.json()["data"][0]["b64_json"]) == (1024, 1536)


def test_a_model_that_draws_in_chats_gets_the_pictures_as_parts(caller: Caller) -> None:
    tag = uuid4().hex
    prompt = f"a hat [[sandbox tag={tag}]]"
    response = edit(
        caller, prompt, model="sketcher", images=[{"image_url": data_url(PNG)}, {"image_url": data_url(OTHER)}]
    )
    assert response.status_code == 200, response.content
    (sent,) = caller.sent(tag)
    assert sent["path"] == "/v1/chat/completions"
    assert sent["body"]["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": data_url(PNG)}},
                {"type": "image_url", "image_url": {"url": data_url(OTHER)}},
                {"type": "text", "text": prompt},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("fields", "param", "name"),
    [
        ({"model": "sketcher", "mask": {"image_url": data_url(MASK)}}, "mask", "a mask"),
        ({"model": "sketcher", "images": [{"image_url": data_url(PNG)}] * 5}, "images", "5 images to work from"),
        ({"model": "painter-flat"}, "images", "image editing"),
        ({"size": "512x512"}, "size", "size 512x512"),
    ],
)
def test_a_feature_that_the_model_lacks_is_400_naming_it(
    caller: Caller, fields: dict[str, Any], param: str, name: str
) -> None:
    response = edit(caller, **fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_feature", param)
    assert error["message"] == f"{fields.get('model', 'painter')} does not support {name}"
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com/cat.png", "ftp://example.com/cat.png", "file:///etc/passwd", "cat.png", "https://", ""),
        *("data:image/png,abc", "data:text/plain;base64,YWJj", "data:image/png;base64,!!!!", "data:;base64,YWJj"),
        *("data:image/png;base64,YWJ", 7, ["https://example.com"]),
    ],
)
def test_an_image_url_is_https_or_base64_data(caller: Caller, url: Any) -> None:
    response = edit(caller, images=[{"image_url": data_url(PNG)}, {"image_url": url}])
    message = "images[1].image_url must be an https URL or a base64 data URL"
    assert (response.status_code, response.json()["message"]) == (400, message)
    assert response.json()["error"]["param"] == "images[1].image_url"
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"images": None}, "images: Required"),
        ({"images": []}, "images: must hold 1 to 16 images"),
        ({"images": [{"image_url": data_url(PNG)}] * 17}, "images: must hold 1 to 16 images"),
        ({"images": {"image_url": "x"}}, "images: must be an array"),
        ({"images": ["x"]}, "images[0]: must be an object"),
        ({"images": [{"file_id": "file-1"}]}, "images[0].image_url: Required"),
        ({"mask": "x"}, "mask: must be an object"),
        ({"prompt": None}, "prompt: Required"),
        ({"n": 11}, "n: must be between 1 and 10"),
        ({"background": "red"}, "background: must be one of transparent, opaque, auto"),
        ({"input_fidelity": "full"}, "input_fidelity: must be one of high, low"),
        ({"output_format": "gif"}, "output_format: must be one of png, jpeg, webp"),
        ({"output_compression": 101}, "output_compression: must be between 0 and 100"),
    ],
)
def test_a_field_out_of_its_range_is_named(caller: Caller, fields: dict[str, Any], problem: str) -> None:
    response = edit(caller, **{"prompt": "a cat", **fields})
    message = f"Invalid request parameters: {problem}"
    assert (response.status_code, response.json()["message"]) == (400, message)
    assert response.json()["error"]["param"] == problem.rpartition(": ")[0].partition(": ")[0]
    assert nothing_happened(caller)


def test_data_of_another_kind_is_no_picture_whatever_it_is_called(caller: Caller) -> None:
    page = data_url(b"<svg onload=alert(1)>")
    response = edit(caller, images=[{"image_url": page}])
    assert response.status_code == 400
    assert response.json()["message"] == "images[0].image_url is invalid: it holds no PNG, JPEG, WebP or GIF image"
    assert nothing_happened(caller)


def test_the_type_of_a_picture_is_what_its_bytes_say(caller: Caller) -> None:
    tag = uuid4().hex
    wrong = data_url(PNG, "image/jpeg")
    spaced = wrong[:40] + "\n  " + wrong[40:]
    response = edit(caller, f"a hat [[sandbox tag={tag}]]", model="sketcher", images=[{"image_url": spaced}])
    assert response.status_code == 200, response.content
    (sent,) = caller.sent(tag)
    assert sent["body"]["messages"][0]["content"][0]["image_url"]["url"] == data_url(PNG)


@responses.activate(registry=responses.registries.OrderedRegistry)
def test_a_picture_at_an_address_is_fetched_and_sent_on_as_bytes(caller: Caller) -> None:
    responses.get(ADDRESS, body=PNG, content_type="text/html")
    responses.add_passthru(caller.sandbox_url)
    tag = uuid4().hex
    response = edit(caller, f"a hat [[sandbox tag={tag}]]", model="sketcher", images=[{"image_url": ADDRESS}])
    assert response.status_code == 200, response.content
    (sent,) = caller.sent(tag)
    assert sent["body"]["messages"][0]["content"][0]["image_url"]["url"] == data_url(PNG)
    # Nothing of the caller's goes there.
    headers = responses.calls[0].request.headers
    assert not {"authorization", "x-api-key", "cookie"} & {name.lower() for name in headers}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": 302, "headers": {"Location": "http://169.254.169.254/"}}, "it answered with status 302"),
        ({"status": 404}, "it answered with status 404"),
        ({"body": b"\x1f\x8b", "headers": {"Content-Encoding": "gzip"}}, "it is packed, which was not asked for"),
        ({"body": b"<html>"}, "it holds no PNG, JPEG, WebP or GIF image"),
        ({"body": PNG + bytes(20 * 1024 * 1024)}, "it is larger than 20971520 bytes"),
        ({"body": ConnectionError("secret address")}, "it could not be fetched"),
        ({"body": TimeoutError("late")}, "it could not be fetched"),
    ],
)
def test_a_picture_that_cannot_be_had_is_named_and_nothing_happens(
    caller: Caller, answer: dict[str, Any], why: str
) -> None:
    with responses.RequestsMock() as outside:
        outside.get(ADDRESS, **answer)
        response = edit(caller, images=[{"image_url": data_url(PNG)}, {"image_url": ADDRESS}])
        assert len(outside.calls) == 1
    assert (response.status_code, response.json()["message"]) == (400, f"images[1].image_url is invalid: {why}")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1/cat.png", "https://localhost/cat.png", "https://192.168.1.1/cat.png"),
        *("https://[::1]/cat.png", "https://10.0.0.1/cat.png", "https://2130706433/cat.png", "https://[fd00::1]/x"),
    ],
)
def test_an_address_of_the_inside_is_never_called(caller: Caller, url: str) -> None:
    with responses.RequestsMock() as outside:
        response = edit(caller, images=[{"image_url": url}])
        assert len(outside.calls) == 0
    why = "must not lead to a private, loopback or link-local address"
    assert (response.status_code, response.json()["message"]) == (400, f"images[0].image_url is invalid: {why}")
    assert nothing_happened(caller)


def test_a_clouds_metadata_is_never_called(caller: Caller) -> None:
    with responses.RequestsMock() as outside:
        response = edit(caller, images=[{"image_url": "https://169.254.169.254/latest/meta-data"}])
        assert len(outside.calls) == 0
    why = "must not lead to an address that clouds keep for their platform and its metadata"
    assert (response.status_code, response.json()["message"]) == (400, f"images[0].image_url is invalid: {why}")
    assert nothing_happened(caller)


def test_nobody_without_a_key_makes_the_gateway_fetch_anything(caller: Caller) -> None:
    with responses.RequestsMock() as outside:
        response = edit(caller, images=[{"image_url": ADDRESS}], headers={"Authorization": "Bearer gw_dev_nobody"})
        assert len(outside.calls) == 0
    assert response.status_code == 401


def test_other_content_types_are_415(caller: Caller) -> None:
    response = send_form(caller, b"prompt=a", "application/x-www-form-urlencoded")
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert nothing_happened(caller)


def test_a_body_over_the_limit_is_413(caller: Caller, settings: Any) -> None:
    settings.BODY_LIMIT = 1000
    big = b64encode(bytes(2000)).decode()
    for response in (edit(caller, user=big), edit_form(caller, ("image", PNG + bytes(2000)))):
        assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
    assert nothing_happened(caller)


def test_a_picture_may_hold_what_looks_like_a_boundary(caller: Caller) -> None:
    tag = uuid4().hex
    tricky = PNG + b'\r\n--another\r\nContent-Disposition: form-data; name="n"\r\n\r\n10\r\n--another--'
    response = edit_form(caller, ("image", tricky), prompt=f"a hat [[sandbox tag={tag}]]")
    assert response.status_code == 200, response.content
    assert len(response.json()["data"]) == 1
