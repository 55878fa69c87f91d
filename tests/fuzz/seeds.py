"""Good inputs to begin with: the cases of `wire` and, where they are at hand, recordings of real providers."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gateway_project.configuration.data_directory import PROJECT

WIRE = PROJECT / "tests" / "gateway" / "dialects" / "wire"
RECORDINGS = PROJECT.parent / "shared" / "recordings"
# The number of recordings for a target, and the bytes of each.
_MAX_RECORDINGS, _MAX_BYTES = 40, 12 * 1024
# Hosts whose recordings a format reads, with a word of their addresses.
_HOSTS = {
    "openai": (
        ("api.openai.com", "/chat/completions"),
        ("api.groq.com", "/chat/completions"),
        ("api.mistral.ai", "/chat"),
    ),
    "responses": (("api.openai.com", "/responses"),),
    "anthropic": (("api.anthropic.com", "/messages"),),
    "google": (("generativelanguage.googleapis.com", "enerateContent"),),
    "cohere": (("api.cohere.com", "/chat"),),
    "bedrock": (("bedrock-runtime.us-east-1.amazonaws.com", "/converse"),),
}


def files(dialect: str, name: str) -> list[bytes]:
    """Return the files of this name among a format's cases."""
    return [path.read_bytes() for path in sorted((WIRE / dialect).glob(f"*/{name}"))]


def answers(dialect: str) -> list[bytes]:
    """Return whole answers."""
    recorded = [json.dumps(one["json"]).encode() for one in _recorded(dialect) if one["json"] and one["status"] < 300]
    return files(dialect, "reply.json") + _some(recorded)


def failures(dialect: str) -> list[bytes]:
    """Return answers that are errors."""
    recorded = [json.dumps(one["json"]).encode() for one in _recorded(dialect) if one["json"] and one["status"] >= 300]
    return _some(recorded) + files(dialect, "failure.json") + [b'{"error":{"message":"no","type":"a","code":"b"}}']


def streams(dialect: str) -> list[bytes]:
    """Return streamed answers as text."""
    recorded = [one["text"].encode() for one in _recorded(dialect) if one["text"]]
    return files(dialect, "stream.sse") + files(dialect, "stream.events") + _some(recorded)


def event_streams() -> list[bytes]:
    """Return binary event streams."""
    from tests.support.aws_event_frames import frames_of

    recorded = [base64.b64decode(one["b64"]) for one in _recorded("bedrock") if one["b64"]]
    return [frames_of(text.decode()) for text in files("bedrock", "stream.events")] + _some(recorded)


def requests(dialect: str) -> list[bytes]:
    """Return clients' requests."""
    recorded = [json.dumps(one["request"]).encode() for one in _recorded(dialect) if one["request"]]
    return files(dialect, "request.json") + _some(recorded)


def _some(found: list[bytes]) -> list[bytes]:
    small = sorted({one for one in found if len(one) <= _MAX_BYTES})
    return small[:: max(1, len(small) // _MAX_RECORDINGS)]


@cache
def _recorded(dialect: str) -> list[dict[str, Any]]:
    return [one for host, word in _HOSTS.get(dialect, ()) for one in _exchanges(RECORDINGS / f"{host}.jsonl.gz", word)]


def _exchanges(path: Path, word: str) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            if word in one["url"]:
                yield {name: one.get(name) for name in ("status", "request", "json", "text", "b64")}
