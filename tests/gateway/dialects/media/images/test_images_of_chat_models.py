"""Models that draw when they are chatted to, through Google's format, and pictures that a provider leaves somewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.image_requests import PNG, data_url, edit, generate, size_of
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

IMAGE = "gemini-2.5-flash-image"


@pytest.fixture
def gemini(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, with Google's provider of the catalog at the sandbox, which calls that model `sketcher`."""
    monkeypatch.setenv("GEMINI_API_KEY", "gemini-secret")
    monkeypatch.setenv("GOOGLE_API_KEY", "gemini-secret")
    monkeypatch.setenv("GOOGLE_BASE_URL", f"{caller.sandbox_url}/v1beta")
    ModelProvider.objects.filter(provider_id="google", model_id=IMAGE).update(model_name="sketcher")
    generation.bump(generation.CATALOG)
    policy.forget_all()
    return caller


def test_a_request_for_pictures_becomes_a_chat_in_googles_format(gemini: Caller) -> None:
    tag = uuid4().hex
    response = generate(gemini, f"a dog [[sandbox tag={tag}]]", model=f"google/{IMAGE}", aspect_ratio="16:9")
    assert response.status_code == 200, response.content
    assert size_of(response.json()["data"][0]["b64_json"]) == (256, 144)
    (sent,) = gemini.sent(tag)
    assert sent["path"] == "/v1beta/models/sketcher:generateContent"
    assert sent["body"]["generationConfig"] == {
        "responseModalities": ["TEXT", "IMAGE"],
        "imageConfig": {"aspectRatio": "16:9"},
    }
    settle_all()
    row = RequestLog.objects.get()
    assert (row.route, row.image_output_tokens, row.completion_tokens) == ("images_generations", 1056, 1060)
    # 1,056 tokens at 30 USD per million, and not 0.039 for the piece beside them.
    assert row.image_output_cost == Decimal("0.03168")


def test_an_edit_brings_the_pictures_as_parts(gemini: Caller) -> None:
    tag = uuid4().hex
    response = edit(gemini, f"a hat [[sandbox tag={tag}]]", model=f"google/{IMAGE}", size="1248x832")
    assert (response.status_code, response.has_header("x-gateway-loss")) == (200, False), response.content
    (sent,) = gemini.sent(tag)
    first, second = sent["body"]["contents"][0]["parts"]
    assert first == {"inlineData": {"mimeType": "image/png", "data": data_url(PNG).partition(",")[2]}}
    assert second["text"].startswith("a hat")
    assert sent["body"]["generationConfig"]["imageConfig"] == {"aspectRatio": "3:2"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"quality": "hd"}, "quality"), ({"aspect_ratio": "7:4"}, "aspect_ratio")],
)
def test_what_it_cannot_do_is_named(gemini: Caller, fields: dict[str, Any], param: str) -> None:
    response = generate(gemini, model=f"google/{IMAGE}", **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert nothing_happened(gemini)


def test_it_can_be_chatted_to_and_answers_with_images(gemini: Caller) -> None:
    response = gemini.chat("a dog", model=f"google/{IMAGE}", image_config={"aspect_ratio": "3:2"})
    assert response.status_code == 200, response.content
    body = response.json()
    (image,) = body["choices"][0]["message"]["images"]
    assert size_of(image["image_url"]["url"].removeprefix("data:image/png;base64,")) == (48, 32)
    assert body["usage"]["completion_tokens_details"]["image_tokens"] == 1056
    assert body["usage"]["cost_usd_image_output"] == 0.03168


def test_it_streams_its_image_once_it_is_complete(gemini: Caller) -> None:
    chunks = chunks_of(gemini.chat("a dog", model=f"google/{IMAGE}", stream=True))
    deltas = [choice["delta"] for chunk in chunks[:-1] for choice in chunk["choices"]]
    assert [len(delta["images"]) for delta in deltas if "images" in delta] == [1]
    settle_all()
    assert RequestLog.objects.get().image_output_cost == Decimal("0.03168")


def test_a_model_with_an_api_for_images_alone_cannot_be_chatted_to(caller: Caller) -> None:
    response = caller.chat("a dog", model="painter")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_feature")
    assert response.json()["message"] == (
        "painter is an image generation model, not a chat model; ask for it at /v1/images/generations"
    )
    assert nothing_happened(caller)


def test_a_chat_with_a_model_that_draws_reserves_a_picture(caller: Caller) -> None:
    """6,240 tokens at 29.9 USD per million."""
    Organization.objects.update(credits=Decimal("0.18"))
    policy.forget_all()
    response = caller.chat("a dog", model="sketcher", max_tokens=10)
    assert (response.status_code, response.json()["error"]["code"]) == (402, "insufficient_credits")
    assert nothing_happened(caller)


class Studio(BaseHTTPRequestHandler):
    """A provider that leaves its pictures at addresses, and the place where they lie."""

    seen: list[dict[str, Any]]

    def do_POST(self) -> None:
        """Answer with the address of a picture, after the model's name."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        address = f"http://127.0.0.1:{self.server.server_address[1]}/{body['model']}"
        self._answer(200, json.dumps({"created": 1, "data": [{"url": address}]}).encode())

    def do_GET(self) -> None:
        """Hand a picture out, or not."""
        self._answer(200 if "there" in self.path else 404, PNG)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def studio(caller: Caller, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[type[Studio]]:
    """That provider, as the only one of `painter-flat`."""
    Studio.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Studio) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("STUDIO_API_KEY", "studio-secret")
        monkeypatch.setenv("STUDIO_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        Provider.objects.create(
            id="studio",
            name="Studio",
            dialect="openai",
            auth="bearer",
            base_url="http://x",
            api_key_env="STUDIO_API_KEY",
        )
        ModelProvider.objects.filter(provider_id="sandbox", model_id="painter-flat").update(
            provider_id="studio",
            model_name="there",
            facts={"images": {"dialect": "openai", "takes": ["response_format"], "aspect_ratios": ["1:1", "3:2"]}},
        )
        generation.bump(generation.CATALOG)
        yield Studio
        server.shutdown()


def test_a_picture_that_a_provider_leaves_somewhere_is_brought(
    caller: Caller, studio: type[Studio], settings: Any
) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    response = generate(caller, "a cat", model="painter-flat", aspect_ratio="3:2")
    assert response.status_code == 200, response.content
    assert response.json() == {"created": 1, "data": [{"b64_json": data_url(PNG).partition(",")[2]}]}
    assert studio.seen == [
        {"model": "there", "prompt": "a cat", "response_format": "b64_json", "aspect_ratio": "3:2"},
    ]
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("0.0123")


def test_a_provider_cannot_make_the_gateway_call_the_inside(caller: Caller, studio: type[Studio]) -> None:
    response = generate(caller, model="painter-flat")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "all_providers_failed")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, row.has_error) == (Decimal(0), True)


def test_a_picture_that_is_not_there_is_a_failure_and_free(caller: Caller, studio: type[Studio], settings: Any) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    ModelProvider.objects.filter(provider_id="studio").update(model_name="gone")
    generation.bump(generation.CATALOG)
    response = generate(caller, model="painter-flat")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "all_providers_failed")
    assert "an image that it made cannot be fetched: it answered with status 404" in response.json()["message"]
    settle_all()
    assert RequestLog.objects.get().cost == Decimal(0)
