"""Every recorded conversation, written in each format: valid by the types of that format's own client, or refused by
naming what cannot be said. The recordings are not part of the project; without them these tests are skipped."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsBase
from google.genai import types as google_types
from msgspec.structs import replace
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, google, openai
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.chat.anthropic.test_recordings_anthropic import exchanges as anthropic_exchanges
from tests.gateway.dialects.chat.google.test_recordings_google import HOSTS as GOOGLE_HOSTS
from tests.gateway.dialects.chat.google.test_recordings_google import exchanges as google_exchanges
from tests.gateway.dialects.chat.openai.test_recordings_openai import HOSTS, RECORDINGS
from tests.gateway.dialects.chat.openai.test_recordings_openai import exchanges as openai_exchanges

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")

OPENAI: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsBase)
ANTHROPIC: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsBase)
# Words of the refusals that are right: what a format has no words for.
SAID = {
    "n is not available from this model's provider",
    "logprobs is not available from this model's provider",
    "modalities is not available from this model's provider",
    "A message holds content that this model's provider has no form for",
    "A web search cannot be combined with functions for this model",
    "Web search is not available from this model's provider",
    "A file says neither its media type nor a filename that tells it",
    "cachedContent is not available from this model's provider",
    "mcp_servers: only models that are called in Anthropic's format can use them",
}
# The same of a tool, or of a block, which is named.
KINDS = re.compile(
    r"[\w:.-]+ is a tool that this model's provider does not have"
    r"|A message holds content that this model's provider has no form for: [\w:.-]+"
    r"|Tools of the type [\w:.-]+ are not available from this model's provider"
)
# Older models take these; Anthropic's own client names them no more.
SAMPLING = ("temperature", "top_p", "top_k")
FACTS: dict[str, dict[str, Any]] = {
    "openai": {"developer_role": True, "takes": ["web_search_options"]},
    "anthropic": {},
    "google": {},
}


def conversations(source: str, hosts: tuple[str, ...] = HOSTS) -> Iterator[tuple[str, Chat]]:
    """Yield the name of each recorded request of a format that can be read, and what it asks for."""
    found: list[tuple[Any, dict[str, Any]]] = []
    if source == "openai":
        found = [(openai, exchange) for host in hosts for exchange in openai_exchanges(host)]
    elif source == "anthropic":
        found = [(anthropic, exchange) for exchange in anthropic_exchanges()]
    else:
        found = [(google, exchange) for host in GOOGLE_HOSTS for exchange in google_exchanges(host)]
    for dialect, exchange in found:
        try:
            yield exchange["name"], dialect.read_request(json.dumps(exchange["request"]).encode())
        except InvalidRequest:
            continue


def consumed(value: Any) -> Any:
    """Read what pydantic checks only when it is read."""
    if isinstance(value, dict):
        return {name: consumed(inner) for name, inner in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [consumed(inner) for inner in value]


def assert_openais(wire: dict[str, Any]) -> None:
    consumed(OPENAI.validate_python(wire))
    assert wire.keys() <= {*get_type_hints(CompletionCreateParamsBase), "stream", "top_k"}


def assert_anthropics(wire: dict[str, Any]) -> None:
    consumed(ANTHROPIC.validate_python(wire))
    assert wire.keys() <= {*get_type_hints(MessageCreateParamsBase), "stream", *SAMPLING}
    roles = [message["role"] for message in wire["messages"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in pairwise(roles))


def assert_googles(wire: dict[str, Any]) -> None:
    assert wire.keys() <= {"systemInstruction", "contents", "tools", "toolConfig", "generationConfig", "serviceTier"}
    for content in [*wire["contents"], wire.get("systemInstruction", {"parts": []})]:
        google_types.Content.model_validate(content)
    for tool in wire.get("tools", []):
        google_types.Tool.model_validate(tool)
    google_types.ToolConfig.model_validate(wire.get("toolConfig", {}))
    config = dict(wire.get("generationConfig", {}))
    google_types.ImageConfig.model_validate(config.pop("imageConfig", {}))
    google_types.GenerationConfig.model_validate(config)


WRITERS: dict[str, Any] = {
    "openai": (openai, assert_openais),
    "anthropic": (anthropic, assert_anthropics),
    "google": (google, assert_googles),
}


@pytest.mark.parametrize("source", ["openai", "anthropic", "google"])
@pytest.mark.parametrize("name", WRITERS)
def test_every_recorded_conversation_is_written_validly_or_refused_with_a_reason(source: str, name: str) -> None:
    dialect, assert_valid = WRITERS[name]
    written, lost = 0, 0
    refused: Counter[str] = Counter()
    # OpenAI's own types hold for what its own clients write; those of its alikes have words of their own.
    for exchange, chat in conversations(source, HOSTS[:1] if source == name else HOSTS):
        target = Target(model_name="a-model", facts=FACTS[name], max_output=8_000)
        try:
            wire = json.loads(dialect.write_request(replace(chat, source=None), target))
        except InvalidRequest as error:
            refused[error.message if error.code == "unsupported_feature" and error.param else exchange] += 1
            continue
        if source == name and name != "openai":
            # Previews are not in the types: recorded requests come out as they went in by a test of their own.
            written += 1
            continue
        try:
            assert_valid(wire)
        except Exception as error:
            raise AssertionError(f"{exchange}: {error}\n{json.dumps(wire)[:2000]}") from error
        written += 1
        lost += bool(target.dropped_fields)
    told = f"{source} -> {name}: {written} written, {lost} of them with losses, refused: {dict(refused)}"
    sys.stdout.write(f"{told}\n")
    assert written > 100
    assert {words for words in refused if not KINDS.fullmatch(words)} <= SAID
