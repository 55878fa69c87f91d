"""Real conversations of other formats, written in the Responses format: each satisfies OpenAI's own types, or is
refused for a reason that is named. The recordings are not part of the project; without them these tests are skipped."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, openai, responses
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.chat.anthropic import test_recordings_anthropic
from tests.gateway.dialects.chat.openai import test_recordings_openai
from tests.gateway.dialects.chat.responses.test_recordings_responses import FACTS, RECORDINGS
from tests.support.responses_bodies import assert_well_formed

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def chats() -> Iterator[tuple[str, Chat]]:
    """Yield the conversations of other formats that the recordings hold, each with its host; not those that say what
    a client of ours may not, which another test names."""
    for host in test_recordings_openai.HOSTS:
        for exchange in test_recordings_openai.exchanges(host):
            if exchange["name"] not in test_recordings_openai.NOT_OPENAIS:
                yield host, openai.read_request(json.dumps(exchange["request"]).encode())
    for exchange in test_recordings_anthropic.exchanges():
        yield "api.anthropic.com", anthropic.read_request(json.dumps(exchange["request"]).encode())


def test_recorded_conversations_written_in_this_format_satisfy_openais_types(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts: Counter[str] = Counter()
    for host, chat in chats():
        target = Target(model_name="gpt", facts=FACTS, dropped_fields=[])
        try:
            wire = json.loads(responses.write_request(chat, target))
        except InvalidRequest as refusal:
            counts[f"{refusal.code} {(refusal.param or '').split('[')[0]}: {refusal.message.split(': ')[-1]}"] += 1
            continue
        assert_well_formed(wire)
        counts[host] += 1
        counts.update({f"lost {loss.param.split('.')[-1]}": 1 for loss in target.dropped_fields})
    assert counts["api.openai.com"] > 100
    with capsys.disabled():
        sys.stdout.write("".join(f"\n{name}: {count}" for name, count in sorted(counts.items())))
