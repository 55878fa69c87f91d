"""The workers' processor time for refusals, each compared with a good request.

One client sends one request after the other on a kept connection, by turns: good ones, refused ones, none at all. The
turns without requests measure the workers' other work, which is subtracted.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.attack.wire import ATTACKER, chat, connect, head, read_answer, request, status_in

CHAT = "/v1/chat/completions"
# Seconds of a turn in which nothing is asked, and how many turns each kind has.
_LEAST, _TURNS = 0.05, 3
_RESPONSE_ID = re.compile(rb"resp_[0-9a-f]{48}")


def kinds(token: str) -> Iterator[tuple[str, bytes]]:
    """Yield every kind of refusal by its name."""
    unknown = [f"unknown-model-{number}" for number in range(10)]
    many: list[Any] = [{"role": "nobody", "content": 7}] * 1_000
    deep = b'{"model":"sandbox/echo","messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nothing", "arguments": {}}}
    yield "no key", request("POST", CHAT, {"model": "sandbox/echo"})
    yield "unknown key", chat("gw_live_" + "x" * 40)
    yield "unknown model", chat(token, model="no-such-model-here")
    yield "ten unknown models", chat(token, model="no-such-model-here", models=unknown)
    yield "no JSON", head("POST", CHAT, token=token, length=12) + b'{"model": "x'
    yield "deep JSON", head("POST", CHAT, token=token, length=len(deep)) + deep
    yield "a wrong field", chat(token, temperature="hot")
    yield "a thousand wrong messages", request("POST", CHAT, {"model": "sandbox/echo", "messages": many}, token=token)
    yield "unknown path", request("POST", "/v1/chat/completion", {"model": "sandbox/echo"}, token=token)
    yield "unknown path far from any", request("GET", "/v1/threads", token=token)
    yield "wrong method", request("GET", CHAT, token=token)
    yield "unknown response", request("GET", "/v1/responses/resp_nothing", token=token)
    yield "unknown model of a list", request("GET", "/v1/models/no-such-model-here", token=token)
    yield "a batch without fields", request("POST", "/v1/batches", {}, token=token)
    yield "unknown tool", request("POST", "/mcp", call, token=token)
    yield "a wrong message", request("POST", "/v1/messages", {"model": "sandbox/echo", "messages": 7}, token=token)
    yield "a wrong response", request("POST", "/v1/responses", {"model": "sandbox/echo", "input": 7}, token=token)
    yield "wrong embeddings", request("POST", "/v1/embeddings", {"model": "sandbox/echo"}, token=token)


def stored_kinds(token: str, response_id: str) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield refusals that have to ask the database, each with the request of its own endpoint that is served."""
    served = request("GET", f"/v1/responses/{response_id}", token=token)
    yield "unknown response of the right form", request("GET", f"/v1/responses/resp_{'0' * 48}", token=token), served


def compared(port: int, token: str, workers: list[int], seconds: float) -> Counter[str]:
    """Return statuses, and for every kind what it takes, in per cent of what a good request takes, or one that its
    endpoint serves.

    All is asked on one connection, and so of one worker.
    """
    got: Counter[str] = Counter()
    sock = connect(port, ATTACKER)

    def ask(words: bytes) -> None:
        nonlocal sock
        try:
            sock.sendall(words)
            got[status_in(read_answer(sock))] += 1
        except OSError:
            sock.close()
            sock = connect(port, ATTACKER)
            got["closed"] += 1

    def taken(words: bytes | None, least: float = 0.0) -> tuple[float, float]:
        """Return the workers' seconds and the clock's of asking so often, or of waiting."""
        before, began = _processor_seconds(workers), time.perf_counter()
        for _ in range(times if words else 0):
            ask(words or b"")
        time.sleep(least)
        return _processor_seconds(workers) - before, time.perf_counter() - began

    good = chat(token)
    sock.sendall(request("POST", "/v1/responses", {"model": "sandbox/echo", "input": "hello"}, token=token))
    found = _RESPONSE_ID.search(read_answer(sock))
    every = [(name, words, good) for name, words in kinds(token)]
    if found is None:
        got["no response stored"] += 1
    else:
        every += stored_kinds(token, found[0].decode())
    times = max(int(seconds * 2), 5)
    for words in {words: None for _, refused_words, good in every for words in (good, refused_words)}:
        # Warms up: one-time reading and compiling does not count.
        ask(words)
        ask(words)
    for name, words, good in every:
        served = refused = 0.0
        for _ in range(_TURNS):
            others, passed = taken(None, _LEAST)
            idle = others / passed
            for what in (good, words):
                own, passed = taken(what)
                own -= idle * passed
                served, refused = (served + own, refused) if what is good else (served, refused + own)
        got[f"{name} per cent"] = round(100 * refused / max(served, 1e-6))
    sock.close()
    return got


def _processor_seconds(pids: list[int]) -> float:
    """Return the seconds of processor time that the threads of these processes have taken."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(path.read_text().split()[0])
    return total / 1e9
