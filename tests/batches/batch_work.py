"""Batches of the sandbox's echo: made, worked on by a worker of this process, and read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from openai import OpenAI

from apps.batches.line_runs import JOBS
from apps.batches.work import work
from tests.support.upstream import settle_all

MODEL = "sandbox/echo"
CHAT = "/v1/chat/completions"


def line(custom_id: str, content: str = "hello", *, url: str = CHAT, **fields: Any) -> dict[str, Any]:
    """Return a line that asks for a chat."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def upload(client: OpenAI, lines: Iterable[Any]) -> str:
    """Upload lines, each a value or the text of one; return the file's id."""
    texts = [text if isinstance(text, str) else json.dumps(text) for text in lines]
    return client.files.create(file=("lines.jsonl", "\n".join(texts).encode()), purpose="batch").id


def create(client: OpenAI, lines: Iterable[Any], **fields: Any) -> Any:
    """Create a batch of lines."""
    given = {"endpoint": CHAT, "completion_window": "24h", **fields}
    return client.batches.create(input_file_id=upload(client, lines), **given)


def work_all() -> None:
    """Work on all batches as far as it goes, and do the settler's work."""
    work(30)
    assert not JOBS
    settle_all()


def run(client: OpenAI, lines: Iterable[Any], **fields: Any) -> Any:
    """Create a batch, work on it, and return the batch as the API shows it then."""
    made = create(client, lines, **fields)
    work_all()
    return client.batches.retrieve(made.id)


def lines_in(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """Return the lines of a file of results; nothing for no file."""
    if file_id is None:
        return []
    return [json.loads(text) for text in client.files.content(file_id).text.splitlines()]
