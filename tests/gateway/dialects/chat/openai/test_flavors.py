"""Differences of OpenAI-alikes, by the facts stated of them: ids, thinking, choices of tools, turns, errors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Message, Target, ToolCall, ToolResult
from apps.gateway.canonical.events import Failed
from apps.gateway.dialects.adapting.thinking import join_signature
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.chat.openai.provider.write_messages import adapt_call_ids
from apps.kernel.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
FORMS = {
    "any": re.compile(r"(?!.*__sealed__c2).+"),
    "short": re.compile(".{1,40}"),
    "nine_alphanumerics": re.compile("[0-9A-Za-z]{9}"),
}
IDS = st.text(st.sampled_from("aB3_-:é"), min_size=1, max_size=60) | st.from_regex(r"[0-9A-Za-z]{9}", fullmatch=True)
SEALED = st.builds(join_signature, IDS, st.just("seal"))


def write(facts: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], list[str]]:
    """Return what a provider with these facts is sent, and which fields are lost."""
    target = Target(model_name="m", facts=facts)
    chat = openai.read_request(json.dumps({"model": "fox-1", "messages": MESSAGES, **fields}).encode())
    wire = json.loads(openai.write_request(chat, target))
    return wire, [loss.param for loss in target.dropped_fields]


@pytest.mark.parametrize("kind", FORMS)
@given(ids=st.lists(IDS | SEALED, min_size=1, max_size=12))
def test_ids_of_calls_fit_and_stay_apart(kind: Any, ids: list[str]) -> None:
    messages = [
        Message(role="assistant", parts=[ToolCall(id=call_id, name="f", arguments="") for call_id in ids]),
        *(Message(role="tool", parts=[ToolResult(call_id=call_id, parts=[])]) for call_id in ids),
    ]
    changed = adapt_call_ids(messages, kind)
    assert changed == adapt_call_ids(messages, kind)
    written = {call_id: changed.get(call_id, call_id) for call_id in ids}
    assert len(set(written.values())) == len(set(ids))
    assert all(FORMS[kind].fullmatch(new) for new in written.values())


def test_an_id_that_fits_is_kept_also_where_another_would_become_the_same() -> None:
    sealed = join_signature("call_1", "seal")
    parts = [ToolCall(id=sealed, name="f", arguments=""), ToolCall(id="call_1", name="f", arguments="")]
    changed = adapt_call_ids([Message(role="assistant", parts=list(parts))], "short")
    assert list(changed) == [sealed]
    assert changed[sealed] != "call_1"


@pytest.mark.parametrize(
    ("effort", "known", "word", "lost"),
    [
        ("medium", ["low", "high"], "high", True),
        ("low", ["none", "high"], "high", True),
        ("minimal", ["low", "medium", "high"], "low", True),
        ("xhigh", ["low", "high", "max"], "max", True),
        ("high", ["low", "high"], "high", False),
        ("none", ["none", "high"], "none", False),
        ("none", ["low", "high"], None, True),
        ("low", ["none", "default"], "default", True),
        ("low", ["none"], None, True),
        ("low", [], "low", False),
    ],
)
def test_an_effort_becomes_the_models_nearest_word(effort: str, known: list[str], word: str | None, lost: bool) -> None:
    wire, losses = write({"reasoning_efforts": known}, reasoning_effort=effort)
    assert wire.get("reasoning_effort") == word
    assert losses == (["reasoning_effort"] if lost else [])


def test_a_model_that_thinks_or_does_not_is_told_which_and_the_effort_is_lost() -> None:
    facts = {"thinking_switch": "thinking"}
    on, lost = write(facts, reasoning_effort="low")
    assert (on["thinking"], "reasoning_effort" in on, lost) == ({"type": "enabled"}, False, ["reasoning_effort"])
    off, lost = write(facts, reasoning_effort="none")
    assert (off["thinking"], "reasoning_effort" in off, lost) == ({"type": "disabled"}, False, [])


def test_an_exact_budget_goes_to_a_provider_that_takes_one_and_becomes_an_effort_elsewhere() -> None:
    wire, lost = write({"thinking_switch": "enable_thinking"}, reasoning={"max_tokens": 77})
    assert (wire["enable_thinking"], wire["thinking_budget"], lost) == (True, 77, [])
    wire, lost = write({}, reasoning={"max_tokens": 77})
    assert (wire["reasoning_effort"], lost) == ("minimal", ["reasoning"])


def test_a_choice_that_is_not_understood_is_refused_where_a_tool_must_be_called() -> None:
    facts = {"tool_choices": ["auto"]}
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        with pytest.raises(InvalidRequest) as refusal:
            write(facts, tools=[TOOL], tool_choice=choice)
        assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", "tool_choice")
    assert write(facts, tools=[TOOL], tool_choice="auto")[0]["tool_choice"] == "auto"
    wire, _ = write(facts, tools=[TOOL], tool_choice="none")
    assert set(wire) == {"model", "messages"}


def test_a_name_is_lost_where_messages_have_none() -> None:
    wire, lost = write({"message_names": False}, messages=[{"role": "user", "name": "Bo", "content": "Hi"}])
    assert (wire["messages"], lost) == (MESSAGES, ["messages[0].name"])


def test_an_answer_to_go_on_with_is_marked() -> None:
    begun = [*MESSAGES, {"role": "assistant", "content": "It"}]
    assert write({"prefill_field": "partial"}, messages=begun)[0]["messages"][-1]["partial"] is True
    assert write({}, messages=begun)[0]["messages"] == begun


def test_what_a_client_states_goes_before_what_is_added() -> None:
    facts = {"adds": {"reasoning_format": "parsed"}}
    assert write(facts)[0]["reasoning_format"] == "parsed"
    assert write(facts, reasoning_format="hidden")[0]["reasoning_format"] == "hidden"


OVERFLOWS = (
    {"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 70000"}},
    {"object": "error", "message": "Prompt contains 40 tokens, too large for model with 32 maximum context length"},
    {"error": {"code": "1261", "message": "Prompt exceeds max length"}},
    {"error": {"message": "Range of input length should be [1, 98304]", "code": "invalid_parameter_error"}},
    {"code": "invalid-argument", "error": "This model's maximum prompt length is 131072 but the request has more."},
    {"error": {"message": "Invalid request: Your request exceeded model token limit: 262144"}},
    {"message": "Please reduce the length of the messages or completion.", "code": "wrong"},
    {"id": "x", "error": {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."}},
    {"error": {"object": "error", "message": "The prompt is too long: 9, model maximum context length: 8"}},
    {"base_resp": {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}},
)


@pytest.mark.parametrize("answer", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_known_by_its_words(answer: dict[str, Any]) -> None:
    assert openai.read_failure(400, json.dumps(answer).encode()).code == "context_length_exceeded"


def test_a_limit_of_tokens_a_minute_is_no_prompt_that_is_too_long() -> None:
    words = "Please reduce the length of the messages: the limit is 6000 tokens per minute (TPM)"
    answer = {"error": {"message": words, "code": "rate_limit_exceeded"}}
    assert openai.read_failure(413, json.dumps(answer).encode()).code == "rate_limit_exceeded"


MISSING = {"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {"a": "secret"}}
FORBIDDEN = {"loc": ["body", "messages", 0, "name"], "msg": "Extra inputs are not permitted"}
NAME = "messages.0.name"


@pytest.mark.parametrize(
    ("answer", "message", "code", "param"),
    [
        ({"message": {"detail": [MISSING]}, "object": "error"}, "messages: Field required", None, "messages"),
        ({"detail": [FORBIDDEN]}, f"{NAME}: Extra inputs are not permitted", None, NAME),
        ({"detail": {"error": "No such model"}}, "No such model", None, None),
        ({"detail": "Not Found"}, "Not Found", None, None),
        ({"errors": [{"message": "Invalid input", "code": 5006}], "success": False}, "Invalid input", None, None),
        ({"base_resp": {"status_code": 1008, "status_msg": "no balance"}, "choices": None}, "no balance", "1008", None),
        ({"code": "permission-denied", "error": "Team is blocked"}, "Team is blocked", "permission-denied", None),
    ],
)
def test_what_a_provider_says_of_its_failure_is_found(
    answer: dict[str, Any], message: str, code: str | None, param: str | None
) -> None:
    failure = openai.read_failure(400, json.dumps(answer).encode())
    assert (failure.message, failure.code, failure.param) == (message, code, param)


def test_an_error_in_an_answer_of_status_200_ends_it() -> None:
    [event] = openai.read_reply(b'{"id":"x","choices":null,"base_resp":{"status_code":1013,"status_msg":"busy"}}')
    assert isinstance(event, Failed)
    assert (event.error.status, event.error.message) == (502, "busy")
