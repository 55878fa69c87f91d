"""Uploads over real sockets: stored as they arrive in bounded memory, and nothing of one that is wrong or cut short."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests
from openai import OpenAI

from tests.chaos.batches import keep_content
from tests.stack.product import Product, eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

MEGABYTE = 1024 * 1024
LIMIT = 110 * MEGABYTE
BOUNDARY = "a-boundary"
FIELD = '--a-boundary\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
FILE = '--a-boundary\r\nContent-Disposition: form-data; name="file"; filename="lines.jsonl"\r\n\r\n'
PURPOSE = FIELD % ("purpose", "batch")
END = "\r\n--a-boundary--\r\n"
# A file of more than one chunk and one read, and what looks like boundaries in it.
CONTENT = b'{"a": "\r\n--a-bound\r\n--"}\n' * 100_000


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of one worker that waits eight seconds for a body of the usual size."""
    home = tmp_path_factory.mktemp("uploads")
    product = Product(home, FILE_UPLOAD_LIMIT=str(LIMIT), BODY_TIMEOUT="8")
    keep_content(product)
    yield product
    product.stop()


@pytest.fixture
def client(product: Product) -> Iterator[OpenAI]:
    """The official client; it tries nothing again."""
    with OpenAI(api_key=product.demo["apiKey"], base_url=f"{product.url}/v1", max_retries=0, timeout=120) as client:
        yield client
        for file in client.files.list():
            client.files.delete(file.id)


def stored(product: Product) -> tuple[int, int]:
    """Return how many files, complete or not, and chunks there are."""
    url = json.loads((Path(product.environment["GATEWAY_HOME"]) / "run" / "stores.json").read_text())["database_url"]
    with psycopg.connect(url) as connection:
        asked = "SELECT (SELECT count(*) FROM stored_file), (SELECT count(*) FROM stored_file_chunk)"
        files, chunks = connection.execute(asked).fetchone() or (0, 0)
    return int(files), int(chunks)


def worker_of(product: Product) -> int:
    """Return the process that serves."""
    return product.processes("gunicorn")[-1]


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def head(product: Product, length: int, *more: str) -> bytes:
    lines = [
        "POST /v1/files HTTP/1.1",
        "Host: gateway",
        f"Authorization: Bearer {product.demo['apiKey']}",
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}",
        f"Content-Length: {length}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def connect(product: Product) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", product.port), timeout=60))


def answer_of(sock: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON of the next answer."""
    received = b""
    # Byte by byte: the answer to the next request may already be behind it.
    while not received.endswith(b"\r\n\r\n"):
        data = sock.recv(1)
        assert data, received
        received += data
    first, _, body = received.partition(b"\r\n\r\n")
    status, *lines = first.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += sock.recv(int(headers["content-length"]) - len(body))
    return int(status.split()[1]), headers, json.loads(body)


def ask(product: Product, body: bytes, *more: str, length: int | None = None) -> tuple[int, dict[str, str], Any]:
    """Send an upload on a connection of its own, and return its answer."""
    with connect(product) as sock:
        sock.sendall(head(product, len(body) if length is None else length, *more))
        with suppress(OSError):
            # It may be answered, and closed, before all of it is sent.
            sock.sendall(body)
        return answer_of(sock)


def form(*parts: str | bytes) -> bytes:
    return b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)


def test_fields_may_come_before_or_behind_the_file(product: Product, client: OpenAI) -> None:
    behind = form(FILE, CONTENT, "\r\n", PURPOSE, FIELD % ("expires_after[anchor]", "created_at"))
    behind += form((FIELD % ("expires_after[seconds]", "7200"))[:-2], END)
    for body, lifetime in ((form(PURPOSE, FILE, CONTENT, END), 0), (behind, 7200)):
        status, _, told = ask(product, body)
        assert (status, told.get("bytes"), told.get("purpose")) == (200, len(CONTENT), "batch"), told
        assert not lifetime or told["expires_at"] - told["created_at"] == lifetime
        assert client.files.content(told["id"]).content == CONTENT
        client.files.delete(told["id"])
    assert stored(product) == (0, 0)


def test_a_form_may_be_cut_anywhere_on_its_way(product: Product, client: OpenAI) -> None:
    body = form(PURPOSE, FILE, CONTENT, END)
    with connect(product) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head(product, len(body)))
        start, sizes = 0, [1, 2, 5, 17, 100, 1_448, 65_537]
        edges = {len(PURPOSE + FILE) + place for place in (-3, -1, 0, 1)} | {len(body) - place for place in range(20)}
        while start < len(body):
            size = sizes[start % len(sizes)]
            end = min([start + size, *(edge for edge in edges if start < edge)])
            sock.sendall(body[start:end])
            start = end
        status, headers, told = answer_of(sock)
        assert (status, headers.get("connection")) == (200, None)
        # The connection carries the next request.
        sock.sendall(b"GET /livez HTTP/1.1\r\nHost: gateway\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    assert client.files.content(told["id"]).content == CONTENT
    client.files.delete(told["id"])


def test_a_request_behind_an_upload_is_answered_behind_it(product: Product, client: OpenAI) -> None:
    body = form(PURPOSE, FILE, CONTENT, END)
    with connect(product) as sock:
        sock.sendall(head(product, len(body)) + body + b"GET /v1/files HTTP/1.1\r\nHost: gateway\r\n")
        sock.sendall(f"Authorization: Bearer {product.demo['apiKey']}\r\n\r\n".encode())
        made = answer_of(sock)[2]
        listed = answer_of(sock)[2]
    assert [file["id"] for file in listed["data"]] == [made["id"]]
    client.files.delete(made["id"])


def test_a_client_that_waits_for_leave_is_let_send_once_it_is_known(product: Product, client: OpenAI) -> None:
    body = form(PURPOSE, FILE, CONTENT, END)
    with connect(product) as sock:
        sock.sendall(head(product, len(body), "Expect: 100-continue"))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        status, _, told = answer_of(sock)
    assert status == 200
    client.files.delete(told["id"])
    with connect(product) as sock:
        refused = head(product, len(body), "Expect: 100-continue").replace(product.demo["apiKey"].encode(), b"no-key")
        sock.sendall(refused)
        assert answer_of(sock)[0] == 401


PADDING = b"x" * (2 * MEGABYTE)
SECOND = '\r\n--a-boundary\r\nContent-Disposition: form-data; name="file"; filename="b"\r\n\r\nb'
HEAD_OF_FILE = FILE.encode()[:-4]
WRONG = {
    "no file": (form(PURPOSE, FIELD % ("x", "y"), "--a-boundary--"), "file is required, as a file with a name"),
    "a file without a name": (form(PURPOSE, FIELD % ("file", "a"), "--a-boundary--"), "file is required"),
    "two files": (form(PURPOSE, FILE, PADDING, SECOND, END), "file is given twice"),
    "an empty file": (form(PURPOSE, FILE, END), "file is empty"),
    "a purpose twice": (form(PURPOSE, PURPOSE, FILE, PADDING, END), "purpose is given twice"),
    "no purpose": (form(FILE, PADDING, END), "purpose must be one of"),
    "a wrong purpose": (form(FIELD % ("purpose", "any"), FILE, PADDING, END), "purpose must be one of"),
    "a long field": (form(FIELD % ("purpose", "x" * 70_000), FILE, PADDING, END), "purpose is longer than 65536 bytes"),
    "no end": (form(PURPOSE, FILE, PADDING), "it ends before its last boundary"),
    "no form": (PADDING, "the boundary does not occur in it"),
    "a long head": (form(PURPOSE, HEAD_OF_FILE, "\r\nX: ", "x" * 5_000, "\r\n\r\n", PADDING, END), "too long a head"),
    "an endless head": (form(PURPOSE, HEAD_OF_FILE, PADDING), "too long a head"),
    "no colon": (form(PURPOSE, HEAD_OF_FILE, "\r\nnothing\r\n\r\n", PADDING, END), "a malformed head"),
    "a header twice": (form(HEAD_OF_FILE, "\r\nContent-Disposition: x\r\n\r\n", PADDING, END), "a malformed head"),
    "a coded file": (form(HEAD_OF_FILE, "\r\nContent-Transfer-Encoding: base64\r\n\r\n", PADDING, END), "is encoded"),
    "a name with a control": (form(FILE.replace("lines", "a\x00b"), PADDING, END), "The name of file must be"),
    "many parts": (form(*[FIELD % (f"x{place}", "y") for place in range(70)], PADDING), "more than 64 parts"),
    "a crowd of boundaries": (b"--a-boundary\r\n" * 200_000, "a part of it has no head"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_stored(product: Product, case: str) -> None:
    body, said = WRONG[case]
    # Larger than the part that is read whole before it is parsed.
    body += b"" if len(body) > 70_000 else b"\r\n" + b" " * 70_000
    status, _, told = ask(product, body)
    assert (status, said in told["error"]["message"]) == (400, True), told
    assert stored(product) == (0, 0)


def test_what_is_too_large_is_refused_by_its_length_unread(product: Product) -> None:
    with connect(product) as sock:
        sock.sendall(head(product, LIMIT + MEGABYTE))
        status, headers, told = answer_of(sock)
    assert (status, headers["connection"]) == (413, "close")
    assert told["error"]["message"] == f"The request body is larger than {LIMIT} bytes"
    assert stored(product) == (0, 0)


def test_a_file_of_another_purpose_is_no_larger_than_a_body(product: Product) -> None:
    most, purpose = 32 * MEGABYTE, FIELD % ("purpose", "user_data")
    large = b"x" * (most + 1)
    # The purpose may follow the file.
    for body in (form(purpose, FILE, large, END), form(FILE, large, "\r\n", purpose[:-2], END)):
        status, _, told = ask(product, body)
        assert (status, told["error"]["message"]) == (413, f"file is larger than {most} bytes")
        assert stored(product) == (0, 0)


def test_a_client_that_sends_less_than_it_said_leaves_nothing(product: Product) -> None:
    body = form(PURPOSE, FILE, CONTENT)
    with connect(product) as sock:
        sock.sendall(head(product, len(body) + 1_000) + body)
        eventually(lambda: stored(product)[0] == 1)
    eventually(lambda: stored(product) == (0, 0))


def test_a_client_that_sends_no_more_is_refused_in_time(product: Product) -> None:
    body = form(PURPOSE, FILE, CONTENT)
    with connect(product) as sock:
        sock.sendall(head(product, len(body) + 1_000) + body)
        status, headers, told = answer_of(sock)
    assert (status, headers["connection"]) == (408, "close")
    assert told["error"]["message"] == "The request body did not arrive within 8 s"
    assert stored(product) == (0, 0)


def test_a_file_of_a_hundred_megabytes_is_stored_in_little_memory(product: Product, client: OpenAI) -> None:
    worker = worker_of(product)
    warm = client.files.create(file=("a", b"x" * (8 * MEGABYTE)), purpose="batch")
    client.files.delete(warm.id)
    before, peak, statuses = memory_of(worker), 0, set[int]()
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.is_set():
            peak = max(peak, memory_of(worker))
            statuses.add(requests.get(f"{product.url}/v1/models", timeout=60).status_code)
            time.sleep(0.02)

    watching = threading.Thread(target=watch)
    watching.start()
    line = b'{"custom_id": "%d", "method": "POST", "url": "/v1/chat/completions", "body": {"a": "%b"}}\n'
    content = b"".join(line % (number, os.urandom(64).hex().encode() * 80) for number in range(9_700))
    assert 95 * MEGABYTE < len(content) < LIMIT
    try:
        made = client.files.create(file=("lines.jsonl", content), purpose="batch")
    finally:
        over.set()
        watching.join()
    assert (made.bytes, statuses) == (len(content), {200})
    assert peak - before < 60 * MEGABYTE
    with client.files.with_streaming_response.content(made.id) as response:
        assert sum(map(len, response.iter_bytes())) == len(content)
    client.files.delete(made.id)


def test_eight_uploads_at_a_time_are_stored_whole_in_little_memory(product: Product, client: OpenAI) -> None:
    worker = worker_of(product)
    before, peak = memory_of(worker), 0
    contents = [os.urandom(MEGABYTE) * 12 + bytes([number]) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        uploads = [
            pool.submit(client.files.create, file=("lines.jsonl", content), purpose="batch") for content in contents
        ]
        while not all(upload.done() for upload in uploads):
            peak = max(peak, memory_of(worker))
            time.sleep(0.02)
    # A few for each, with what the allocator keeps; the bodies alone have 96.
    assert peak - before < 80 * MEGABYTE
    for upload, content in zip(uploads, contents, strict=True):
        made = upload.result()
        assert client.files.content(made.id).content == content
        client.files.delete(made.id)
    assert stored(product) == (0, 0)


def test_of_an_upload_whose_worker_is_killed_nothing_shows_and_its_rest_goes(product: Product, client: OpenAI) -> None:
    body = form(PURPOSE, FILE, CONTENT)
    with connect(product) as sock:
        sock.sendall(head(product, len(body) + 1_000) + body)
        eventually(lambda: stored(product)[1] >= 1)
        os.kill(worker_of(product), signal.SIGKILL)
    eventually(lambda: requests.get(f"{product.url}/livez", timeout=30).status_code == 200, patience=60)
    assert list(client.files.list()) == []
    assert stored(product)[0] == 1
    purge = "from datetime import timedelta; from django.utils import timezone; from apps.batches import retention; "
    product.manage("shell", "-c", purge + "retention.purge(timezone.now() + timedelta(hours=1, minutes=1))")
    assert stored(product) == (0, 0)
