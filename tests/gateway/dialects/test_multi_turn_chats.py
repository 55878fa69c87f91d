"""Second turns of each client format in each provider format: a part that does not come back is reported or refused."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any, Final

import pytest

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, google, openai, responses
from apps.kernel.errors import InvalidRequest
from tests.gateway.dialects.second_turns import BODIES, DRAWN, PDF, PICTURE, SEAL

READERS: Final = {"chat": openai, "messages": anthropic, "responses": responses, "gemini": google}
# Providers whose models read earlier thinking, where their format has words for it.
PROVIDERS: Final[dict[ModuleType, dict[str, Any]]] = {
    openai: {"reasoning_field": "reasoning_content"},
    responses: {},
    anthropic: {},
    google: {},
    bedrock: {"takes": ["citations"]},
    cohere: {"reasoning_budget": {"min": 1, "max": 1000}},
}
MARKS: Final = re.compile(
    "|".join([r"(?:ASKED|SAID|CALLED|FOUND|THOUGHT|CITED)-\w+", "SIGNED", *map(re.escape, (SEAL, PICTURE, DRAWN, PDF))])
)
# A seal is for its maker's eyes, and citations come back with an answer without asking for anything: their loss alone
# changes no model's answer.
HARMLESS: Final = frozenset({"SIGNED", SEAL, "CITED-1"})
THINKING = {"thinking", "signed thinking", "sealed thinking", "thinking in the open", "two rounds"}
# Parts that a provider's format has no form for at all.
REFUSED: Final = {
    ("chat", "a document", "cohere"),
    ("messages", "a document in a result", "cohere"),
    ("messages", "citations", "cohere"),
    ("responses", "a document", "cohere"),
    ("gemini", "a document", "cohere"),
}

CASES = [(client, name, provider) for client, (told, _, _) in BODIES.items() for name in told for provider in PROVIDERS]


def sent(client: str, name: str, provider: ModuleType) -> tuple[set[str], list[str]]:
    """Return the marks that do not reach a provider, and the fields that are reported as dropped."""
    conversations, field, rest = BODIES[client]
    body = json.dumps({**rest, field: conversations[name]})
    target = Target(model_name="m", facts=PROVIDERS[provider])
    wire = provider.write_request(READERS[client].read_request(body.encode()), target).decode()
    lost = {mark for mark in MARKS.findall(json.dumps(conversations[name])) if mark not in wire}
    return lost, [dropped.param for dropped in target.dropped_fields]


@pytest.mark.parametrize(
    ("client", "name", "provider"), CASES, ids=[f"{client}-{name}-{provider.NAME}" for client, name, provider in CASES]
)
def test_what_does_not_come_back_is_told(client: str, name: str, provider: ModuleType) -> None:
    if (client, name, provider.NAME) in REFUSED:
        with pytest.raises(InvalidRequest) as refusal:
            sent(client, name, provider)
        assert refusal.value.code == "unsupported_feature"
        return
    lost, told = sent(client, name, provider)
    if not told:
        assert lost <= HARMLESS
        return
    # Words, calls, results and what a user shows always arrive; what a provider's own tool did is not told twice.
    owned = {"CALLED-1", "FOUND-1"} if name == "code that the provider ran" else set()
    assert {mark for mark in lost if not mark.startswith("THOUGHT")} <= HARMLESS | {DRAWN} | owned
    assert len(told) == len(set(told))


@pytest.mark.parametrize("client", BODIES)
def test_each_format_has_at_least_ten_conversations(client: str) -> None:
    assert len(BODIES[client][0]) >= 10


def test_thinking_comes_back_to_providers_that_read_it_from_anybody() -> None:
    for client, (conversations, _, _) in BODIES.items():
        for name in THINKING & conversations.keys():
            for provider in (openai, cohere):
                lost, _ = sent(client, name, provider)
                assert not any(mark.startswith("THOUGHT") for mark in lost), (client, name, provider.NAME)


def test_details_alone_bring_thinking_back_as_text() -> None:
    conversations, field, rest = BODIES["chat"]
    body = json.dumps({**rest, field: conversations["signed thinking"]}).encode()
    for facts, brought in (
        ({"reasoning_field": "reasoning"}, {"reasoning": "THOUGHT-1"}),
        ({"reasoning_field": "reasoning_content"}, {"reasoning_content": "THOUGHT-1"}),
        ({}, {}),
    ):
        wire = json.loads(openai.write_request(openai.read_request(body), Target(model_name="m", facts=facts)))
        told = {name: value for name, value in wire["messages"][1].items() if name.startswith("reasoning")}
        assert told == brought


def test_a_picture_that_a_model_made_is_told_where_it_is_not_taken_back() -> None:
    for client, field in (("chat", "messages[1].images"), ("gemini", "contents.images")):
        for provider in (openai, responses, anthropic, cohere):
            assert sent(client, "a picture that the model made", provider) == ({DRAWN}, [field])
        assert sent(client, "a picture that the model made", google) == (set(), [])
