"""Every recorded exchange is read by one of the tests of recordings, or set aside for a reason that is stated here.

The recordings are not part of the project; without them this test is skipped.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from apps.gateway.dialects.chat import anthropic, google
from tests.gateway.dialects.chat.anthropic import test_recordings_anthropic
from tests.gateway.dialects.chat.bedrock import test_recordings_bedrock
from tests.gateway.dialects.chat.cohere import test_recordings_cohere
from tests.gateway.dialects.chat.google import test_recordings_google
from tests.gateway.dialects.chat.openai import test_recordings_openai
from tests.gateway.dialects.chat.openai.test_recordings_openai import RECORDINGS
from tests.gateway.dialects.chat.responses import test_recordings_responses

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")

# Ends of addresses whose answers no dialect reads.
SET_ASIDE = {
    "/embeddings": "embeddings: the gateway has no endpoint for them",
    ":batchEmbedContents": "embeddings: the gateway has no endpoint for them",
}
# Ends of addresses that count tokens: who reads the answers, and where the number is.
COUNTED = {
    "/count_tokens": (anthropic.read_count, "input_tokens"),
    ":countTokens": (google.read_count, "totalTokens"),
}


def is_read() -> set[tuple[str, str]]:
    """Return the host and the name of every exchange that a test of recordings reads."""
    found = {
        (host, exchange["name"])
        for module in (test_recordings_openai, test_recordings_responses, test_recordings_google)
        for host in module.HOSTS
        for exchange in module.exchanges(host)
    }
    found |= {("api.anthropic.com", exchange["name"]) for exchange in test_recordings_anthropic.exchanges()}
    found |= {("api.cohere.com", exchange["name"]) for exchange in test_recordings_cohere.exchanges()}
    host = test_recordings_bedrock.HOST
    return found | {(host, exchange["name"]) for exchange in test_recordings_bedrock.exchanges()}


def others() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield host and exchange of what no other test reads."""
    known = is_read()
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        host = path.name.removesuffix(".jsonl.gz")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for exchange in map(json.loads, lines):
                if (host, exchange["name"]) not in known:
                    yield host, exchange


def test_every_recorded_exchange_is_read_or_set_aside(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for host, exchange in others():
        place = exchange["url"].split("?")[0]
        reason = next((why for end, why in SET_ASIDE.items() if place.endswith(end)), None)
        if reason is None:
            known = next((reader for end, reader in COUNTED.items() if place.endswith(end)), None)
            assert known is not None, f"{host}: nobody reads {exchange['name']} from {place}"
            read, name = known
            body = json.dumps(exchange["json"]).encode()
            expected = exchange["json"].get(name) if exchange["status"] == 200 else None
            assert read(body) == expected, exchange["name"]
            reason = "counts of tokens: equal" if expected is not None else "counts of tokens: refused"
        counts[f"{host}: {reason}"] += 1
    with capsys.disabled():
        sys.stdout.write("".join(f"\n{told}: {count}" for told, count in sorted(counts.items())))
    assert counts.total() > 0
