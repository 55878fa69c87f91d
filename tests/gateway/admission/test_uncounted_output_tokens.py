"""A stream may count more than it shows: none goes out without a limit that is held for; credits are not passed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from apps.logs.models import RequestLog
from tests.support.credits_left import CENT, SLIP, chunks_in, credited, credits_of, held, priced, warnings_of
from tests.support.model_routes import post
from tests.support.providers_of_every_format import play
from tests.support.upstream import Caller, settle_all

HIDDEN = "words=4 hidden=20000"
# Where each format has the limit on an answer.
LIMITS = {
    "openai": ("max_tokens",),
    "anthropic": ("max_tokens",),
    "azure_anthropic": ("max_tokens",),
    "vertex_anthropic": ("max_tokens",),
    "vertex_openai": ("max_tokens",),
    "google": ("generationConfig", "maxOutputTokens"),
    "vertex": ("generationConfig", "maxOutputTokens"),
    "responses": ("max_output_tokens",),
    "bedrock": ("inferenceConfig", "maxTokens"),
    "cohere": ("max_tokens",),
}
# How each client asks for a stream, without a limit where its format allows that.
QUESTION = "hi [[sandbox {script}]]"
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64_000}),
    "responses": ("/v1/responses", {"input": QUESTION}),
    "completions": ("/v1/completions", {"prompt": QUESTION}),
    "google": ("", {"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]}),
}


def ask(caller: Caller, client: str, model: str, script: str, *, stream: bool = True) -> Any:
    """Ask in a client's format; return the whole answer."""
    path, body = CLIENTS[client]
    body = json.loads(json.dumps(body).replace("{script}", script))
    headers = {"Authorization": f"Bearer {caller.token}"}
    if client == "google":
        path = f"/v1beta/models/{model}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
    else:
        body |= {"model": model, "stream": stream}
    answer = caller.client.post(path, body, content_type="application/json", headers=headers)
    content = b"".join(answer._iterator) if getattr(answer, "streaming", False) else answer.content
    assert answer.status_code == 200, content
    return content


def limit_in(body: dict[str, Any], path: tuple[str, ...]) -> int:
    value: Any = body
    for name in path:
        value = value[name]
    return int(value)


def test_many_streams_at_once_that_count_unseen_never_pass_the_credits(caller: Caller) -> None:
    priced("0.4", max_output=32_768)
    credited(caller, "0.05")
    streams = []
    for number in range(60):
        response = caller.chat(f"number {number} [[sandbox words=4 hidden=40000]]", stream=True)
        assert response.status_code in (200, 402)
        if response.status_code == 200:
            streams.append(response._iterator)
        assert held(caller) <= Decimal("0.05")
    assert len(streams) >= 20
    for stream in streams:
        *_, last, done = chunks_in(b"".join(stream))
        assert (last["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
        assert warnings_of(last["metadata"]) == ["max_tokens"]
    assert settle_all() == len(streams)
    spent = sum(RequestLog.objects.values_list("cost", flat=True))
    assert spent <= Decimal("0.05") + SLIP
    assert credits_of(caller) == Decimal("0.05") - spent
    assert held(caller) == 0
    for row in RequestLog.objects.all():
        (warning,) = row.routing_metadata["warnings"]
        told = (
            f"the remaining balance or limit covers an answer of {row.completion_tokens} tokens; that is the limit now"
        )
        assert (warning["message"], row.unified_finish_reason) == (told, "length_limit")


def test_a_stream_of_ample_credits_is_given_no_limit(caller: Caller) -> None:
    priced("0.4", max_output=32_768)
    tag = uuid4().hex
    *_, last, _ = chunks_in(
        post(caller, "chat", f"hi [[sandbox {HIDDEN} tag={tag}]]", stream=True, max_tokens=None).content
    )
    assert "max_tokens" not in caller.sent(tag)[0]["body"]
    assert (last["choices"][0]["finish_reason"], warnings_of(last["metadata"])) == ("stop", [])
    settle_all()
    assert RequestLog.objects.get().completion_tokens == 20_007


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire_format", LIMITS)
def test_every_provider_is_told_the_limit(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wire_format: str, stream: bool
) -> None:
    prices = {"input": "0.15", "output": "0.6"}
    play(caller, wire_format, monkeypatch, tmp_path, prices=prices, max_output=65_536, context_length=200_000)
    credited(caller, CENT)
    tag = uuid4().hex
    ask(caller, "chat", "other/echo", f"{HIDDEN} tag={tag}", stream=stream)
    limit = limit_in(caller.sent(tag)[0]["body"], LIMITS[wire_format])
    assert 4_100 < limit < 4_167
    settle_all()
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, credits_of(caller)) == ("length_limit", CENT - row.cost)
    assert row.cost <= CENT / 4 + SLIP


@pytest.mark.parametrize("spoken", CLIENTS)
@pytest.mark.parametrize("wire_format", ["openai", "anthropic", "google", "responses"])
def test_every_client_gets_the_limit_that_is_covered(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wire_format: str, spoken: str
) -> None:
    prices = {"input": "0.15", "output": "0.6"}
    play(caller, wire_format, monkeypatch, tmp_path, prices=prices, max_output=65_536, context_length=200_000)
    credited(caller, CENT)
    tag = uuid4().hex
    ask(caller, spoken, "other/echo", f"{HIDDEN} tag={tag}")
    assert 4_000 < limit_in(caller.sent(tag)[0]["body"], LIMITS[wire_format]) < 4_167
    settle_all()
    row = RequestLog.objects.get()
    assert row.unified_finish_reason == "length_limit"
    assert row.cost <= CENT / 4 + SLIP
    name = {"responses": "max_output_tokens", "google": "generationConfig.maxOutputTokens"}.get(spoken, "max_tokens")
    assert name in [one["param"] for one in row.routing_metadata["warnings"]]


def test_the_limit_of_a_stream_follows_the_price_of_who_answers(caller: Caller, backup: str) -> None:
    credited(caller, CENT)
    tag = uuid4().hex
    script = f"hi [[sandbox {HIDDEN} tag={tag} times=1 status=500]]"
    answer = post(caller, "chat", script, max_tokens=None, model="echo", stream=True)
    assert answer.status == 200
    first, second = (sent["body"]["max_tokens"] for sent in caller.sent(tag))
    # The hold covers ten times as many tokens of the first, whose prices are a tenth.
    assert second == pytest.approx(first / 10, rel=0.1)
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, row.completion_tokens) == (backup, second)
    assert credits_of(caller) == CENT - row.cost > 0


def test_both_calls_of_a_hedged_stream_have_a_limit(caller: Caller, backup: str) -> None:
    credited(caller, CENT)
    tag = uuid4().hex
    script = f"hi [[sandbox {HIDDEN} latency=600 tag={tag}]]"
    post(caller, "chat", script, max_tokens=None, model="echo", stream=True, headers={"X-Hedge": "50"})
    limits = [sent["body"]["max_tokens"] for sent in caller.sent(tag)]
    assert len(limits) == 2
    assert max(limits) < 4_167
    settle_all()
    assert credits_of(caller) > CENT / 2


def test_a_lowered_limit_stays_above_a_budget_of_thinking(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prices = {"input": "0.15", "output": "0.6"}
    play(caller, "anthropic", monkeypatch, tmp_path, prices=prices, max_output=65_536, context_length=200_000)
    thinking = {"type": "enabled", "budget_tokens": 8_000}
    for credits, status in (("0.01", 200), ("0.004", 402)):
        credited(caller, credits)
        tag = uuid4().hex
        fields = {"model": "other/echo", "stream": True, "max_tokens": 32_000, "thinking": thinking}
        answer = post(caller, "messages", f"hi [[sandbox tag={tag}]]", **fields)
        assert answer.status == status, answer.content
        if status == 200:
            assert 8_256 <= caller.sent(tag)[0]["body"]["max_tokens"] < 8_300
