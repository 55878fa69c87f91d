"""Thinking asked of Bedrock's models: each in the words of its maker, sealed thoughts only to whom knows the seal."""

from __future__ import annotations

from typing import Any

import pytest

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import bedrock
from tests.gateway.dialects.chat.bedrock.test_write_request import (
    SEALED,
    TAKEN,
    TOOL,
    asked,
    asked_anthropic,
    target,
    written,
)


@pytest.mark.parametrize(
    ("facts", "effort", "fields", "lost"),
    [
        ({}, "low", None, ["reasoning_effort"]),
        ({}, "none", None, []),
        (
            {"reasoning_form": "reasoning_effort", "reasoning_efforts": ["low", "high"]},
            "low",
            {"reasoning_effort": "low"},
            [],
        ),
        (
            {"reasoning_form": "reasoning_effort", "reasoning_efforts": ["none", "high"]},
            "medium",
            {"reasoning_effort": "high"},
            ["reasoning_effort"],
        ),
        (
            {"reasoning_form": "reasoning_config", "reasoning_efforts": ["none", "low", "high"]},
            "none",
            {"reasoning_config": "none"},
            [],
        ),
        ({"reasoning_form": "reasoning"}, "xhigh", {"reasoning": {"effort": "xhigh"}}, []),
        (
            {"reasoning_form": "reasoningConfig", "reasoning_efforts": ["low"]},
            "none",
            {"reasoningConfig": {"type": "disabled"}},
            [],
        ),
        (
            {"reasoning_form": "reasoningConfig", "reasoning_efforts": ["low", "medium", "high"]},
            "max",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}},
            ["reasoning_effort"],
        ),
        (SEALED, "none", {"thinking": {"type": "disabled"}}, []),
        (SEALED, "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, []),
        (
            {**SEALED, "reasoning_budget": {"min": 1024}},
            "high",
            {"thinking": {"type": "enabled", "budget_tokens": 3200}},
            [],
        ),
    ],
)
def test_an_effort_is_said_as_the_models_maker_has_it(
    facts: dict[str, Any], effort: str, fields: Any, lost: list[str]
) -> None:
    to = target(**facts)
    wire = written(asked(reasoning_effort=effort, max_tokens=4000), to)
    assert wire.get("additionalModelRequestFields") == fields
    assert wire["inferenceConfig"] == {"maxTokens": 4000}
    assert [dropped.param for dropped in to.dropped_fields] == lost


def test_a_budget_makes_room_for_itself_where_no_limit_was_set() -> None:
    to = Target(model_name="m", facts={**SEALED, "reasoning_budget": {}}, max_output=64_000)
    wire = written(asked(reasoning={"max_tokens": 10_000}), to)
    assert wire["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert wire["inferenceConfig"] == {"maxTokens": 64_000}


def test_nobody_thinks_to_a_budget_beside_a_tool_that_must_be_called() -> None:
    to = target(**SEALED, reasoning_budget={"min": 1024})
    wire = written(asked(reasoning_effort="high", max_tokens=4000, tools=[TOOL], tool_choice="required"), to)
    assert "additionalModelRequestFields" not in wire
    assert [dropped.param for dropped in to.dropped_fields] == ["reasoning_effort"]


@pytest.mark.parametrize("budget", [{}, None])
def test_a_turn_of_calls_that_lost_its_thinking_goes_on_without(budget: dict[str, int] | None) -> None:
    """With a budget it would be refused."""
    facts = SEALED if budget is None else {**SEALED, "reasoning_budget": budget}
    to = target(**facts)
    wire = written(asked(messages=TAKEN, reasoning_effort="high", max_tokens=4000), to)
    assert ("thinking" in wire.get("additionalModelRequestFields", {})) == (budget is None)
    assert [dropped.param for dropped in to.dropped_fields] == ([] if budget is None else ["reasoning"])


@pytest.mark.parametrize(
    ("facts", "effort", "wanted"),
    [(SEALED, "high", "anthropic-claude-v1"), (SEALED, "none", None), ({"reasoning_form": "reasoning"}, "high", None)],
)
def test_seals_are_wanted_back_by_who_knows_them(facts: dict[str, Any], effort: str, wanted: str | None) -> None:
    assert bedrock.signature_format(asked(reasoning_effort=effort), target(**facts)) == wanted


def test_a_client_of_anthropics_format_says_itself_how_much_to_think() -> None:
    thinking = {"type": "adaptive", "display": "summarized"}
    chat = asked_anthropic(thinking=thinking, output_config={"effort": "max"}, top_k=5)
    to = target(**SEALED)
    fields = {"top_k": 5, "thinking": thinking, "output_config": {"effort": "max"}}
    assert written(chat, to)["additionalModelRequestFields"] == fields


def test_thinking_goes_to_no_model_that_does_not_seal() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "EqoB", "format": "anthropic-claude-v1"}]
    messages = [*TAKEN[:1], {"role": "assistant", "content": "So.", "reasoning_details": details}, *TAKEN[:1]]
    to = target()
    assert written(asked(messages=messages), to)["messages"][1]["content"] == [{"text": "So."}]
    assert [dropped.param for dropped in to.dropped_fields] == ["messages[1].reasoning"]
