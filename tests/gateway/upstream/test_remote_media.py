"""Pictures and documents by address, for providers that take only bytes: fetched safely, looked at, and put inline."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider, Provider
from apps.gateway.access import policy
from apps.gateway.canonical.chat import Chat, File, Image, Message, Source, Text, ToolResult
from apps.gateway.dialects.chat import anthropic, google, openai, vertex_anthropic
from apps.gateway.upstream import remote_media
from apps.gateway.upstream.remote_media import FetchTimeouts, RemoteMedia
from apps.kernel.errors import InvalidRequest
from apps.kernel.valkey import generation
from tests.support.upstream import Caller

OWNER = uuid4()
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
JPEG = b"\xff\xd8\xff\xe0" + b"picture"
PDF = b"%PDF-1.7 paper"
FILES: dict[str, tuple[int, str, bytes]] = {
    "/one.png": (200, "application/octet-stream", PNG),
    "/two.jpg": (200, "image/png", JPEG),
    "/three.pdf": (200, "application/pdf", PDF),
    "/four.csv": (200, "text/csv; charset=utf-8", b"a,b\n1,2\n"),
    "/page.png": (200, "image/png", b"<html>no picture</html>"),
    "/program": (200, "application/octet-stream", b"\x7fELF\x00\xff"),
    "/moved.png": (302, "text/plain", b""),
    "/packed.png": (200, "image/png", PNG),
    "/gone.png": (404, "text/plain", b"gone"),
    "/huge.png": (200, "image/png", PNG + b"x" * 5_000),
}


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    """The address of a web server with files on it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Files(BaseHTTPRequestHandler):
    """Hands the files out."""

    def do_GET(self) -> None:
        """Answer."""
        status, media_type, body = FILES.get(self.path.partition("@")[0], FILES["/gone.png"])
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/moved.png":
            self.send_header("Location", "/one.png")
        if self.path == "/packed.png":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def inside(settings: Any) -> None:
    """Let addresses of this machine pass."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True


def chat_with(*parts: Any) -> Chat:
    return Chat(
        model="m",
        messages=[
            Message(role="system", parts=[Text(text="s")]),
            Message(role="user", parts=[Text(text="look"), *parts]),
        ],
        source=Source(dialect="openai", body=b"{}"),
    )


def inlined(chat: Chat, dialect: Any = vertex_anthropic.PROVIDER, **facts: Any) -> Chat:
    return RemoteMedia(OWNER).inline(chat, dialect, facts)


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


@pytest.mark.usefixtures("inside")
def test_files_are_put_inline_as_what_they_are(files: str) -> None:
    chat = chat_with(
        Image(url=f"{files}/one.png", detail="low"),
        Image(url=f"{files}/two.jpg"),
        File(url=f"{files}/three.pdf", filename="paper.pdf"),
        File(url=f"{files}/four.csv"),
        Image(url="data:image/gif;base64,R0lG"),
    )
    again = inlined(chat)
    assert again.messages[1].parts == [
        Text(text="look"),
        Image(url=data_url("image/png", PNG), detail="low"),
        Image(url=data_url("image/jpeg", JPEG)),
        File(data=b64encode(PDF).decode(), media_type="application/pdf", filename="paper.pdf"),
        File(data=b64encode(b"a,b\n1,2\n").decode(), media_type="text/csv"),
        Image(url="data:image/gif;base64,R0lG"),
    ]
    assert again.source is None
    # The client's own chat is as it was: the next provider may take addresses.
    assert chat.source is not None
    assert chat.messages[1].parts[1] == Image(url=f"{files}/one.png", detail="low")


@pytest.mark.usefixtures("inside")
def test_what_a_tool_shows_is_put_inline_too(files: str) -> None:
    chat = chat_with(ToolResult(call_id="c", parts=[Text(text="see"), Image(url=f"{files}/one.png")]))
    [_, result] = inlined(chat).messages[1].parts
    assert result == ToolResult(call_id="c", parts=[Text(text="see"), Image(url=data_url("image/png", PNG))])


@pytest.mark.parametrize(
    "dialect", [openai.PROVIDER, anthropic.PROVIDER, google.PROVIDER], ids=["openai", "anthropic", "google"]
)
def test_a_format_that_takes_addresses_gets_them(dialect: Any) -> None:
    chat = chat_with(Image(url="https://pictures.example/one.png"))
    assert inlined(chat, dialect) is chat


def test_a_fact_goes_before_the_format() -> None:
    chat = chat_with(Image(url="https://127.0.0.1/one.png"))
    assert inlined(chat, vertex_anthropic.PROVIDER, media_urls=True) is chat
    with pytest.raises(InvalidRequest):
        inlined(chat, anthropic.PROVIDER, media_urls=False)


def test_a_chat_without_addresses_stays_as_it_is() -> None:
    chat = chat_with(Image(url="data:image/png;base64,AAAA"), File(file_id="f1"), Image(url="gs://b/x.png"))
    assert inlined(chat) is chat


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/gone.png", "answered with status 404"),
        ("/moved.png", "answered with status 302"),
        ("/packed.png", "packed"),
        ("/page.png", "neither an image"),
        ("/program", "neither an image"),
        ("/three.pdf", "no image"),
        ("/four.csv", "no image"),
    ],
)
@pytest.mark.usefixtures("inside")
def test_what_is_no_picture_is_refused_by_the_name_of_its_part(
    files: str, path: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRequest, match=why) as refusal:
        inlined(chat_with(Image(url="data:image/png;base64,AAAA"), Image(url=f"{files}{path}")))
    assert (refusal.value.status, refusal.value.param) == (400, "messages[1].content[2]")
    # The log does not show where it was.
    assert files not in capfd.readouterr().err


@pytest.mark.usefixtures("inside")
def test_a_file_beyond_the_size_is_refused(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_media, "MAX_BYTES", 4_000)
    with pytest.raises(InvalidRequest, match="larger than 4000 bytes"):
        inlined(chat_with(Image(url=f"{files}/huge.png")))


@pytest.mark.usefixtures("inside")
def test_files_beyond_the_size_together_are_refused(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_media, "MAX_TOTAL_BYTES", 8_000)
    with pytest.raises(InvalidRequest, match="together"):
        inlined(chat_with(*(Image(url=f"{files}/huge.png@{number}") for number in range(2))))


def test_more_than_so_many_are_refused_before_any_is_fetched() -> None:
    pictures = [Image(url=f"https://127.0.0.1/{number}.png") for number in range(remote_media.MAX_FILES + 1)]
    with pytest.raises(InvalidRequest, match="at most 20"):
        inlined(chat_with(*pictures))


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x.png",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/x.png",
        "https://10.0.0.1/x.png",
        "https://user:pass@example.com/x.png",
        "https://localhost/x.png",
        "https://no-such-host.invalid/x.png",
    ],
)
def test_addresses_within_are_not_called(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("somebody was called"))
    with pytest.raises(InvalidRequest, match="cannot be fetched") as refusal:
        inlined(chat_with(Image(url=url)))
    assert refusal.value.param == "messages[1].content[1]"


def test_only_https_is_fetched(files: str) -> None:
    with pytest.raises(InvalidRequest, match="only https"):
        inlined(chat_with(Image(url=f"{files}/one.png")))


@pytest.mark.usefixtures("inside")
def test_an_address_that_does_not_answer_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_media, "_PATIENCE", FetchTimeouts(0.1, 0.1, 10.0))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.png"
        with pytest.raises(InvalidRequest, match="in time"):
            inlined(chat_with(Image(url=url)))


@pytest.mark.usefixtures("inside")
def test_a_file_is_fetched_once_for_a_request_whoever_is_asked(files: str) -> None:
    media = RemoteMedia(OWNER)
    chat = chat_with(Image(url=f"{files}/one.png"), Image(url=f"{files}/one.png"))
    first = media.inline(chat, vertex_anthropic.PROVIDER, {})
    FILES["/one.png"], kept = (500, "text/plain", b""), FILES["/one.png"]
    try:
        assert media.inline(chat, vertex_anthropic.PROVIDER, {}) == first
    finally:
        FILES["/one.png"] = kept


@pytest.fixture
def claude(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of Claude at Google Cloud, which refuses addresses."""
    monkeypatch.setenv("SANDBOX_BASE_URL", f"{caller.sandbox_url}/v1/projects/p/locations/global")
    Provider.objects.filter(pk="sandbox").update(dialect="vertex_anthropic", auth="bearer")
    ModelProvider.objects.filter(provider_id="sandbox").update(facts={})
    generation.bump(generation.CATALOG)
    policy.forget_all()
    return caller


@pytest.mark.usefixtures("inside")
def test_claude_at_google_cloud_gets_the_picture_itself(claude: Caller, files: str) -> None:
    tag = uuid4().hex
    content = [
        {"type": "text", "text": f"look [[sandbox tag={tag}]]"},
        {"type": "image_url", "image_url": {"url": f"{files}/one.png"}},
    ]
    response = claude.chat(content, model="sandbox/vision", max_tokens=50)
    assert response.status_code == 200, response.content
    assert response.json()["choices"][0]["message"]["content"] == "You said: look (1 image)"
    [sent] = claude.sent(tag)
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
    assert sent["body"]["messages"][0]["content"][1] == {"type": "image", "source": source}


@pytest.mark.usefixtures("inside")
def test_a_client_of_anthropics_format_gets_it_too(claude: Caller, files: str) -> None:
    source = {"type": "url", "url": f"{files}/three.pdf"}
    body = {
        "model": "sandbox/vision",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": [{"type": "document", "source": source, "title": "Paper"}]}],
    }
    headers = {"x-api-key": claude.token, "x-sandbox-tag": "unused"}
    response = claude.client.post("/v1/messages", body, content_type="application/json", headers=headers)
    assert response.status_code == 200, response.content
    assert json.loads(response.content)["content"][0]["text"] == "You said:  (1 file)"


@pytest.mark.usefixtures("inside")
def test_a_picture_that_cannot_be_had_is_a_400_and_nobody_is_asked(claude: Caller, files: str) -> None:
    tag = uuid4().hex
    content = [
        {"type": "text", "text": f"look [[sandbox tag={tag}]]"},
        {"type": "image_url", "image_url": {"url": f"{files}/gone.png"}},
    ]
    response = claude.chat(content, model="sandbox/vision", max_tokens=50)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages[0].content[1]")
    assert claude.sent(tag) == []
