"""A full disk under everything the product keeps: whatever was answered is recorded afterwards, once."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.stack.product import Product, eventually

pytestmark = [pytest.mark.stack, pytest.mark.long]

MEGABYTE = 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room; a test that may not make one is left out."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=260m,mode=0711", "tmpfs", str(place)]
    try:
        subprocess.run(mounting, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system")
    (place / "home").mkdir()
    yield place / "home"
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=60)


class Clients:
    """Eight who ask without a pause; what each request was answered, by its id."""

    def __init__(self, product: Product) -> None:
        self.answers: dict[str, tuple[int, str | None, str]] = {}
        self.failed: list[str] = []
        self._product = product
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(8)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stopping.is_set():
            request_id = uuid4().hex
            try:
                answer = self._product.chat("hi [[sandbox usage=300,40 latency=100]]", request_id)
            except requests.RequestException as error:
                self.failed.append(type(error).__name__)
                continue
            told = "" if answer.status_code == 200 else str(answer.json()["error"]["code"])
            self.answers[request_id] = answer.status_code, answer.headers.get("Retry-After"), told
            if answer.status_code != 200:
                time.sleep(0.05)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)


def fill(folder: Path) -> Path:
    """Take all the room there is; return the file that has it."""
    filler = folder / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(descriptor, bytes(65536))
    os.close(descriptor)
    return filler


@pytest.mark.timeout(300)
def test_on_a_full_disk_nothing_that_was_answered_is_lost(small_disk: Path) -> None:
    # Little room of its own, so that memory has to do as well.
    product = Product(small_disk, RECORD_SPOOL_SIZE="32768", DISK_FREE_ALARM=str(20 * MEGABYTE))
    workers = product.processes("gunicorn")
    clients = Clients(product)
    eventually(lambda: len(clients.answers) > 20)
    filler = fill(small_disk)
    refusal = (503, "5", "overloaded")
    eventually(lambda: refusal in clients.answers.values())
    health = requests.get(product.url, timeout=60).json()
    assert health["message"] == "Failed: redis, records"
    assert health["health"]["records"]["error"].startswith("Records cannot be stored: ")
    assert health["health"]["disk"]["warning"] == "Little space is left"
    eventually(lambda: product.metrics()["gateway_records_in_memory"] > 0)
    eventually(lambda: product.metrics()['gateway_home_free_bytes{folder="home"}'] < MEGABYTE)
    filler.unlink()
    eventually(lambda: requests.get(product.url, timeout=60).status_code == 200)
    clients.stop()
    # It killed no worker, and caused no other refusals.
    assert product.processes("gunicorn") == workers
    assert clients.failed == []
    assert Counter(clients.answers.values()).keys() == {(200, None, ""), refusal}
    answered = {request_id for request_id, answer in clients.answers.items() if answer[0] == 200}
    eventually(lambda: len(product.all_logs()) >= len(answered))
    rows = product.all_logs()
    assert Counter(row["requestId"] for row in rows) == Counter(answered)
    assert [row for row in rows if row["hasError"]] == []
    assert product.manage("check_ledger") == "Every balance equals the sum of its ledger entries.\n"
    assert list((small_disk / "spool").iterdir()) == []
    assert product.stop() == 0
