"""Sending on sockets that may have no room, plain and over TLS."""

from __future__ import annotations

import socket as plain
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import socket, ssl

from apps.kernel.concurrency import green_socket
from apps.kernel.concurrency.green_socket import GatheringSender, send_all, watch_readable
from tests.support.valkey_tls import Tls

LARGE = bytes(range(256)) * 40_000


def receive_all(sock: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += sock.recv(65_536)
    return received


@pytest.mark.parametrize("timeout", [None, 0.0, 7.0])
def test_what_has_no_room_is_sent_as_it_is_taken_and_the_sockets_timeout_stays(timeout: float | None) -> None:
    sender, receiver = socket.socketpair()
    sender.settimeout(timeout)
    sending = gevent.spawn(send_all, sender, LARGE, 10.0)
    assert receive_all(receiver, len(LARGE)) == LARGE
    sending.get(timeout=5)
    assert sender.gettimeout() == timeout


def test_a_reader_that_takes_nothing_ends_the_send_after_its_seconds() -> None:
    sender, receiver = socket.socketpair()
    sender.settimeout(0.0)
    with pytest.raises(TimeoutError):
        send_all(sender, LARGE, 0.05)
    assert sender.gettimeout() == 0.0
    receiver.close()
    with pytest.raises(OSError, match="Broken pipe"):
        send_all(sender, b"x")


def test_a_socket_that_is_not_gevents_is_sent_to_as_well() -> None:
    sender, receiver = plain.socketpair()
    send_all(sender, b"all of it")
    assert receiver.recv(100) == b"all of it"


def test_a_watcher_waits_until_there_is_something_to_read() -> None:
    sender, receiver = socket.socketpair()
    watcher = watch_readable(receiver)
    waiting = gevent.spawn(gevent.get_hub().wait, watcher)
    gevent.sleep(0.01)
    assert not waiting.ready()
    send_all(sender, b"x")
    waiting.get(timeout=5)
    watcher.close()


class CountedSends:
    """The socket below one of gevent's, and the bytes of each of its sends."""

    def __init__(self, sock: Any) -> None:
        self._below = sock._sock
        self.sends: list[bytes] = []

    def send(self, data: bytes) -> int:
        """Send as much as there is room for."""
        self.sends.append(data)
        return int(self._below.send(data))


class Sent:
    """A sender over one end of a pair of sockets, and the other end."""

    def __init__(self) -> None:
        self.ours, self.receiver = socket.socketpair()
        self.counted = CountedSends(self.ours)
        self.sender = GatheringSender(self.counted, 5.0)  # type: ignore[arg-type] # as far as it is used


def test_gathered_pieces_leave_together_when_the_greenlet_waits() -> None:
    sent = Sent()
    for piece in (b"one ", b"two ", b"three"):
        sent.sender.gather(piece)
    assert sent.counted.sends == []
    gevent.sleep(0)
    assert sent.counted.sends == [b"one two three"]
    sent.sender.gather(b"more")
    gevent.sleep(0)
    assert sent.counted.sends == [b"one two three", b"more"]
    assert receive_all(sent.receiver, 17) == b"one two threemore"


def test_gathered_pieces_leave_with_the_next_send() -> None:
    sent = Sent()
    sent.sender.gather(b"one ")
    sent.sender.send(b"two")
    assert sent.counted.sends == [b"one two"]
    gevent.sleep(0)
    sent.sender.flush()
    assert sent.counted.sends == [b"one two"]


def test_many_gathered_bytes_do_not_wait() -> None:
    sent = Sent()
    for _ in range(64):
        sent.sender.gather(b"x" * 1024)
    assert [len(data) for data in sent.counted.sends] == [64 * 1024]


def test_gathered_pieces_without_room_leave_as_the_reader_takes_them() -> None:
    sender, receiver = socket.socketpair()
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += sender._sock.send(LARGE[:4096])
    gathering = GatheringSender(sender, 5.0)
    gathering.gather(b"late ")
    gevent.sleep(0)
    gathering.gather(b"later")
    assert receive_all(receiver, filled + 10)[filled:] == b"late later"
    gathering.close()


def test_a_send_behind_gathered_pieces_without_room_keeps_their_order() -> None:
    sender, receiver = socket.socketpair()
    gathering = GatheringSender(sender, 5.0)
    # Each is too large for the room there is, and sent by the loop as far as it goes.
    pieces = [bytes([number]) * 60_000 for number in range(30)]

    def write() -> None:
        for piece in pieces:
            gathering.gather(piece)
            gevent.sleep(0)
        gathering.send(b"end")

    writing = gevent.spawn(write)
    expected = b"".join(pieces) + b"end"
    assert receive_all(receiver, len(expected)) == expected
    writing.get(timeout=5)


def test_a_lost_connection_ends_the_next_piece() -> None:
    sent = Sent()
    sent.receiver.close()
    sent.sender.gather(b"one")
    gevent.sleep(0)
    with pytest.raises(ConnectionResetError):
        sent.sender.gather(b"two")
    with pytest.raises(ConnectionResetError):
        sent.sender.send(b"three")
    assert sent.counted.sends == [b"one"]


def test_closing_sends_what_was_gathered() -> None:
    sent = Sent()
    sent.sender.gather(b"last")
    sent.sender.close()
    assert sent.counted.sends == [b"last"]
    gevent.sleep(0)
    assert sent.counted.sends == [b"last"]


def test_over_tls_pieces_are_sent_encrypted_and_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a worker, where gevent's sockets are the only ones.
    monkeypatch.setattr(green_socket, "ssl", ssl)
    tls = Tls(Path(), tmp_path)
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.load_verify_locations(tls.authority)
    serving.load_cert_chain(tls.certificate, tls.key)
    inner, outer = socket.socketpair()
    greeting = gevent.spawn(asking.wrap_socket, outer, server_hostname="localhost")
    sender = serving.wrap_socket(inner, server_side=True)
    receiver = greeting.get(timeout=5)
    gathering = GatheringSender(sender, 5.0)
    gathering.gather(b"one ")
    assert receive_all(receiver, 4) == b"one "
    gathering.gather(b"two ")
    gathering.close()
    assert receive_all(receiver, 4) == b"two "
