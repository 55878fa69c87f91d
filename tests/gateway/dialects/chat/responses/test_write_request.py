"""Requests to a provider of the Responses format, beyond the cases of `tests/gateway/dialects/wire/responses`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.adapting.thinking import join_signature
from apps.gateway.dialects.chat import anthropic, openai, responses
from apps.gateway.dialects.chat.responses.provider.write_items import CallIds
from apps.kernel.errors import InvalidRequest

HI = [{"role": "user", "content": "Hi"}]
FLAC = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "flac"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def target_of(**facts: Any) -> Target:
    return Target(model_name="gpt", facts=facts, dropped_fields=[])


def written(target: Target | None = None, messages: Any = HI, **fields: Any) -> dict[str, Any]:
    """Return what a provider is sent for an OpenAI client's request."""
    chat = openai.read_request(json.dumps({"model": "m", "messages": messages, **fields}).encode())
    return dict(json.loads(responses.write_request(chat, target or target_of())))


def written_for_anthropic(target: Target | None = None, messages: Any = HI, **fields: Any) -> dict[str, Any]:
    """Return what a provider is sent for an Anthropic client's request."""
    body = {"model": "m", "max_tokens": 4000, "messages": messages, **fields}
    chat = anthropic.read_request(json.dumps(body).encode())
    return dict(json.loads(responses.write_request(chat, target or target_of())))


@given(names=st.lists(st.text("ab_", min_size=1, max_size=90) | st.just(join_signature("ab", "seal")), max_size=12))
def test_calls_have_ids_of_their_own_that_fit_and_stay_the_same(names: list[str]) -> None:
    ids = CallIds()
    found = [ids.of(name) for name in names]
    assert len(set(found)) == len(set(names))
    assert all(1 <= len(one) <= 64 for one in found)
    assert [ids.of(name) for name in names] == found
    again = CallIds()
    assert [again.of(name) for name in names] == found


def test_an_id_that_fits_stays_and_a_seal_is_left_out() -> None:
    ids = CallIds()
    assert ids.of("call_1") == "call_1"
    assert ids.of(join_signature("call_2", "a seal")) == "call_2"
    # Another call has the bare id already.
    assert ids.of("call_2").startswith("call_")
    assert ids.of("call_2") != "call_2"


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("n", {"n": 2}),
        ("modalities", {"modalities": ["text", "audio"], "audio": {"voice": "v", "format": "wav"}}),
        ("image_config", {"image_config": {"aspect_ratio": "1:1"}}),
        ("tools[0]", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}),
        (
            "messages[0]",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "flac"}}],
                    }
                ]
            },
        ),
    ],
)
def test_what_would_change_the_answer_and_has_no_words_is_refused(param: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        written(**fields)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", param)


def test_likely_words_that_a_model_does_not_tell_are_refused() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        written(target_of(unsupported=["logprobs"]), logprobs=True)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", "logprobs")


def test_what_says_nothing_is_no_loss() -> None:
    target = target_of(temperature=False)
    wire = written(target, n=1, presence_penalty=0, frequency_penalty=0, top_k=-1, temperature=1, top_p=1, stop=[])
    assert target.dropped_fields == []
    assert wire.keys() == {"model", "input", "store", "include"}


@pytest.mark.parametrize(
    ("budget", "effort"), [(1_024, "minimal"), (4_000, "low"), (16_000, "medium"), (32_000, "high"), (64_000, "xhigh")]
)
def test_a_budget_of_thinking_becomes_an_effort_and_that_is_told(budget: int, effort: str) -> None:
    target = target_of()
    wire = written_for_anthropic(target, thinking={"type": "enabled", "budget_tokens": budget})
    assert wire["reasoning"] == {"effort": effort, "summary": "auto"}
    assert [loss.param for loss in target.dropped_fields] == ["thinking.budget_tokens"]


@pytest.mark.parametrize(
    ("effort", "known", "sent"),
    [
        ("minimal", ["none", "low", "medium"], "low"),
        ("low", ["none", "high"], "high"),
        ("low", ["none"], "none"),
        ("none", ["none", "low"], "none"),
        ("none", ["low", "high"], "low"),
    ],
)
def test_thinking_is_switched_off_for_a_request_to_think_only_where_the_model_knows_nothing_else(
    effort: str, known: list[str], sent: str
) -> None:
    target = target_of(reasoning_efforts=known)
    assert written(target, reasoning_effort=effort)["reasoning"]["effort"] == sent
    assert [loss.param for loss in target.dropped_fields] == ([] if sent == effort else ["reasoning_effort"])


def test_the_least_budget_of_thinking_is_the_least_effort_and_not_none() -> None:
    target = target_of(reasoning_efforts=["none", "low", "medium"])
    wire = written_for_anthropic(target, thinking={"type": "enabled", "budget_tokens": 1_024})
    assert wire["reasoning"] == {"effort": "low", "summary": "auto"}


def test_an_effort_alone_is_one_of_thinking() -> None:
    assert written(effort="high")["reasoning"] == {"effort": "high", "summary": "auto"}
    assert written(reasoning_effort="none")["reasoning"] == {"effort": "none"}
    assert "reasoning" not in written()


def test_the_phase_of_an_answer_follows_from_its_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *HI,
        {"role": "assistant", "content": "Looking.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "assistant", "content": "One."},
        *HI,
    ]
    said = [item for item in written(target_of(takes=["phase"]), messages)["input"] if item.get("role") == "assistant"]
    assert [(item["content"], item["phase"]) for item in said] == [("Looking.", "commentary"), ("One.", "final_answer")]
    assert not any("phase" in item for item in written(target_of(), messages)["input"])


def test_a_failed_tool_is_told_in_words_and_pictures_stay_in_its_result() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    turns = [
        *HI,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [picture]}],
        },
    ]
    result = written_for_anthropic(messages=turns)["input"][-1]
    assert result["output"] == [
        {"type": "input_text", "text": "Error:"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
    ]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    target = target_of()
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}, *HI]
    kinds = [item.get("type", item.get("role")) for item in written(target, messages)["input"]]
    assert kinds == ["user", "function_call", "function_call_output", "user"]
    assert [loss.param for loss in target.dropped_fields] == ["messages[1].tool_calls"]


def test_domains_of_a_search_are_kept_to_or_refused() -> None:
    wire = written_for_anthropic(tools=[{**SEARCH, "allowed_domains": ["a.example"]}])
    assert wire["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}]
    with pytest.raises(InvalidRequest) as refusal:
        written_for_anthropic(tools=[{**SEARCH, "blocked_domains": ["a.example"]}])
    assert refusal.value.code == "unsupported_feature"


def test_a_search_may_be_asked_for_with_openais_option() -> None:
    target = target_of()
    options = {"search_context_size": "low", "user_location": {"type": "approximate", "approximate": {"city": "Bern"}}}
    assert written(target, web_search_options=options)["tools"] == [
        {"type": "web_search", "user_location": {"type": "approximate", "city": "Bern"}, "search_context_size": "low"}
    ]
    assert target.dropped_fields == []


def test_a_search_that_cannot_be_limited_says_so() -> None:
    target = target_of(unsupported=["max_tool_calls"])
    wire = written(target, tools=[{"type": "web_search", "max_uses": 2}])
    assert "max_tool_calls" not in wire
    assert [loss.param for loss in target.dropped_fields] == ["tools"]
    assert written(tools=[{"type": "web_search", "max_uses": 2}])["max_tool_calls"] == 2


def test_a_function_may_bear_the_name_of_the_search() -> None:
    function = {"type": "function", "function": {"name": "web_search"}}
    wire = written(tools=[function], tool_choice={"type": "function", "function": {"name": "web_search"}})
    assert wire["tool_choice"] == {"type": "function", "name": "web_search"}


def test_a_choice_among_no_tools_is_sent_only_where_one_must_be_called() -> None:
    assert "tool_choice" not in written(tool_choice="auto", parallel_tool_calls=False)
    assert written(tool_choice="required")["tool_choice"] == "required"


def test_unknown_words_for_the_speed_are_left_out() -> None:
    target = target_of()
    assert "service_tier" not in written(target, service_tier="on_demand")
    assert [loss.param for loss in target.dropped_fields] == ["service_tier"]
    assert written(service_tier="priority")["service_tier"] == "priority"


def test_seals_are_wanted_back_where_thinking_comes_under_one() -> None:
    chat = openai.read_request(json.dumps({"model": "m", "messages": HI}).encode())
    assert responses.signature_format(chat, target_of()) == "openai-responses-v1"
    assert responses.signature_format(chat, target_of(unsupported=["include"])) is None
