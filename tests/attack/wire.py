"""HTTP/1.1 on plain sockets, as hostile and as ordinary clients write it.

On Linux every client may have an address of its own.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterable
from typing import Any

HERE = "127.0.0.1"
# Clients at different addresses: what a product allows to one address must not be taken from another.
BYSTANDER, ATTACKER = "127.0.0.2", "127.0.0.66"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
# One that is no part of a body.
STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z ]+\r\n")


def connect(port: int, source: str, timeout: float = 30.0) -> socket.socket:
    """Return a connection to the product from an address of this machine."""
    sock = socket.socket()
    sock.settimeout(timeout)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((source, 0))
    sock.connect((HERE, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def head(method: str, path: str, *lines: str, token: str = "", length: int | None = None) -> bytes:
    """Return a request's head."""
    words = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *lines]
    if token:
        words.append(f"Authorization: Bearer {token}")
    if length is not None:
        words.append(f"Content-Length: {length}")
    return ("\r\n".join(words) + "\r\n\r\n").encode()


def request(method: str, path: str, body: Any = None, *, token: str = "") -> bytes:
    """Return a whole request."""
    if body is None:
        return head(method, path, token=token)
    data = json.dumps(body).encode()
    return head(method, path, token=token, length=len(data)) + data


def chat(token: str, content: str = "hello", **fields: Any) -> bytes:
    """Return a small chat request."""
    body = {"model": "sandbox/echo", "max_tokens": 50, "messages": [{"role": "user", "content": content}], **fields}
    return request("POST", "/v1/chat/completions", body, token=token)


def edit(token: str, addresses: list[str]) -> bytes:
    """Return a request to change the pictures at some addresses."""
    body = {"model": "painter", "prompt": "a hat", "images": [{"image_url": address} for address in addresses]}
    return request("POST", "/v1/images/edits", body, token=token)


def status_in(answer: bytes) -> str:
    """Return an answer's status; an interim one does not count."""
    found = [status for status in _STATUS.findall(answer) if status != b"100"]
    return found[0].decode() if found else "no answer"


def read_answer(sock: socket.socket) -> bytes:
    """Return one answer with a length. Raises OSError, TimeoutError."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(sock)
    start, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", start.lower())
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        piece = _some(sock)
        data += piece
        missing -= len(piece)
    return data


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(262_144)
    if not data:
        raise ConnectionError("the connection was closed")
    return data


def outcome(sock: socket.socket, seconds: float) -> str:
    """Return what a client gets within so many seconds: a status, `closed`, or `waiting`."""
    data, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            piece = sock.recv(65_536)
        except TimeoutError:
            break
        except OSError:
            return status_in(data) if data else "closed"
        data += piece
        if not piece:
            return status_in(data) if data else "closed"
        if _STATUS.search(data) and status_in(data) != "no answer":
            return status_in(data)
    return "waiting"


def send_all(sock: socket.socket, pieces: Iterable[bytes], until: float) -> bool:
    """Send pieces until the time is over; False when the other side would have no more."""
    try:
        for piece in pieces:
            if time.monotonic() >= until:
                break
            sock.settimeout(max(until - time.monotonic(), 0.01))
            sock.sendall(piece)
    except TimeoutError:
        return True
    except OSError:
        return False
    return True
