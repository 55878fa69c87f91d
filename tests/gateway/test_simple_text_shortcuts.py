"""The short cuts of simple text lead to the same decisions, the same holds and the same requests as the whole way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.billing.pricing import cost_of, price_text
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential
from apps.gateway.access.policy import OwnCredential, Policy
from apps.gateway.admission.worst_case import estimate_worst_case
from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.dialects.chat.openai import CLIENT
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates, resolve_candidates
from apps.gateway.routing.circuit_breaker import ProviderStats
from apps.gateway.routing.preferences import choose_order
from apps.gateway.routing.ranking import RequestProfile
from apps.gateway.upstream.failover import Hedge
from apps.kernel.errors import ApiError
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage
from apps.logs.models import RequestLog
from tests.billing.test_price_factors import whole_cards
from tests.billing.test_pricing import shares
from tests.catalog.small import catalog, model, offer, provider
from tests.gateway.dialects.test_laws import DIALECTS
from tests.support.canonical_chats import chats as any_chats
from tests.support.canonical_chats import maybe, texts, words
from tests.support.property_examples import examples
from tests.support.upstream import Caller, settle_all

ROLES = ("system", "developer", "user", "assistant")
messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(ROLES),
        parts=st.lists(st.builds(Text, text=texts), min_size=1, max_size=2),
        name=st.none() | st.just("ann"),
    ),
    min_size=1,
    max_size=3,
)
# Simple text mostly, now and then with something that is special.
text_chats = st.builds(
    Chat,
    model=st.just("fox"),
    messages=messages,
    stream=st.booleans(),
    max_tokens=maybe(st.integers(1, 3_000)),
    temperature=maybe(st.floats(0, 2)),
    stop=maybe(st.lists(words, max_size=2)),
    user=maybe(words),
    n=st.none() | st.sampled_from((1, 2)),
    extra=st.none() | st.just({"strange": 1}),
    service_tier=st.none() | st.sampled_from(("auto", "flex")),
    dialect=st.sampled_from(("openai", "anthropic", "google", None)),
)
chats = text_chats | any_chats("openai").map(lambda chat: msgspec.structs.replace(chat, model="fox"))
tokens = st.integers(0, 5_000)
FACTS: tuple[dict[str, Any], ...] = (
    {},
    {"tier_by_account": True},
    {"reasoning_field": "reasoning"},
    {"searches_unasked": 2},
    {"unsupported": ["n", "stop"], "takes": ["cache_control"]},
    {"dialect": "anthropic"},
    {"images": {"dialect": "openai", "most": 1}},
)
IDENTIFIER = UUID(int=1)


def offers_of(draw: st.DrawFn) -> tuple[Any, ...]:
    """Draw what one to three providers offer of a model."""
    return tuple(
        offer(
            f"p{number}",
            "fox",
            provider=provider(f"p{number}", priority=draw(st.sampled_from((0.0, 0.5, 1.0)))),
            prices=draw(whole_cards),
            facts=draw(st.sampled_from(FACTS)),
            context_length=draw(st.none() | st.integers(1, 4_000)),
            max_output=draw(st.none() | st.integers(1, 2_000)),
            streaming=draw(st.booleans()),
            tools=draw(st.booleans()),
            reasoning=draw(st.booleans()),
            priority=draw(st.sampled_from((0.0, 1.0))),
        )
        for number in range(draw(st.integers(1, 3)))
    )


def policy_of(mode: str = API_KEYS) -> Policy:
    """Return a policy with a credential at every provider."""
    own = {name: (OwnCredential(IDENTIFIER, name, name, "", b"", IDENTIFIER),) for name in ("p0", "p1", "p2")}
    return Policy(
        api_key_id=IDENTIFIER,
        project_id=IDENTIFIER,
        organization_id=IDENTIFIER,
        plan="enterprise",
        mode=mode,
        retention="none",
        requests_per_minute=None,
        key_requests_per_minute=None,
        concurrency=None,
        outage_policy="",
        hedging=False,
        cache_seconds=None,
        expires_at=None,
        rules=(),
        discounts={},
        own_credentials=own,
        guardrails=None,
        gone_reason=None,
        generation="1",
        read_at=0.0,
    )


def outcome(work: Callable[[Chat], Any], chat: Chat) -> Any:
    """Return what a step makes of a chat, or how it refuses it."""
    try:
        return work(msgspec.structs.replace(chat))
    except ApiError as error:
        return type(error), error.message, error.param, error.code


def on_both_ways(work: Callable[[Chat], Any], chat: Chat) -> tuple[Any, Any]:
    """Return the outcome of a step with the short cuts, and without."""
    short = outcome(work, chat)
    with patch.object(Chat, "is_simple_text", new=False):
        return short, outcome(work, chat)


def stats_of(draw: st.DrawFn) -> Mapping[str, ProviderStats]:
    """Draw how providers did lately."""
    figures = st.builds(
        ProviderStats,
        requests=st.just(100),
        uptime=st.floats(0, 100),
        latency=st.none() | st.floats(1, 5_000),
        open=st.booleans(),
    )
    return {f"p{number}/fox": draw(figures) for number in range(3)}


@settings(max_examples=examples(25), deadline=None)
@given(st.data(), st.lists(chats, min_size=2, max_size=3), tokens, st.sampled_from((None, "p0", "p1")))
def test_routing_and_holds_are_the_same(data: Any, asked: list[Chat], prompt: int, named: str | None) -> None:
    offers, stats = offers_of(data.draw), stats_of(data.draw)
    models, short, whole = catalog(model("fox", *offers)), policy_of(), policy_of()
    retention = data.draw(st.sampled_from(("none", "metadata", "retain")))
    hedge = data.draw(st.sampled_from((None, Hedge(None))))

    def decide(chat: Chat, policy: Policy) -> Any:
        profile = RequestProfile(prompt_tokens=prompt, answer_tokens=100, streaming=chat.stream)
        found = resolve_candidates(policy, models, chat, prompt)
        ranking, dropped = choose_order(found, chat, profile, stats.__getitem__, strict=False, no_fallback=False)
        return found, ranking, dropped, estimate_worst_case(chat, found, prompt, hedge, retention)

    # One policy for all of them: a chat must not get the candidates of another kind of chat.
    for chat in asked:
        chat.model = "fox" if named is None else f"{named}/fox"
        quick = outcome(lambda one: decide(one, short), chat)
        with patch.object(Chat, "is_simple_text", new=False):
            assert quick == outcome(lambda one: decide(one, whole), chat)


@settings(max_examples=examples(60), deadline=None)
@given(chats, whole_cards, shares, st.sampled_from(FACTS), st.sampled_from((CREDITS, API_KEYS)), tokens, st.booleans())
def test_what_is_held_for_an_offer_is_the_same(
    chat: Chat, card: PriceCard, discount: Decimal, facts: dict[str, Any], mode: str, prompt: int, kept: bool
) -> None:
    one = Candidate(offer("p0", "fox", prices=card, facts=facts), Credential(mode), "fox", discount)
    short, whole = on_both_ways(
        lambda it: estimate_worst_case(it, Candidates(None, (one,)), prompt, None, "retain" if kept else "none"), chat
    )
    assert short == whole


@given(tokens, tokens, whole_cards, shares)
def test_text_has_the_price_of_its_usage(read: int, written: int, card: PriceCard, discount: Decimal) -> None:
    usage = Usage(input=read, output=written)
    assert price_text(read, written, card, discount) == cost_of(usage, card, discount).total


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@settings(max_examples=examples(20), deadline=None)
@given(chats, st.sampled_from(FACTS))
def test_every_format_is_written_the_same(dialect: Any, chat: Chat, facts: dict[str, Any]) -> None:
    def write(one: Chat) -> Any:
        target = Target(model_name="fox-1", facts=facts)
        return dialect.write_request(one, target), target.dropped_fields, target.rewrites

    short, whole = on_both_ways(write, chat)
    assert short == whole


@settings(max_examples=examples(40), deadline=None)
@given(text_chats, st.sampled_from(FACTS), st.booleans())
def test_a_body_that_passes_on_is_the_same(chat: Chat, facts: dict[str, Any], renamed: bool) -> None:
    wire = {
        "model": "fox",
        "messages": [{"role": one.role, "content": "".join(part.text for part in one.parts)} for one in chat.messages],
        "stream": chat.stream,
        **({} if chat.max_tokens is None else {"max_tokens": chat.max_tokens}),
        **({} if chat.extra is None else chat.extra),
    }
    body = msgspec.json.encode(wire)

    def write(_: Chat) -> Any:
        target = Target(model_name="fox-1", facts={**facts, "developer_role": renamed})
        return DIALECTS["openai"].write_request(CLIENT.read_request(body), target), target.dropped_fields

    short, whole = on_both_ways(write, chat)
    assert short == whole


FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"stream": True},
    {"max_tokens": 20},
    {"max_tokens": 20, "stream": True},
    {"user": "ann", "temperature": 0.5},
)
ROW = (
    *("requested_model", "requested_provider", "used_model", "used_provider", "underlying_model", "used_mode"),
    *("prompt_tokens", "completion_tokens", "cost", "input_cost", "output_cost", "prices", "finish_reason"),
    *("streamed", "temperature", "max_tokens", "routing_metadata"),
)


@pytest.mark.parametrize("fields", FIELDS)
def test_a_request_is_sent_recorded_and_paid_for_the_same(caller: Caller, fields: dict[str, Any]) -> None:
    tag = uuid4().hex

    def ask() -> dict[str, Any]:
        answer = caller.chat(f"hi [[sandbox usage=100,20 tag={tag}]]", **fields)
        assert answer.status_code == 200
        b"".join(answer.streaming_content if answer.streaming else [answer.content])
        assert settle_all() == 1
        row = RequestLog.objects.filter(project_id=caller.key.project_id).latest("id")
        return {name: getattr(row, name) for name in ROW}

    # The second request finds what the first one has left.
    first, second = ask(), ask()
    with patch.object(Chat, "is_simple_text", new=False):
        whole = ask()
    assert first == second == whole
    assert first["cost"] > 0
    sent = [one["body"] for one in caller.sent(tag)]
    assert sent == [sent[0]] * 3
