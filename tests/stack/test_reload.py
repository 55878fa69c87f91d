"""Replacing the web process of a running product, under load: no connection refused, no request broken."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import requests

from tests.stack.product import Product, eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def one(harmed_product: Product) -> Product:
    """The server whose web process is replaced."""
    return harmed_product


class Asker(threading.Thread):
    """A client that sends requests in a loop, on kept connections or new ones, until it is stopped."""

    def __init__(self, product: Product, *, keep: bool) -> None:
        super().__init__()
        self._product = product
        self._keep = keep
        self.over = threading.Event()
        self.statuses: list[int] = []
        self.failures: list[str] = []

    def run(self) -> None:
        session = requests.Session()
        while not self.over.is_set():
            try:
                answer = session.post(
                    f"{self._product.url}/v1/chat/completions",
                    json={"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]},
                    headers={"Authorization": f"Bearer {self._product.demo['apiKey']}"},
                    timeout=60,
                )
                self.statuses.append(answer.status_code)
            except requests.RequestException as error:
                self.failures.append(repr(error))
            if not self._keep:
                session.close()
            time.sleep(0.01)


def masters(product: Product) -> list[int]:
    """Return the ids of the web processes' masters."""
    web = product.processes("gunicorn", "gateway_project.wsgi")
    return [
        pid for pid in web if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == product.pid
    ]


def test_a_reload_under_load_refuses_and_breaks_nothing(one: Product) -> None:
    (before,) = masters(one)
    askers = [Asker(one, keep=keep) for keep in (True, True, False, False)]
    with one.chat("slow words here [[sandbox latency=1000 gap=4000 chunks=3]]", stream=True) as stream:
        assert stream.status_code == 200
        for asker in askers:
            asker.start()
        eventually(lambda: all(asker.statuses for asker in askers))
        os.kill(one.pid, signal.SIGUSR2)
        after = eventually(lambda: [pid for pid in masters(one) if pid != before], patience=60)[0]
        # The stream began before and goes on in the process that is being replaced.
        assert stream.content.endswith(b"data: [DONE]\n\n")
    eventually(lambda: masters(one) == [after], patience=60)
    for asker in askers:
        asker.over.set()
        asker.join()
    assert [failure for asker in askers for failure in asker.failures] == []
    assert {status for asker in askers for status in asker.statuses} == {200}
    assert one.chat("still there").status_code == 200


def test_a_dead_web_master_refuses_no_connection(one: Product) -> None:
    (before,) = masters(one)
    os.kill(before, signal.SIGKILL)
    began = time.monotonic()
    answered = 0
    while time.monotonic() - began < 60 and not answered:
        # Not one of them is refused; who was already taken by the dead process asks again.
        with socket.create_connection(("127.0.0.1", one.port), timeout=60) as client:
            client.settimeout(60)
            try:
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answered = client.recv(100).startswith(b"HTTP/1.1 200")
            except ConnectionResetError:
                continue
    assert answered
    assert eventually(lambda: [pid for pid in masters(one) if pid != before], patience=60)
