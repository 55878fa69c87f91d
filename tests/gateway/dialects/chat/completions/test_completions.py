"""Legacy completions: what a body asks for, and the text, probabilities and ends that a client gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import Completion

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
from apps.gateway.canonical.events import (
    Event,
    Failed,
    Finished,
    Logprobs,
    ReasoningDelta,
    RefusalDelta,
    Started,
    Summary,
    TextDelta,
    ToolCallStarted,
    Waiting,
    fold,
)
from apps.gateway.dialects.chat import completions
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage

SUMMARY = Summary(usage=Usage(input=3, output=2), cost={}, metadata={"used_model": "m-1"})
TOKENS: Any = {
    "content": [
        {"token": "Hel", "logprob": -0.5, "top_logprobs": [{"token": "Hel", "logprob": -0.5}]},
        {"token": "lo", "logprob": -1.0, "top_logprobs": [{"token": "p", "logprob": -0.25}]},
    ]
}


def read(**fields: Any) -> Chat:
    """Read a body of the model `m` and the prompt `Hi` with these fields."""
    return completions.read_request(json.dumps({"model": "m", "prompt": "Hi", **fields}).encode())


def asked(**fields: Any) -> Chat:
    """Return a chat that is asked in this way."""
    message = Message(role="user", parts=[Text(text="Hi")])
    return Chat(model="m", messages=[message], task="completions", dialect="completions", **fields)


def pieces(events: list[Event], **fields: Any) -> list[Any]:
    """Return the pieces of a stream; those that are no JSON as text."""
    lines = b"".join(completions.write_events(iter(events), asked(**fields))).decode().split("\n\n")
    texts = [line.removeprefix("data: ") for line in lines if line]
    return [json.loads(text) if text.startswith("{") else text for text in texts]


def test_a_prompt_is_a_chat_of_one_message() -> None:
    assert read(max_tokens=5, stop="x", n=2, best_of=2, user="u", suffix="") == asked(
        max_tokens=5, stop=["x"], n=2, user="u"
    )
    assert read(prompt=["Hi"], stream=True, stream_options={"include_usage": True}, echo=True) == asked(
        stream=True, include_usage=True, echo=True
    )
    assert read(logprobs=3) == asked(logprobs=True, top_logprobs=3)
    assert read(logprobs=0) == asked(logprobs=True)


def test_each_of_several_prompts_is_a_message() -> None:
    chat = read(prompt=["Hi", "Ho"], n=2, echo=True)
    assert [message.parts for message in chat.messages] == [[Text(text="Hi")], [Text(text="Ho")]]
    assert {message.role for message in chat.messages} == {"user"}
    assert chat.answers == 4
    assert (read(n=3).answers, read(prompt=["Hi", "Ho"], n=None).answers) == (3, 2)


def test_what_chats_alone_have_is_told_and_never_taken() -> None:
    lost = ("messages", "max_completion_tokens", "tools")
    chat = read(messages=[{"role": "user", "content": "other"}], max_completion_tokens=9, tools=[])
    assert chat == asked(dropped_fields=[DroppedField(name, "completions have no such option here") for name in lost])


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", "invalid_parameters"),
        ({"prompt": None}, "prompt", "invalid_parameters"),
        ({"prompt": ""}, "prompt", "invalid_parameters"),
        ({"prompt": []}, "prompt", "invalid_parameters"),
        ({"prompt": 7}, "prompt", "invalid_parameters"),
        ({"prompt": [None]}, "prompt[0]", "invalid_parameters"),
        ({"prompt": [1, 2]}, "prompt", "unsupported_feature"),
        ({"prompt": [[1, 2]]}, "prompt", "unsupported_feature"),
        ({"prompt": ["a", ""]}, "prompt[1]", "invalid_parameters"),
        ({"prompt": ["a", 7]}, "prompt[1]", "invalid_parameters"),
        ({"prompt": ["a"] * 17}, "prompt", "invalid_parameters"),
        ({"prompt": ["a"] * 11, "n": 3}, "n", "unsupported_feature"),
        ({"suffix": "end"}, "suffix", "unsupported_feature"),
        ({"best_of": 3}, "best_of", "unsupported_feature"),
        ({"best_of": 1, "n": 2}, "best_of", "unsupported_feature"),
        ({"best_of": 21}, "best_of", "invalid_parameters"),
        ({"echo": True, "logprobs": 1}, "echo", "unsupported_feature"),
        ({"echo": 1}, "echo", "invalid_parameters"),
        ({"logprobs": True}, "logprobs", "invalid_parameters"),
        ({"logprobs": 6}, "logprobs", "invalid_parameters"),
        ({"max_tokens": 0}, "max_tokens", "invalid_parameters"),
        ({"n": 0}, "n", "invalid_parameters"),
        ({"stop": ["a"] * 5}, "stop", "invalid_parameters"),
        ({"temperature": 3}, "temperature", "invalid_parameters"),
    ],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**fields)
    assert (refused.value.param, refused.value.code) == (param, code)


def test_a_whole_answer_is_one_that_openais_client_reads() -> None:
    reply = fold(
        [
            Started(model="m-1", created=5, log_id="ab"),
            ReasoningDelta(text="hm"),
            TextDelta(text="Hello"),
            Logprobs(logprobs=TOKENS),
            Finished(reason="length"),
            RefusalDelta(choice=1, text="No"),
            ToolCallStarted(choice=1, index=0, id="c", name="f"),
            Finished(choice=1, reason="tool_calls"),
        ]
    )
    wire = json.loads(completions.write_reply(reply, SUMMARY, asked()))
    columns = {
        "tokens": ["Hel", "lo"],
        "token_logprobs": [-0.5, -1.0],
        "top_logprobs": [{"Hel": -0.5}, {"p": -0.25}],
        "text_offset": [0, 3],
    }
    assert wire["choices"] == [
        {"text": "Hello", "index": 0, "logprobs": columns, "finish_reason": "length"},
        {"text": "No", "index": 1, "logprobs": None, "finish_reason": "stop"},
    ]
    read_by_client = Completion.model_validate(wire)
    assert (read_by_client.id, read_by_client.object, read_by_client.model) == ("gen-ab", "text_completion", "m-1")
    assert read_by_client.usage is not None
    assert read_by_client.usage.total_tokens == 5
    echoed = json.loads(completions.write_reply(reply, SUMMARY, asked(echo=True)))
    assert [choice["text"] for choice in echoed["choices"]] == ["HiHello", "HiNo"]


def test_a_stream_has_the_same_shape_and_tells_each_thing_once() -> None:
    second: Any = {"content": [{"token": "!", "logprob": -2.0, "top_logprobs": []}]}
    events: list[Event] = [
        Started(model="m-1", created=5, log_id="ab"),
        Waiting(),
        Logprobs(logprobs=TOKENS),
        TextDelta(text="Hello"),
        Logprobs(logprobs=second),
        TextDelta(text="!"),
        TextDelta(choice=1, text="Yo"),
        Finished(reason="stop"),
        Finished(choice=1, reason="length"),
        SUMMARY,
    ]
    told = pieces(events, include_usage=True, echo=True)
    assert (told[0], told[-1]) == (": ping", "[DONE]")
    assert {piece["object"] for piece in told[1:-1]} == {"text_completion"}
    choices = [choice for piece in told[1:-1] for choice in piece["choices"]]
    assert [(one["index"], one["text"], one["finish_reason"]) for one in choices] == [
        (0, "HiHello", None),
        (0, "!", None),
        (1, "HiYo", None),
        (0, "", "stop"),
        (1, "", "length"),
    ]
    assert [one["logprobs"] and one["logprobs"]["text_offset"] for one in choices] == [[0, 3], [5], None, None, None]
    assert choices[1]["logprobs"]["top_logprobs"] is None
    assert [piece["choices"] == [] for piece in told[1:-1]] == [False] * 5 + [True]
    assert told[-2]["usage"]["completion_tokens"] == 2
    # As chats have it: without a word from the client, usage comes with the last end.
    last = pieces(events)[-2]
    assert (last["choices"][0]["index"], last["usage"]["total_tokens"]) == (1, 5)
    assert all("usage" not in piece for piece in pieces(events, include_usage=False)[1:-1])


def test_an_answer_without_a_word_still_ends_and_a_failure_has_no_end() -> None:
    empty = pieces([Started(), Finished(reason="stop"), SUMMARY], echo=True)
    assert [choice["text"] for piece in empty[:-1] for choice in piece["choices"]] == ["Hi"]
    failed = pieces([Started(), TextDelta(text="a"), Failed(error=InvalidRequest("no", code="c")), SUMMARY])
    assert (len(failed), failed[-1]["error"]["message"]) == (2, "no")
