"""Changes to inputs that know their shape: half of them stay well-formed and say something strange instead.

Pure; draws from the `Random` it is given, and from nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.target import Shape

# A longer input is cut: large inputs are slow, and the bounds on size have tests of their own.
MAX_BYTES = 48 * 1024
_LEAVES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**40, 0.5, -0.0, 1e308, 1e-320),
    *("", "a", "\x00", "\ud800", "\udc00x", "\u2028", "é", "😀", "null", "[]", "{}", "../..", "${7*7}", "{{7*7}}"),
    *("data:image/png;base64,AAAA", "data:;base64,", "data:", "https://[::1", "http://127.0.0.1", "-1", "1e9"),
    *([], {}, [[]], [{}], {"": None}, {"type": None}, {"type": "text"}),
)
_DICTIONARY = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\n\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"data:",
        b"data: [DONE]\n\n",
        b":",
        b"0\r\n\r\n",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 1\r\n", b"Host: b\r\n", b"Expect: 100-continue\r\n"),
    *(b"Connection: close\r\n", b"Upgrade: websocket\r\n", b"Content-Encoding: gzip\r\n", b"ffffffffffffffff\r\n"),
    *(b"HTTP/1.0", b"HTTP/1.1", b"GET / HTTP/1.1\r\n", b"--", b"{", b"}", b"[", b"]", b'"', b"\\u0000", b"\\ud800"),
)


def mutated(data: bytes, shape: Shape, seeds: list[bytes], chance: Random) -> bytes:
    """Return an input that differs from a seed, in a way that suits its shape or (one in four) in its bytes."""
    for _ in range(1 << chance.randrange(4)):
        change: Callable[[bytes, list[bytes], Random], bytes]
        change = _in_bytes if chance.random() < 0.25 else _BY_SHAPE[shape]
        data = change(data, seeds, chance)[:MAX_BYTES]
    return data


def _in_bytes(data: bytes, seeds: list[bytes], chance: Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + (1 << chance.randrange(9)))
    piece = data[start:end]
    match chance.randrange(8):
        case 0:
            return data[:start] + data[end:]
        case 1:
            return data[:end] + piece * chance.choice((1, 2, 50)) + data[end:]
        case 2:
            return data[:start] + chance.choice(_DICTIONARY) + data[start:]
        case 3:
            return data[:start] + chance.randbytes(chance.randrange(1, 9)) + data[end:]
        case 4 if data:
            at = chance.randrange(len(data))
            return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        case 5:
            other = chance.choice(seeds)
            return data[:start] + other[chance.randrange(len(other) + 1) :]
        case 6:
            return data[:start]
        case _:
            at = chance.randrange(len(data) + 1)
            return data[:at] + piece + data[at:]


def _in_json(data: bytes, seeds: list[bytes], chance: Random) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _in_bytes(data, seeds, chance)
    return _dumped(_changed(value, seeds, chance))


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except (ValueError, RecursionError):
        return b"{}"


def _changed(value: Any, seeds: list[bytes], chance: Random) -> Any:
    """Return the value with one thing in it changed; now and then the whole of it."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.02:
        return _strange(value, seeds, chance)
    owner: Any = value
    while True:
        at: Any = chance.choice(list(owner)) if isinstance(owner, dict) else chance.randrange(len(owner))
        inner = owner[at]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
            break
        owner = inner
    match chance.randrange(6):
        case 0:
            del owner[at]
        case 1 if isinstance(owner, dict):
            owner[_name(seeds, chance)] = owner.pop(at)
        case 2 if isinstance(owner, list):
            owner.insert(at, json.loads(_dumped(inner)))
        case 3 if isinstance(owner, list):
            chance.shuffle(owner)
        case 4:
            owner[at] = _subtree(seeds, chance)
        case _:
            owner[at] = _strange(inner, seeds, chance)
    return value


def _strange(value: Any, seeds: list[bytes], chance: Random) -> Any:
    match chance.randrange(7):
        case 0:
            return [value]
        case 1:
            return {_name(seeds, chance): value}
        case 2 if isinstance(value, str):
            at = chance.randrange(len(value) + 1)
            return value[:at] + chance.choice(("", "\x00", "\ud83d", "\n", '"', "\u0300", "😀", value)) + value[at:]
        case 3 if isinstance(value, int | float):
            return chance.choice((-value, value + 1, str(value), value * 10**9))
        case 4:
            for _ in range(chance.choice((3, 130, 400))):
                value = [value] if chance.random() < 0.5 else {"a": value}
            return value
        case _:
            return json.loads(json.dumps(chance.choice(_LEAVES)))


def _subtree(seeds: list[bytes], chance: Random) -> Any:
    """Return a part of another seed."""
    try:
        value = json.loads(_a_json_text(chance.choice(seeds), chance))
    except (ValueError, RecursionError):
        return None
    while isinstance(value, dict | list) and value and chance.random() < 0.7:
        value = chance.choice(list(value.values()) if isinstance(value, dict) else value)
    return value


def _name(seeds: list[bytes], chance: Random) -> str:
    value = _subtree(seeds, chance)
    return chance.choice(list(value)) if isinstance(value, dict) and value else chance.choice(("", "type", "id", "x"))


def _a_json_text(data: bytes, chance: Random) -> bytes:
    """Return the JSON text in an input of any shape."""
    if data[:1] in {b"{", b"["}:
        return data
    lines = [line.partition(b" ")[2] for line in data.splitlines() if line[-1:] == b"}"]
    return chance.choice(lines) if lines else b"null"


def _in_pieces(before: bytes, end: bytes) -> Callable[[bytes, list[bytes], Random], bytes]:
    """Return the change of an input that is a list of pieces, each with JSON behind `before`."""

    def change(data: bytes, seeds: list[bytes], chance: Random) -> bytes:
        pieces = data.split(end)
        at = chance.randrange(len(pieces))
        match chance.randrange(7):
            case 0:
                del pieces[at]
            case 1:
                pieces.insert(chance.randrange(len(pieces) + 1), pieces[at])
            case 2:
                other = chance.randrange(len(pieces))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case 3:
                pieces.insert(at, chance.choice(chance.choice(seeds).split(end)))
            case _:
                name, mark, text = pieces[at].partition(before)
                pieces[at] = name + mark + _in_json(text, seeds, chance)
        return end.join(pieces)

    return change


_BY_SHAPE: dict[Shape, Callable[[bytes, list[bytes], Random], bytes]] = {
    "bytes": _in_bytes,
    "json": _in_json,
    "sse": _in_pieces(b"data: ", b"\n\n"),
    "lines": _in_pieces(b" ", b"\n"),
}
