"""How clients come in, over real HTTP: forms of paths, places of keys, codings of bodies, upgrades, browsers."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import struct
import zlib
from typing import Any
from uuid import uuid4

import anthropic
import openai
import pytest
import zstandard

from tests.stack.product import Product

pytestmark = pytest.mark.stack

CHAT = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}
PAGE = "https://app.example.com"
JSON = {"content-type": "application/json"}


class Reply:
    """A response; headers by their names in lower case."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.content = response.read()

    def json(self) -> Any:
        """Return the body."""
        return json.loads(self.content)


def ask(product: Product, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
    """Ask with nothing but these headers; the path goes out as it stands here."""
    connection = http.client.HTTPConnection("127.0.0.1", product.port, timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        return Reply(connection.getresponse())
    finally:
        connection.close()


def post(product: Product, path: str, body: bytes | None = None, **headers: str) -> Reply:
    """Ask for a chat with the demo key."""
    sent = {"authorization": f"Bearer {product.demo['apiKey']}", "content_type": "application/json", **headers}
    return ask(product, "POST", path, json.dumps(CHAT).encode() if body is None else body, **sent)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/chat/completions",
        "/api/v1/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat/completions/",
        "//v1//chat/completions",
        "/openai/v1/chat/completions?api-version=preview",
        "/openai/deployments/sandbox%2Fecho/chat/completions?api-version=2024-10-21",
    ],
)
def test_every_form_of_the_path_leads_to_a_chat(product: Product, path: str) -> None:
    reply = post(product, path)
    assert (reply.status, reply.json()["choices"][0]["message"]["content"]) == (200, "You said: hi")


def test_every_form_of_the_path_counts_against_the_same_rate_and_is_logged_as_one_route(product: Product) -> None:
    request_ids = [uuid4().hex for _ in range(2)]
    limits = {
        post(product, path, x_request_id=request_id).headers["ratelimit-limit"]
        for path, request_id in zip(("/v1/chat/completions", "//api//v1/chat/completions/"), request_ids, strict=True)
    }
    assert len(limits) == 1
    assert [product.log_of(request_id)["usedModel"] for request_id in request_ids] == ["echo", "echo"]


@pytest.mark.parametrize("body", [{**CHAT, "model": "nobody"}, {"messages": CHAT["messages"]}])
def test_the_deployment_of_a_path_is_the_model(product: Product, body: dict[str, Any]) -> None:
    path = "/openai/deployments/echo/chat/completions?api-version=2024-10-21"
    reply = post(product, path, json.dumps(body).encode())
    assert (reply.status, reply.json()["model"]) == (200, "echo")
    wrong = post(product, path.replace("echo", "no%2Fbody"), json.dumps(body).encode())
    assert (wrong.status, wrong.json()["error"]["code"]) == (400, "model_not_found")
    assert "no/body" in wrong.json()["message"]
    broken = post(product, path, b"[]")
    assert (broken.status, broken.json()["error"]["type"]) == (400, "invalid_request_error")


def test_sdks_of_azure_and_of_base_urls_that_end_otherwise(product: Product) -> None:
    key = product.demo["apiKey"]
    for url in (product.url, f"{product.url}/api/v1/", f"{product.url}/v1/v1"):
        client = openai.OpenAI(base_url=url, api_key=key, max_retries=0)
        reply = client.chat.completions.create(model="sandbox/echo", messages=[{"role": "user", "content": "hi"}])
        assert reply.choices[0].message.content == "You said: hi"
    azure = openai.AzureOpenAI(azure_endpoint=product.url, api_key=key, api_version="2024-10-21", max_retries=0)
    answered = azure.chat.completions.create(model="sandbox/echo", messages=[{"role": "user", "content": "hi"}])
    assert answered.choices[0].message.content == "You said: hi"
    claude = anthropic.Anthropic(base_url=f"{product.url}/v1", api_key=key, max_retries=0)
    message = claude.messages.create(model="sandbox/echo", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert message.content[0].text == "You said: hi"


@pytest.mark.parametrize("name", ["x-api-key", "api-key", "x-goog-api-key"])
def test_a_key_is_taken_from_every_header_that_clients_use(product: Product, name: str) -> None:
    body, key = json.dumps(CHAT).encode(), product.demo["apiKey"]
    assert ask(product, "POST", "/v1/chat/completions", body, **JSON, **{name: key}).status == 200
    wrong = ask(product, "POST", "/v1/chat/completions", body, **JSON, **{name: key[:-1]})
    assert (wrong.status, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
    assert wrong.headers["x-should-retry"] == "false"
    both = ask(product, "POST", "/v1/chat/completions", body, **JSON, **{name: key, "authorization": "Bearer other"})
    assert (both.status, both.json()["message"]) == (401, f"The headers Authorization and {name} carry different keys")
    assert ask(product, "GET", "/v1/models", **{name: "wrong"}).status == 401


def test_a_key_in_the_query_is_none_where_google_does_not_ask(product: Product) -> None:
    key = product.demo["apiKey"]
    assert ask(product, "POST", f"/v1/chat/completions?key={key}", json.dumps(CHAT).encode(), **JSON).status == 401


GOOGLES_PATHS = [
    "/v1beta/models/sandbox/echo:generateContent",
    "/v1beta/sandbox/echo:generateContent",
    "/v1/models/sandbox/echo:generateContent",
    "/models/sandbox/echo:generateContent",
    "/v1beta1/publishers/google/models/sandbox/echo:generateContent",
]


@pytest.mark.parametrize("path", GOOGLES_PATHS)
def test_a_large_body_is_read_with_googles_key_in_the_query_and_not_without(product: Product, path: str) -> None:
    def sized(size: int) -> bytes:
        return json.dumps({"contents": [{"parts": [{"text": "x" * size}]}]}).encode()

    query = f"?key={product.demo['apiKey']}"
    # The product's limit is 200,000 bytes; what has more than 65,536 is looked at before it is read.
    answer = ask(product, "POST", path + query, sized(150_000), **JSON)
    assert answer.status == 200, answer.content
    assert answer.json()["candidates"][0]["content"]["parts"] == [{"text": f"You said: {'x' * 150_000}"}]
    for bad_path, size, status, word in (
        (path, 150_000, 401, "UNAUTHENTICATED"),
        (path + query[:-1], 150_000, 401, "UNAUTHENTICATED"),
        (path + query, 200_001, 413, "INVALID_ARGUMENT"),
    ):
        refused = ask(product, "POST", bad_path, sized(size), **JSON)
        assert (refused.status, refused.json()["error"]["status"]) == (status, word)


PACKED = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("coding", PACKED)
def test_a_packed_body_is_read(product: Product, coding: str) -> None:
    # The product's limit is 200,000 bytes.
    long = {**CHAT, "messages": [{"role": "user", "content": "x" * 150_000}]}
    for body in (CHAT, long):
        reply = post(
            product, "/v1/chat/completions", PACKED[coding](json.dumps(body).encode()), content_encoding=coding
        )
        said = reply.json()["choices"][0]["message"]["content"]
        assert (reply.status, said) == (200, f"You said: {body['messages'][0]['content']}")


@pytest.mark.parametrize(
    ("coding", "body", "status", "code"),
    [
        ("gzip", gzip.compress(b"a" * 200_001, mtime=0), 413, "request_too_large"),
        ("zstd", zstandard.compress(b"a" * 200_001), 413, "request_too_large"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-1], 400, "invalid_content_encoding"),
        ("zstd", b"{}", 400, "invalid_content_encoding"),
        ("deflate", b"{}", 400, "invalid_content_encoding"),
        ("br", b"{}", 415, "unsupported_media_type"),
        ("gzip, gzip", b"{}", 415, "unsupported_media_type"),
    ],
    ids=["gzip bomb", "zstd bomb", "cut gzip", "no zstd", "no deflate", "brotli", "twice"],
)
def test_a_body_that_cannot_be_unpacked_is_refused_by_name_and_nothing_is_recorded(
    product: Product, coding: str, body: bytes, status: int, code: str
) -> None:
    request_id = uuid4().hex
    reply = post(product, "/v1/chat/completions", body, content_encoding=coding, x_request_id=request_id)
    assert (reply.status, reply.json()["error"]["code"]) == (status, code)
    assert reply.headers["x-should-retry"] == "false"
    # The row of a request that was let in behind it comes after any that this one could have.
    later = uuid4().hex
    assert post(product, "/v1/chat/completions", x_request_id=later).status == 200
    product.log_of(later)
    assert [row for row in product.get("/logs", limit=100)["logs"] if row["requestId"] == request_id] == []


def test_models_are_packed_and_kept(product: Product) -> None:
    plain = ask(product, "GET", "/v1/models")
    packed = ask(product, "GET", "/v1/models", accept_encoding="gzip, br")
    assert (plain.status, packed.status, packed.headers["content-encoding"]) == (200, 200, "gzip")
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) * 10 < len(plain.content)
    assert plain.headers["etag"] != packed.headers["etag"]
    for first, coding in ((plain, "identity"), (packed, "gzip")):
        again = ask(product, "GET", "/v1/models", accept_encoding=coding, if_none_match=first.headers["etag"])
        assert (again.status, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert "content-length" not in again.headers
    assert ask(product, "GET", "/v1/models", if_none_match='"another"').status == 200


def test_other_long_answers_are_packed_where_that_is_asked_for(product: Product) -> None:
    plain, packed = (ask(product, "GET", "/openapi.json", accept_encoding=coding) for coding in ("identity", "gzip"))
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed.content) == plain.content
    short = ask(product, "GET", "/", accept_encoding="gzip")
    assert "content-encoding" not in short.headers


def test_anthropics_client_pages_through_all_models(product: Product) -> None:
    client = anthropic.Anthropic(base_url=product.url, api_key=product.demo["apiKey"], max_retries=0)
    page = client.models.list(limit=2)
    assert (len(page.data), page.has_more, page.last_id) == (2, True, page.data[1].id)
    every = [model.id for model in client.models.list(limit=100)]
    assert every == [model["id"] for model in product.get("/v1/models")["data"]]
    before = client.models.list(limit=2, before_id=every[5])
    assert ([model.id for model in before.data], before.has_more) == (every[3:5], True)
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.models.list(limit=2, after_id="nobody")
    assert refused.value.body["error"]["message"] == "after_id must be the id of a listed model"


def test_an_upgrade_to_http_2_is_answered_in_http_1_1(product: Product) -> None:
    upgrade = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAMAAABkAAQAoAAAAAIAAAAA"}
    for body in (CHAT, {**CHAT, "messages": [{"role": "user", "content": "x" * 150_000}]}):
        reply = post(product, "/v1/chat/completions", json.dumps(body).encode(), **upgrade)
        said = f"You said: {body['messages'][0]['content']}"
        assert (reply.status, reply.json()["choices"][0]["message"]["content"]) == (200, said)


def test_http_2_without_asking_is_told_that_it_is_not_spoken(product: Product) -> None:
    with socket.create_connection(("127.0.0.1", product.port), timeout=60) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">HBBBL", 0, 0, 4, 0, 0))
        answer = b""
        while data := client.recv(4_096):
            answer += data
    assert answer[:9] == struct.pack(">HBBBL", 0, 0, 4, 0, 0), "settings, which are empty"
    high, low, kind, flags, stream = struct.unpack(">HBBBL", answer[9:18])
    assert ((high << 8) + low, kind, flags, stream) == (len(answer) - 18, 7, 0, 0)
    assert struct.unpack(">LL", answer[18:26]) == (0, 0xD), "HTTP_1_1_REQUIRED"
    assert answer[26:].startswith(b"Only HTTP/1.1 is spoken here")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/v1/chat/completion",
            "There is nothing at this path; did you mean `/v1/chat/completions`?",
        ),
        ("/v1/message", "There is nothing at this path; did you mean `/v1/messages`?"),
        ("/v1/zzz", "There is nothing at this path"),
    ],
)
def test_an_unknown_path_names_those_near_it_in_words_that_sdks_read(product: Product, path: str, message: str) -> None:
    reply = post(product, path)
    detail = {"message": message, "type": "invalid_request_error", "param": None, "code": "not_found"}
    assert (reply.status, reply.json()) == (404, {"error": detail, "status": 404, "message": message})
    claude = post(product, path, anthropic_version="2023-06-01")
    assert claude.json()["error"] == {"type": "not_found_error", "message": message}


def test_a_page_that_the_deployment_names_may_call_from_a_browser(product: Product) -> None:
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,content-type"}
    before = ask(product, "OPTIONS", "/v1/chat/completions", origin=PAGE, **asked)
    assert (before.status, before.headers["access-control-allow-origin"]) == (204, PAGE)
    reply = post(product, "/v1/chat/completions", origin=PAGE)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, PAGE)
    foreign = ask(product, "OPTIONS", "/v1/chat/completions", origin="https://evil.example.com", **asked)
    assert (foreign.status, foreign.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in foreign.headers
