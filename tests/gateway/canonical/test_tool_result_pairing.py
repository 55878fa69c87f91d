"""Calls and results that do not fit together, brought together; what fits is left as it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.chat import Message, Part, Text, ToolCall, ToolResult
from apps.gateway.canonical.tool_result_pairing import MISSING, has_paired_results, pair


def said(*ids: str) -> Message:
    """Return an answer that makes these calls."""
    parts: list[Part] = [ToolCall(id=name, name="f", arguments="{}") for name in ids]
    return Message(role="assistant", parts=parts or [Text(text="ok")])


def told(call_id: str, text: str = "x") -> Message:
    return Message(role="tool", parts=[ToolResult(call_id=call_id, parts=[Text(text=text)])])


USER = Message(role="user", parts=[Text(text="?")])


def sketch(messages: list[Message]) -> list[str]:
    """Return a conversation in short: `a:` calls, `t:` a result and what it says, `u` a user."""
    lines = []
    for message in messages:
        if message.role == "assistant":
            calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
            lines.append(f"a:{','.join(calls)}")
        elif message.role == "tool":
            result = message.parts[0]
            assert isinstance(result, ToolResult)
            assert isinstance(result.parts[0], Text)
            lines.append(f"t:{result.call_id}={result.parts[0].text}")
        else:
            lines.append("u")
    return lines


def mended(*messages: Message, runs: bool = False) -> tuple[list[str], list[str]]:
    assert not has_paired_results(list(messages), runs=runs)
    found, losses = pair(list(messages), runs=runs)
    assert has_paired_results(found, runs=runs)
    return sketch(found), [loss.param for loss in losses]


def test_what_fits_is_left_alone() -> None:
    assert has_paired_results([USER, said("a", "b"), told("b"), told("a"), USER, said("a"), told("a")], runs=False)
    assert has_paired_results([said("a"), said("b"), USER, told("a"), told("b")], runs=True)
    assert not has_paired_results([said("a"), said("b"), told("a"), told("b")], runs=False)


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    assert mended(said("a", "b"), told("b"), USER) == (
        ["a:a,b", f"t:a={MISSING}", "t:b=x", "u"],
        ["messages[0].tool_calls"],
    )


def test_a_result_without_a_call_becomes_the_users_words() -> None:
    found, losses = pair([USER, told("gone", "rain")], runs=False)
    words = [part.text for part in found[1].parts if isinstance(part, Text)]
    assert words == ["Result of a tool call that is not part of this conversation (gone):", "rain"]
    assert [(loss.param, found[1].role) for loss in losses] == [("messages[1].tool_call_id", "user")]


def test_of_two_results_the_first_counts() -> None:
    assert mended(said("a"), told("a", "1"), told("a", "2")) == (["a:a", "t:a=1"], ["messages[2].tool_call_id"])


def test_a_result_that_comes_late_moves_behind_its_call() -> None:
    assert mended(said("a"), USER, told("a")) == (["a:a", "t:a=x", "u"], ["messages[2].tool_call_id"])


def test_an_id_that_one_turn_has_twice_is_changed_with_its_result() -> None:
    assert mended(said("a", "a"), told("a", "1"), told("a", "2")) == (
        ["a:a,a_2", "t:a=1", "t:a_2=2"],
        ["messages[0].tool_calls"],
    )


ids = st.sampled_from(("a", "b", "c"))
conversations = st.lists(
    st.just(USER) | st.lists(ids, max_size=3).map(lambda names: said(*names)) | ids.map(told), max_size=8
)


@given(messages=conversations, runs=st.booleans())
def test_every_conversation_can_be_mended_and_stays_mended(messages: list[Message], runs: bool) -> None:
    found, losses = pair(messages, runs=runs)
    assert has_paired_results(found, runs=runs)
    again, nothing = pair(found, runs=runs)
    assert (again, nothing) == (found, [])
    if has_paired_results(messages, runs=runs) and not runs:
        assert (sorted(sketch(found)), losses) == (sorted(sketch(messages)), [])
    assert [one for one in sketch(found) if one[0] == "a"].__len__() == sum(it.role == "assistant" for it in messages)
