"""Sending on sockets that may have no room, plain and over TLS."""

from __future__ import annotations

import socket as plain

import gevent
import pytest
from gevent import socket

from apps.kernel.concurrency.green_socket import send_all, watch_readable

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
