"""Providers that a caller may ask for a model: found out once, and again whenever they may have changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from apps.billing.discounts import Share
from apps.catalog import catalog_cache
from apps.gateway.access import policy
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Audio, Chat, Message, Text
from apps.gateway.canonical.task_options import ImageRequest
from apps.gateway.routing import candidates
from apps.gateway.routing.candidates import Candidates
from apps.gateway.tasks import TASKS
from apps.kernel.errors import InvalidRequest
from tests.support.upstream import Caller

CHAT = Chat(model="sandbox/echo", messages=[Message(role="user", parts=[Text(text="hi")])])


@pytest.fixture
def known(caller: Caller) -> Policy:
    """The caller's policy."""
    return policy.find_policy(caller.token)


def ask(known: Policy, chat: Chat = CHAT) -> Candidates:
    """Resolve a chat under the catalog of now."""
    return candidates.resolve_candidates(known, catalog_cache.current(), chat)


def test_the_next_request_has_the_same_candidates(known: Policy) -> None:
    first, second = ask(known), ask(known)
    assert [one.mapping for one in first.eligible] == ["sandbox/echo"]
    assert second.eligible[0] is first.eligible[0]
    assert second.requested_provider == "sandbox"


def test_another_catalog_another_day_or_another_policy_is_looked_at_anew(
    known: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(known).eligible[0]
    catalog = catalog_cache.current()
    newer = type(catalog)(catalog.models, catalog.providers, catalog.generation)
    assert candidates.resolve_candidates(known, newer, CHAT).eligible[0] is not first

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: object = None) -> Tomorrow:
            return cls(2999, 1, 1, tzinfo=UTC)

    today = ask(known).eligible[0]
    monkeypatch.setattr(candidates, "datetime", Tomorrow)
    assert ask(known).eligible[0] is not today
    assert known.reachable_models["sandbox/echo"].today == date(2999, 1, 1)
    assert ask(replace(known, reachable_models={})).eligible[0] is not ask(known).eligible[0]


def test_a_kept_reach_still_refuses_what_the_model_cannot_take_in(known: Policy) -> None:
    ask(known)
    heard = Chat(model="sandbox/echo", messages=[Message(role="user", parts=[Audio(data="AAAA", format="wav")])])
    with pytest.raises(InvalidRequest, match="does not support audio input"):
        ask(known, heard)


def test_nothing_is_kept_where_a_discount_may_expire(known: Policy) -> None:
    cheaper = replace(known, discounts={("", ""): Share(Decimal("0.5"), None)}, reachable_models={})
    first = ask(cheaper).eligible[0]
    assert (first.discount, cheaper.reachable_models) == (Decimal("0.5"), {})


def test_only_so_many_are_kept_and_no_refusal_is(known: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_MAX_REACHABLE_MODELS", 2)
    for name in ("sandbox/echo", "echo", "sandbox/echo-fast"):
        ask(known, Chat(model=name, messages=CHAT.messages))
    assert list(known.reachable_models) == ["sandbox/echo-fast"]
    with pytest.raises(InvalidRequest):
        ask(known, Chat(model="nobody/knows", messages=CHAT.messages))
    assert list(known.reachable_models) == ["sandbox/echo-fast"]


def test_what_is_kept_for_one_kind_of_request_is_not_used_for_another(known: Policy) -> None:
    chat = Chat(model="sandbox/sketcher", messages=CHAT.messages)
    images = Chat(model="sandbox/sketcher", messages=CHAT.messages, task="images", image_request=ImageRequest())
    for asked in (chat, images, chat):
        first, second = ask(known, asked), ask(known, asked)
        assert second.eligible[0] is first.eligible[0]
        assert known.reachable_models["sandbox/sketcher"].task is TASKS[asked.task]
    with pytest.raises(InvalidRequest, match="does not make images"):
        ask(known, Chat(model="sandbox/echo", messages=CHAT.messages, task="images", image_request=ImageRequest()))
