"""The billed parts of a provider's report: its cost, code that it ran, and counts that are none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from apps.catalog.catalog_cache import read_catalog
from apps.catalog.models import ModelProvider
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import Chat, OpaqueTool
from apps.gateway.canonical.events import Event, TextDelta, UsageReported
from apps.kernel.usage import Usage
from tests.catalog.small import offer
from tests.support.shipped_catalog import stock


def meter(facts: dict[str, Any], chat: Chat | None = None) -> AnswerMeter:
    """A meter of an answer by an offer of these facts."""
    attempts = Mock(chat=chat or Chat(model="m", messages=[]))
    attempts.latest_candidate.offer = offer("acme", "m", facts=facts)
    return AnswerMeter(attempts=attempts, policy=Mock(), prompt_estimate=5)


def counted(one: AnswerMeter, *events: Event) -> Usage:
    list(one.count(iter(events)))
    return one.used


TOLD = Usage(input=10, output=2, reported_cost=Decimal("0.5"))


@pytest.mark.parametrize(("facts", "told"), [({"states_cost": True}, Decimal("0.5")), ({"states_cost": False}, None)])
def test_a_cost_that_is_told_counts_where_the_data_file_says_so(facts: dict[str, Any], told: Decimal | None) -> None:
    assert counted(meter(facts), TextDelta(text="Hi"), UsageReported(usage=TOLD)).reported_cost == told
    assert counted(meter({}), TextDelta(text="Hi"), UsageReported(usage=TOLD)) == Usage(input=10, output=2)


def test_a_cost_that_was_told_before_the_text_is_no_last_word() -> None:
    used = counted(meter({"states_cost": True}), UsageReported(usage=TOLD), TextDelta(text="12345678"))
    assert used == Usage(input=10, output=2, estimated=True)


def test_code_that_is_free_is_not_counted() -> None:
    ran = UsageReported(usage=Usage(input=10, output=2, tool_calls={"web_fetch": 1, "code_execution": 1}))
    assert counted(meter({}), TextDelta(text="Hi"), ran).tool_calls == {"web_fetch": 1, "code_execution": 1}
    fetch = OpaqueTool(dialect="anthropic", data={"type": "web_fetch_20260209", "name": "web_fetch"})
    free = Chat(model="m", messages=[], tools=[fetch])
    assert counted(meter({}, free), TextDelta(text="Hi"), ran).tool_calls == {"web_fetch": 1}


ODD = Usage(input=10, cache_read=3, estimated=True)


@pytest.mark.parametrize(
    ("reported", "used"),
    [
        # The written text has no count: it is estimated, and the others stay.
        (ODD, replace(ODD, output=2)),
        (replace(ODD, input=0, cache_read=0, output=7), Usage(input=5, output=7, estimated=True)),
        # Another count was odd.
        (replace(ODD, output=7), replace(ODD, output=7)),
        # Nothing odd: nothing written is the provider's word.
        (replace(ODD, estimated=False), replace(ODD, estimated=False)),
    ],
)
def test_a_count_that_is_none_is_estimated_beside_the_others(reported: Usage, used: Usage) -> None:
    assert counted(meter({}), TextDelta(text="12345678"), UsageReported(usage=reported)) == used


@pytest.mark.parametrize(("overrides", "told"), [({}, True), ({"input": "3"}, False)])
def test_a_price_of_the_operators_goes_before_the_providers_word(
    db: None, overrides: dict[str, str], told: bool
) -> None:
    stock()
    rows = ModelProvider.objects.filter(provider_id="xai", model_id="grok-4.3")
    rows.update(price_overrides=overrides)
    offers = read_catalog("1").models["grok-4.3"].offers
    (one,) = [one for one in offers if one.provider.id == "xai"]
    assert one.facts["states_cost"] is told
