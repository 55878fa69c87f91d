"""Crowds that fill what tenants share: batches of many lines, and files without credits.

Each takes a `Task` and returns statuses, how many of each, and figures.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, Protocol

import requests

from tests.attack.wire import HERE

Got = Counter[str]
# Batches of a crowd and lines of each; files of a crowd and bytes of each.
BATCHES, LINES = 20, 2_000
FILES, FILE_BYTES = 8, 20 * 1024**2
_TIMEOUT, _PATIENCE = 60.0, 90.0
_CHAT = "/v1/chat/completions"
_ENDED = {"completed", "failed", "expired", "cancelled"}


class Target(Protocol):
    """Where to ask, and with whose keys: two organizations that keep content, and one without credits."""

    port: int
    keeper: str
    other_keeper: str
    penniless: str
    clients: int


def batch_crowd(task: Target) -> Got:
    """Make a crowd of batches of one file, cancel half of them, and time another tenant's batch of one line."""
    own, other = _Client(task.port, task.keeper), _Client(task.port, task.other_keeper)
    calm = _seconds_of_one_line(other)
    got: Got = Counter()
    file_id = own.upload([_line(number) for number in range(LINES)])
    made = []
    for _ in range(task.clients or BATCHES):
        answer = own.ask("POST", "/v1/batches", **_batch(file_id))
        got[str(answer.status_code)] += 1
        if answer.ok:
            made.append(answer.json()["id"])
    for batch_id in made[::2]:
        own.ask("POST", f"/v1/batches/{batch_id}/cancel")
    beside = _seconds_of_one_line(other)
    for batch_id in made:
        own.ask("POST", f"/v1/batches/{batch_id}/cancel")
    got["another's batch, calm, ms"] = round(calm * 1000)
    got["another's batch, beside it, ms"] = round(beside * 1000)
    return got


def storage(task: Target) -> Got:
    """Upload files of 20 MB as an organization on the free plan without credits, and count what stays."""
    poor = _Client(task.port, task.penniless)
    content, got = b"x" * FILE_BYTES, Counter[str]()
    for number in range(task.clients or FILES):
        form: Any = {"file": (f"{number}.txt", content), "purpose": (None, "user_data")}
        got[str(poor.ask("POST", "/v1/files", files=form).status_code)] += 1
    kept = poor.ask("GET", "/v1/files").json()["data"]
    got["stored, MB"] = round(sum(file["bytes"] for file in kept) / 1024**2)
    for file in kept:
        poor.ask("DELETE", f"/v1/files/{file['id']}")
    return got


class _Client:
    def __init__(self, port: int, token: str) -> None:
        self._url, self._headers = f"http://{HERE}:{port}", {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, files: Any = None, **body: Any) -> requests.Response:
        sent: dict[str, Any] = {"json": body or None} if files is None else {"files": files}
        return requests.request(method, self._url + path, headers=self._headers, timeout=_TIMEOUT, **sent)

    def upload(self, lines: list[dict[str, Any]]) -> str:
        content = "\n".join(map(json.dumps, lines)).encode()
        form = {"file": ("lines.jsonl", content), "purpose": (None, "batch")}
        return str(self.ask("POST", "/v1/files", files=form).json()["id"])


def _seconds_of_one_line(client: _Client) -> float:
    """Return how long a batch of one line takes to end."""
    began = time.monotonic()
    batch_id = client.ask("POST", "/v1/batches", **_batch(client.upload([_line(0)]))).json()["id"]
    while time.monotonic() < began + _PATIENCE:
        if client.ask("GET", f"/v1/batches/{batch_id}").json()["status"] in _ENDED:
            break
        time.sleep(0.1)
    return time.monotonic() - began


def _batch(file_id: str) -> dict[str, str]:
    return {"input_file_id": file_id, "endpoint": _CHAT, "completion_window": "24h"}


def _line(number: int) -> dict[str, Any]:
    body = {"model": "sandbox/echo", "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}
    return {"custom_id": str(number), "method": "POST", "url": _CHAT, "body": body}
