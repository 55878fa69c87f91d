"""The hostile clients, one function each. Run as a process of its own, whose time and memory are not the product's.

Each takes a `Task` and returns what it got: statuses and how many of each. It ends when its seconds are over, sends to
127.0.0.1 only, and holds one copy of what it sends.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, count, repeat
from typing import Any

import msgspec

from gateway_project.embedded.child_process import lower_scheduling_priority
from tests.attack import crowd, refusing, storage_crowds
from tests.attack.wire import ATTACKER, STATUS_LINE, chat, connect, edit, head, outcome, request, send_all

CHAT = "/v1/chat/completions"
FORM = b"application/x-www-form-urlencoded"
MAX_MEMORY = 3 * 1024**3


class Task(msgspec.Struct):
    """The input of an attack: its target, its duration, and its keys."""

    name: str
    port: int
    seconds: float
    token: str = ""
    session: str = ""
    cold: list[str] = []
    clients: int = 0
    # The web workers, whose processor time is looked up in /proc.
    workers: list[int] = []
    # Keys of organizations that keep content (`Scene`).
    keeper: str = ""
    other_keeper: str = ""
    penniless: str = ""


Got = Counter[str]
Attack = Callable[[Task], Got]


def at_once(clients: int, work: Callable[[int], str]) -> Got:
    """Return what so many clients got that each do the work until it ends."""
    got: Got = Counter()

    def one(number: int) -> None:
        try:
            result = work(number)
        except OSError as error:
            result = "refused" if isinstance(error, ConnectionRefusedError) else "closed"
        got[result] += 1

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def large(task: Task, clients: int, start: bytes, body: bytes) -> Got:
    """Return what so many clients get that each send a body once, at the same time."""
    until = time.monotonic() + task.seconds

    def one(number: int) -> str:
        with connect(task.port, ATTACKER) as sock:
            view = memoryview(body)
            send_all(sock, chain([start], (view[at : at + 262_144] for at in range(0, len(view), 262_144))), until)
            return outcome(sock, max(until + 20 - time.monotonic(), 5))

    return at_once(task.clients or clients, one)


def endless(task: Task, clients: int, starts: tuple[bytes, ...], piece: bytes) -> Got:
    """Return what so many clients get that each begin a request and go on with it for ever."""
    until = time.monotonic() + task.seconds

    def one(number: int) -> str:
        with connect(task.port, ATTACKER) as sock:
            send_all(sock, chain([starts[number % len(starts)]], repeat(piece)), until)
            return outcome(sock, 2.0)

    return at_once(task.clients or clients, one)


# --- bodies that are large, or made of very many values


def sign_in_values(task: Task) -> Got:
    """Ten sign-ins of 32 MB, each with ten million empty objects instead of an address; without a key."""
    body = b'{"email":[' + b"{}," * 10_600_000 + b'{}],"password":"x"}'
    return large(task, 10, head("POST", "/auth/sign-in/email", length=len(body)), body)


def guardrail_values(task: Task) -> Got:
    """Six chats of an organization with guardrails, each with 900,000 small objects in an unknown field."""
    body = _chat_with(b'"zz":[' + b'{"a":1.5},' * 900_000 + b"{}]")
    return large(task, 6, head("POST", CHAT, token=task.token, length=len(body)), body)


def emoji(task: Task) -> Got:
    """Four chats with 30 MB of emoji."""
    return _words(task, "😀".encode() * 7_500_000)


def escapes(task: Task) -> Got:
    r"""Four chats with 30 MB of `\u00e9`."""
    return _words(task, rb"\u00e9" * 5_000_000)


def metadata_keys(task: Task) -> Got:
    """Four chats whose metadata has 1.5 million names."""
    names = b",".join(b'"%d":"a"' % number for number in range(1_500_000))
    return _large_chat(task, b'"metadata":{' + names + b"}")


def _words(task: Task, words: bytes) -> Got:
    body = b'{"model":"sandbox/echo","messages":[{"role":"user","content":"' + words + b'"}]}'
    return large(task, 4, head("POST", CHAT, token=task.token, length=len(body)), body)


def _chat_with(field: bytes) -> bytes:
    return b'{"model":"sandbox/echo","messages":[{"role":"user","content":"hi"}],' + field + b"}"


def _large_chat(task: Task, field: bytes) -> Got:
    body = _chat_with(field)
    return large(task, 4, head("POST", CHAT, token=task.token, length=len(body)), body)


# --- what libraries know and the product does not


def oauth_tokens(task: Task) -> Got:
    """Six clients, each at an address of its own, that try passwords and devices as grants; without a key."""
    until, got = time.monotonic() + task.seconds, Counter[str]()
    device = "urn:ietf:params:oauth:grant-type:device_code"
    grants = (
        *("grant_type=password&username=admin%40example.com&password=guess", f"grant_type={device}&device_code=y"),
        *("grant_type=client_credentials&client_secret=x", "grant_type=refresh_token&refresh_token=x"),
    )

    def one(number: int) -> str:
        for turn in count():
            body = f"{grants[turn % len(grants)]}&client_id=c{number}".encode()
            start = head("POST", "/oauth/token", length=len(body)).replace(b"application/json", FORM)
            with connect(task.port, f"127.0.0.{70 + number}") as sock:
                sock.sendall(start + body)
                got[outcome(sock, 10)] += 1
            if time.monotonic() > until or turn == 400:
                break
        return "done"

    at_once(task.clients or 6, one)
    return got


def foreign_hosts(task: Task) -> Got:
    """Two clients that ask for pages of hosts which are not served, and send what no field can hold."""
    lines = ("Host: evil.example", "Host: a b", "Host: 127.0.0.1:99999999", "Cookie: sessionid=%00\x7f; =;;a")
    asked = [
        *(f"GET /docs/api HTTP/1.1\r\n{line}\r\n\r\n".encode() for line in lines[:3]),
        f"GET /app/ HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines[3]}\r\n\r\n".encode(),
        *(head("GET", path) for path in ("/logs?cursor=%00", "/models?q=%00", "/app/sign-in?next=%00", "/admin/%00")),
    ]
    until = time.monotonic() + task.seconds
    got = Counter[str]()

    def one(number: int) -> str:
        for turn in count(number):
            with connect(task.port, ATTACKER) as sock:
                sock.sendall(asked[turn % len(asked)])
                got[outcome(sock, 10)] += 1
            if time.monotonic() > until or turn > 400:
                break
        return "done"

    at_once(task.clients or 2, one)
    return got


# --- requests that never end


def trailer_endless(task: Task) -> Got:
    """Six clients whose trailer never ends: half of them with a key, half of them at the sign-in without one."""
    begun = b"2\r\n{}\r\n0\r\nX-A: "
    starts = (
        head("POST", CHAT, "Transfer-Encoding: chunked", token=task.token) + begun,
        head("POST", "/auth/sign-in/email", "Transfer-Encoding: chunked") + begun,
    )
    return endless(task, 6, starts, b"a" * 65_536)


def one_byte_chunks(task: Task) -> Got:
    """Two clients that send a body in chunks of one byte, as fast as they can."""
    start = head("POST", CHAT, "Transfer-Encoding: chunked", token=task.token)
    return endless(task, 2, (start,), b"1\r\na\r\n" * 10_000)


def leading_zeros(task: Task) -> Got:
    """Two clients whose chunk has a size with zeros before it, without end."""
    start = head("POST", CHAT, "Transfer-Encoding: chunked", token=task.token)
    return endless(task, 2, (start,), b"0" * 65_536)


def chunk_extension(task: Task) -> Got:
    """Two clients whose chunk has an extension without end."""
    start = head("POST", CHAT, "Transfer-Encoding: chunked", token=task.token) + b"1;"
    return endless(task, 2, (start,), b"a" * 65_536)


def slow_bodies(task: Task) -> Got:
    """Forty clients with a session that send one byte of a thousand, and wait."""
    # The minimum rate holds once a body has had ten seconds.
    until = time.monotonic() + max(task.seconds, 15)

    def one(number: int) -> str:
        with connect(task.port, ATTACKER) as sock:
            sock.sendall(head("POST", "/projects", token=task.session, length=1000) + b"{")
            return outcome(sock, until - time.monotonic())

    return at_once(40, one)


def idle_sockets(task: Task) -> Got:
    """4,500 connections from one address that never say anything."""
    until, socks, got = time.monotonic() + task.seconds, [], Counter[str]()
    for _ in range(task.clients or 4_500):
        try:
            socks.append(connect(task.port, ATTACKER, timeout=3))
        except OSError:
            got["refused"] += 1
            if got["refused"] > 50:
                break
    time.sleep(max(until - time.monotonic(), 1))
    for sock in socks:
        got[outcome(sock, 0.001)] += 1
        sock.close()
    return got


def aborted(task: Task) -> Got:
    """Clients without a key that leave in the middle of their body, again and again."""
    until, got = time.monotonic() + task.seconds, Counter[str]()
    start = head("POST", "/auth/sign-in/email", length=1000) + b'{"email":'
    while time.monotonic() < until and got["left"] < 2_000:
        with connect(task.port, ATTACKER) as sock:
            sock.sendall(start)
        got["left"] += 1
    return got


# --- requests that are read in two ways


def trailer_authorization(task: Task) -> Got:
    """A chat without credentials, whose trailer has them."""
    body = json.dumps({"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}).encode()
    start = head("POST", CHAT, "Transfer-Encoding: chunked", "Trailer: Authorization")
    whole = start + b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % (len(body), body, task.token.encode())
    return _again_and_again(task, whole)


def upgrade(task: Task) -> Got:
    """A chat that would rather speak another protocol."""
    first, end, rest = chat(task.token).partition(b"\r\n")
    return _again_and_again(task, first + end + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + rest)


def _again_and_again(task: Task, whole: bytes) -> Got:
    until, got = time.monotonic() + task.seconds, Counter[str]()
    while time.monotonic() < until and sum(got.values()) < 200:
        with connect(task.port, ATTACKER) as sock:
            sock.sendall(whole)
            got[outcome(sock, 10)] += 1
        time.sleep(0.02)
    return got


# --- hostile providers, asked through a custom provider of the attacker's own


def bomb_answer(task: Task) -> Got:
    """Four requests to a provider whose 1 MB unpacks to 1 GB."""
    return _asked(task, 4, "bomb")


def large_answer(task: Task) -> Got:
    """Four requests to a provider that answers with 200 MB."""
    return _asked(task, 4, "large")


def _asked(task: Task, clients: int, model: str) -> Got:
    def one(number: int) -> str:
        with connect(task.port, ATTACKER) as sock:
            sock.sendall(chat(task.token, model=f"custom:hostile/{model}"))
            return outcome(sock, max(task.seconds, 45))

    return at_once(task.clients or clients, one)


# --- names whose servers never answer


def slow_names(task: Task) -> Got:
    """Forty clients that have pictures changed, five each time, at names whose servers never answer."""
    until = time.monotonic() + task.seconds

    def one(number: int) -> str:
        result, round_number = "closed", 0
        while time.monotonic() < until:
            round_number += 1
            names = [f"tar-{number}-{round_number}-{place}.silent.test" for place in range(5)]
            with connect(task.port, ATTACKER) as sock:
                sock.sendall(edit(task.token, [f"https://{name}/cat.png" for name in names]))
                result = outcome(sock, 60)
        return result

    return at_once(task.clients or 40, one)


def kept_answers(task: Task) -> Got:
    """Two hundred answers of 680 KB each, all of them kept for a year."""

    def one(number: int) -> str:
        with connect(task.port, ATTACKER) as sock:
            sock.sendall(chat(task.keeper, f"question {number}", model="custom:hostile/kept"))
            return outcome(sock, max(task.seconds, 45))

    got: Got = Counter()
    for start in range(0, task.clients or 200, 10):
        got += at_once(10, lambda number, start=start: one(start + number))  # type: ignore[misc] # bound at once
    return got


# --- requests that cost little, without waiting for an answer (pipelining), and without a key


def pipelined_health(task: Task) -> Got:
    """Two connections that ask `GET /livez` over and over."""
    return _pipelined(task, [request("GET", "/livez")])


def pipelined_answers(task: Task) -> Got:
    """Four connections that ask for public things, and for refused ones: checks, documents, wrong paths."""
    paths = ("/?skip=redis,database", "/readyz", "/metrics", "/robots.txt", "/v1/openapi.json", "/docs", "/v1/models")
    asked = [request("GET", path) for path in (*paths, "/v1/chat/completion", "/nowhere")]
    preflight = ("Origin: https://example.com", "Access-Control-Request-Method: POST")
    asked += [head("OPTIONS", CHAT, *preflight), request("POST", CHAT, {"model": "sandbox/echo"})]
    return _pipelined(task, asked, clients=4)


def _pipelined(task: Task, asked: list[bytes], clients: int = 2) -> Got:
    until, got, block = time.monotonic() + task.seconds, Counter[str](), b"".join(asked) * (200 // len(asked))

    def one(number: int) -> str:
        with connect(task.port, ATTACKER) as sock:
            sending = threading.Thread(target=send_all, args=(sock, repeat(block), until), daemon=True)
            sending.start()
            while time.monotonic() < until:
                try:
                    for status in STATUS_LINE.findall(sock.recv(262_144)):
                        got[status.decode()] += 1
                except TimeoutError:
                    continue
        return "waiting"

    return at_once(task.clients or clients, one) + got


# --- refusals


def refusals(task: Task) -> Got:
    """Refusals of every kind, one after the other beside good requests: what each takes of the workers' time."""
    return refusing.compared(task.port, task.token, task.workers, task.seconds)


# --- crowds


def stampede(task: Task) -> Got:
    """A thousand clients at once, with keys that no worker has seen."""
    tokens = task.cold or [task.token]
    requests = [chat(tokens[number % len(tokens)]) for number in range(task.clients or 1_000)]
    return crowd.all_at_once(task.port, requests, patience=max(task.seconds, 45))


def overload(task: Task) -> Got:
    """Twice as many requests a second as the product can answer."""
    return crowd.overloaded(task.port, chat(task.token, model="sandbox/echo-fast"), task.seconds)


def batch_crowd(task: Task) -> Got:
    """Twenty batches of 2,000 lines, half of them cancelled; another tenant's batch of one line comes after them."""
    return storage_crowds.batch_crowd(task)


def storage(task: Task) -> Got:
    """Eight files of 20 MB of an organization on the free plan without credits."""
    return storage_crowds.storage(task)


def calm(task: Task) -> Got:
    """No attack: measure how long bystanders wait anyway."""
    time.sleep(task.seconds)
    return Counter()


def attacks() -> Iterator[tuple[str, Attack]]:
    """Yield every attack by its name."""
    for one in (
        *(calm, sign_in_values, trailer_endless, trailer_authorization, guardrail_values, slow_bodies, idle_sockets),
        *(one_byte_chunks, leading_zeros, chunk_extension, emoji, escapes, metadata_keys, upgrade, aborted),
        *(oauth_tokens, foreign_hosts, bomb_answer, large_answer, slow_names, kept_answers, batch_crowd, storage),
        *(pipelined_health, pipelined_answers, refusals, stampede, overload),
    ):
        yield one.__name__.replace("_", "-"), one


def main() -> None:
    """Read a task, do it, and write what it got."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    # The attackers must not take processor time from others: only the product's handling of its requests counts. A nice
    # value has no effect on processes of other sessions.
    os.nice(5)
    lower_scheduling_priority()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    threading.stack_size(256 * 1024)
    got: Any = dict(attacks())[task.name](task)
    sys.stdout.buffer.write(msgspec.json.encode(dict(got)))


if __name__ == "__main__":
    main()
