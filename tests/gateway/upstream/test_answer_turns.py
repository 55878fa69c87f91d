"""Answers in progress: all but the first piece of a provider's answer wait for their turns."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from apps.gateway.upstream.http_response import SocketWaiter, UpstreamResponse
from tests.fuzz.targets.provider_http import Connection
from tests.gateway.upstream.test_connection_pool import BUDGET

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = [b"%03d" % number + b"x" * 97 for number in range(100)]


class CountedTurns:
    """Turns that are always there, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self) -> None:
        """Take one."""
        self.taken += 1


class Provider:
    """A response over one end of a pair of sockets, and the other end; and how often it took a turn."""

    def __init__(self) -> None:
        ours, self.wire = socket.socketpair()
        ours.settimeout(0.0)
        waiter = SocketWaiter(ours)
        self.turns = CountedTurns()
        waiter.turns = self.turns  # type: ignore[assignment] # as far as it is used
        self.response = UpstreamResponse(Connection(ours, waiter), BUDGET, time.monotonic() + 5, lambda: None)

    def close(self) -> None:
        """Close both ends."""
        self.response.close()
        self.wire.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with closing(Provider()) as one:
        yield one


def chunked(*chunks: bytes) -> bytes:
    """Return chunks as they are sent."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)


def test_what_arrives_at_once_is_passed_on_in_pieces_of_whole_chunks(provider: Provider) -> None:
    provider.wire.sendall(HEAD + chunked(*CHUNKS) + b"0\r\n\r\n")
    assert list(provider.response.read_head()) == []
    pieces, turns = [], []
    for piece in provider.response.iterate_body():
        pieces.append(piece)
        turns.append(provider.turns.taken)
    assert b"".join(pieces) == b"".join(CHUNKS)
    # The first one is short: the client waits for it.
    assert [len(piece) for piece in pieces] == [600, 4_100, 4_100, 1_200]
    assert turns == [0, 1, 2, 3]


def test_each_further_piece_waits_for_a_turn_before_it_is_read(provider: Provider) -> None:
    provider.wire.sendall(HEAD + chunked(b"first"))
    assert list(provider.response.read_head()) == []
    pieces = provider.response.iterate_body()
    assert (next(pieces), provider.turns.taken) == (b"first", 0)
    provider.wire.sendall(chunked(b"second"))
    assert (next(pieces), provider.turns.taken) == (b"second", 1)
    provider.wire.sendall(chunked(b"third"))
    assert (next(pieces), provider.turns.taken) == (b"third", 2)


def test_an_answer_that_comes_at_once_takes_no_turn(provider: Provider) -> None:
    provider.wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    assert list(provider.response.read_head()) == []
    assert (provider.response.read(100), provider.turns.taken) == (b"hi", 0)
