"""The record of a request: its usage and costs, its end, and what it charges; exact, without a store."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.billing.ledger import Charge
from apps.billing.pricing import bill_at
from apps.gateway.canonical.chat import (
    Chat,
    FunctionTool,
    Message,
    ReasoningRequest,
    ResponseFormat,
    RoutingPreferences,
    Text,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.settlement.outbox import charge_of
from apps.gateway.settlement.record import complete, fail, keep_request, open_entry, set_usage_and_cost
from apps.kernel.errors import AllProvidersFailed, ApiError, ClientGone, InternalError, InvalidRequest, RateLimited
from apps.kernel.prices import PriceCard
from apps.kernel.usage import ModelPass, Usage
from apps.logs.entry import Entry
from tests.gateway.admission.test_store_answers import policy
from tests.logs.entries import entry

USD = Decimal
CARD = PriceCard(
    input=USD(2), output=USD(10), cached_input=USD(1), cache_write=USD(3), image_input=USD(20), request=USD("0.01")
)
USED = Usage(input=1_000, cache_read=200, cache_write=30, cache_write_1h=4, image_input=50, output=100, reasoning=7)


def recorded(usage: Usage, **fields: Any) -> Entry:
    record = entry(**fields)
    cost = set_usage_and_cost(record, bill_at(CARD, used=usage))
    assert cost.total == record.cost
    return record


def test_usage_and_costs_are_recorded_by_their_classes() -> None:
    record = recorded(USED)
    counts = (record.prompt_tokens, record.completion_tokens, record.total_tokens, record.reasoning_tokens)
    assert counts == (USED.prompt_tokens, USED.completion_tokens, USED.prompt_tokens + USED.completion_tokens, 7)
    parts = (record.cached_tokens, record.cache_write_tokens, record.image_input_tokens, record.image_output_tokens)
    assert parts == (200, 34, 50, None)
    assert record.data_storage_cost == 0
    costs = (record.input_cost, record.cached_input_cost, record.cache_write_cost, record.image_input_cost)
    assert costs == (USD("0.002"), USD("0.0002"), USD("0.000102"), USD("0.001"))
    assert (record.request_cost, record.web_search_cost, record.image_output_cost) == (USD("0.01"), 0, 0)
    rest = (record.request_cost, record.output_cost)
    assert record.cost == sum((*costs, *rest), USD(0))
    assert (record.unpriced, record.estimated_cost, record.discount_savings) == (False, False, 0)


def test_counts_that_are_nothing_are_left_out() -> None:
    record = recorded(Usage(input=1, output=1))
    assert (record.reasoning_tokens, record.cache_write_tokens, record.image_input_tokens) == (None, None, None)
    assert recorded(Usage(input=1, cache_write_1h=4)).cache_write_tokens == 4
    assert recorded(Usage(input=1, estimated=True)).estimated_cost is True


def test_an_answer_of_several_passes_counts_all_of_them() -> None:
    passes = (ModelPass(usage=Usage(input=10, output=2)), ModelPass(usage=Usage(input=30, output=4)))
    record = recorded(Usage(input=7, output=7, passes=passes))
    assert (record.prompt_tokens, record.completion_tokens, record.total_tokens) == (40, 6, 46)


@pytest.mark.parametrize(
    ("level", "waived", "storage"),
    [("retain", "", "0.000011"), ("retain", "failed", "0"), ("metadata", "", "0"), ("none", "", "0")],
)
def test_an_answer_that_is_retained_and_paid_costs_its_storage(level: str, waived: str, storage: str) -> None:
    record = entry(retention_level=level)
    set_usage_and_cost(record, bill_at(CARD, used=Usage(input=1_000, output=100), waived=waived))
    assert record.data_storage_cost == USD(storage)


@pytest.mark.parametrize(
    ("finish", "unified"),
    [
        ("stop", "completed"),
        ("length", "length_limit"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("other", "unknown"),
        (None, "unknown"),
    ],
)
def test_an_answer_that_came_to_its_end(finish: str | None, unified: str) -> None:
    for retention, native, reason in (
        ("none", "end_turn", None),
        ("metadata", "end_turn", "end_turn"),
        ("metadata", None, finish),
    ):
        record = entry(swept=True, status_code=500, has_error=True, canceled=True, error_details={"status": 500})
        complete(record, finish, native, retention)
        state = (record.swept, record.status_code, record.has_error, record.canceled, record.error_details)
        assert state == (False, 200, False, False, None)
        assert (record.unified_finish_reason, record.finish_reason) == (unified, reason)


BY_PROVIDER = AllProvidersFailed("all failed")
BY_PROVIDER.from_provider = True


@pytest.mark.parametrize(
    ("error", "reason", "is_canceled"),
    [
        (ClientGone("left"), "canceled", True),
        (BY_PROVIDER, "upstream_error", False),
        (InternalError("broken"), "gateway_error", False),
        (RateLimited("too many"), "client_error", False),
        (ApiError("odd", status=499 + 1), "gateway_error", False),
    ],
)
def test_a_request_that_failed_costs_nothing_and_says_why(error: ApiError, reason: str, is_canceled: bool) -> None:
    for retention in ("metadata", "retain"):
        record = entry(swept=True, prices=CARD, retention_level=retention)
        fail(record, error, retention)
        state = (record.swept, record.status_code, record.canceled, record.has_error, record.unified_finish_reason)
        assert state == (False, error.status, is_canceled, not is_canceled, reason)
        told = {"status": error.status, "type": error.type, "code": error.code}
        assert record.error_details == told | ({"message": error.message} if retention == "retain" else {})
        assert (record.cost, record.data_storage_cost, record.prompt_tokens) == (0, 0, 0)
        assert record.prices.waived == "failed"


def test_a_failure_keeps_the_cost_of_what_was_answered() -> None:
    record = recorded(USED)
    cost = record.cost
    fail(record, InternalError("late"), "none")
    assert (record.cost, record.prompt_tokens) == (cost, USED.prompt_tokens)
    # No provider was chosen yet, so there are no prices.
    unpriced = entry(prices=None)
    fail(unpriced, InternalError("early"), "none")
    assert (unpriced.cost, unpriced.prices.waived) == (0, "failed")


@pytest.mark.parametrize(
    ("fields", "credits", "usage", "storage", "is_held"),
    [
        ({"cost": USD(2), "used_mode": "credits", "data_storage_cost": USD("0.5")}, "-2", "2", "0.5", False),
        ({"cost": USD(2), "used_mode": "api-keys"}, "0", "2", "0", False),
        ({"cost": None, "used_mode": "credits"}, "0", "0", "0", False),
        # A provider's batch API answered: its hold is in the ledger.
        ({"cost": USD(1), "prices": {"batch_share": "0.5"}}, "-1", "1", "0", True),
        ({"cost": USD(1), "prices": {"input": "2"}}, "-1", "1", "0", False),
        ({"cost": USD(1), "prices": bill_at(CARD, batch_share=USD("0.5"))}, "-1", "1", "0", True),
        ({"cost": USD(1), "prices": bill_at(CARD)}, "-1", "1", "0", False),
    ],
)
def test_what_a_record_charges(fields: dict[str, Any], credits: str, usage: str, storage: str, is_held: bool) -> None:
    record = entry(**fields)
    ids = (record.organization_id, record.api_key_id, record.id)
    assert charge_of(record) == Charge(*ids, USD(credits), USD(usage), USD(storage), is_held)


SENT: Any = type("Sent", (), {"request_id": "r-1", "custom_headers": {"team": "blue"}, "source": "web", "headers": {}})
SENT.user_agent, SENT.session_id, SENT.affinity = "curl/8", "", ""
ASKED = Chat(
    model="m" * 300,
    messages=[],
    temperature=0.5,
    top_p=0.25,
    max_tokens=9,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    reasoning=ReasoningRequest(effort="low", max_tokens=5),
    tools=[FunctionTool(name="find"), WebSearchTool()],
    tool_choice=ToolChoice(mode="named", name="find"),
    response_format=ResponseFormat(kind="json_object"),
)


@pytest.mark.parametrize(("mode", "used"), [("credits", "credits"), ("api-keys", "api-keys"), ("hybrid", "credits")])
def test_a_request_that_was_just_admitted_has_a_record_that_says_it_was_lost(mode: str, used: str) -> None:
    record = open_entry(entry().id, "chat", policy(mode=mode), SENT, ASKED)
    assert (record.mode, record.used_mode, record.requested_model) == (mode, used, "m" * 255)
    assert (record.status_code, record.has_error, record.swept) == (500, True, True)
    assert (record.unified_finish_reason, record.error_details) == (
        "gateway_error",
        {"status": 500, "code": "worker_lost"},
    )
    # Nothing of a request that may not be kept.
    assert (record.temperature, record.max_tokens, record.user_agent, record.custom_headers) == (None,) * 4


def test_parameters_are_kept_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.settlement.record.logged_session", lambda request, chat: "run-1")
    record = open_entry(entry().id, "chat", policy(retention="metadata"), SENT, ASKED)
    numbers = (record.temperature, record.top_p, record.max_tokens, record.frequency_penalty, record.presence_penalty)
    assert numbers == (0.5, 0.25, 9, 0.1, 0.2)
    assert (record.reasoning_effort, record.reasoning_max_tokens) == ("low", 5)
    assert (record.custom_headers, record.source, record.user_agent, record.session_id) == (
        {"team": "blue"},
        "web",
        "curl/8",
        "run-1",
    )
    tagged = Chat(model="m", messages=[], preferences=RoutingPreferences(tags=("a",)))
    record = open_entry(entry().id, "chat", policy(retention="metadata"), SENT, tagged)
    assert record.custom_headers == {"team": "blue", "tag:a": "true"}
    assert (record.reasoning_effort, record.reasoning_max_tokens) == (None, None)


@pytest.mark.parametrize(
    ("retention", "is_kept", "has_content"), [("none", 0, 0), ("metadata", 1, 0), ("retain", 1, 1)]
)
def test_a_request_is_kept_as_far_as_retention_allows(retention: str, is_kept: int, has_content: int) -> None:
    record = entry()
    keep_request(record, ASKED, retention)
    # Names of functions, or all of the tools.
    tools = [{"type": "function", "function": {"name": "find"}}, {"type": "web_search"}] if has_content else ["find"]
    kept = (record.tools, record.response_format, record.tool_choice is not None)
    assert kept == ((tools, {"type": "json_object"}, True) if is_kept else (None, None, False))
    assert (record.messages is not None) is bool(has_content)
    plain = entry()
    keep_request(plain, Chat(model="m", messages=[]), "metadata")
    assert (plain.tools, plain.response_format, plain.tool_choice) == (None, None, None)


def test_answers_of_tools_are_kept_with_the_content() -> None:
    answered = Message(role="tool", parts=[ToolResult(call_id="call-1", parts=[Text(text="sunny")])])
    records = {retention: entry() for retention in ("metadata", "retain")}
    for retention, record in records.items():
        keep_request(record, Chat(model="m", messages=[answered]), retention)
    result = {"role": "tool", "tool_call_id": "call-1", "content": "sunny"}
    assert records["retain"].tool_results == [result]
    assert (records["metadata"].tool_results, records["metadata"].messages) == (None, None)


def test_no_request_is_refused_for_the_logs_sake(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Chat) -> Any:
        raise InvalidRequest("cannot be written in that format")

    dialect = type("Dialect", (), {"logged_request": staticmethod(refuse), "logged_choice": lambda *_: "auto"})()
    monkeypatch.setattr("apps.gateway.settlement.record.client_dialect_of", lambda _: dialect)
    record = entry()
    keep_request(record, ASKED, "retain")
    assert (record.tool_choice, record.messages) == ("auto", [])
