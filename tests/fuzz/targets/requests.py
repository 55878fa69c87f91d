"""Clients' requests in every format: taken, or refused by `InvalidRequest` that names the field; guardrails can scan
a request that was taken, and it can be written to every provider or refused in words."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.chat import Target as Place
from apps.gateway.dialects.chat.anthropic.client.read_request import read_prompt
from apps.gateway.guard.chat_texts import ChatTexts
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.errors import ApiError, InvalidRequest
from tests.fuzz import seeds
from tests.fuzz.target import Target
from tests.fuzz.targets.answers import DIALECTS
from tests.gateway.dialects.test_laws import dialect_facts
from tests.gateway.dialects.test_strange_values import ALL_CLIENTS, REQUESTS

_FACTS = {name: dialect_facts(DIALECTS[name]) for name in ("openai", "anthropic", "google", "bedrock")}


def run_request(dialect: Any, data: bytes) -> None:
    """Read a request and ask every provider."""
    try:
        chat = dialect.read_request(data)
    except InvalidRequest as error:
        json.loads(dialect.write_error(error))
        return
    assert isinstance(chat, Chat)
    assert estimate_prompt_tokens(chat) >= 0
    for name, other in DIALECTS.items():
        for source in {id(chat.source): chat.source, 0: None}.values():
            place = Place(model_name="m", facts=_FACTS.get(name, {}))
            asked = replace(chat, source=source)
            with contextlib.suppress(ApiError):
                written = other.write_request(asked, place)
                assert isinstance(json.loads(written), dict)
                assert isinstance(other.path(asked, place), str)
                other.headers(asked, place)
                other.signature_format(asked, place)
    for passage in ChatTexts(chat).texts:
        assert isinstance(passage.text, str)


def run_prompt(data: bytes) -> None:
    """Read a question how many tokens a prompt has."""
    with contextlib.suppress(InvalidRequest):
        assert isinstance(read_prompt(data), Chat)


def _requests(name: str) -> list[bytes]:
    return seeds.requests(name) + [json.dumps(request).encode() for request in REQUESTS.get(name, ())]


TARGETS = [
    *(
        Target(f"{name}_request", partial(run_request, client), partial(_requests, name), "json", runs=140)
        for name, client in ALL_CLIENTS.items()
    ),
    Target("anthropic_prompt", run_prompt, partial(seeds.requests, "anthropic"), shape="json", runs=100),
]
