"""OpenAI's format in front, Cohere's behind: the gateway over real HTTP, against the sandbox as a strict Cohere."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import cohere
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.logs.models import RequestLog
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.upstream import Caller, chunks_of, settle_all

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def command(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of a provider `command` that speaks Cohere's format and knows the sandbox's models."""
    add_provider(caller, monkeypatch, "command", "cohere", path="/v2")
    offer_models("command", lambda mapping: mapping.facts.update(reasoning_budget={"min": 1}))
    return caller


def ask(command: Caller, content: Any = "hello", **fields: Any) -> Any:
    """Return the answer of the provider's `echo`, unless another model is asked."""
    return command.chat(content, **{"model": "command/echo", **fields})


def test_a_plain_answer_comes_back_in_openais_format_and_what_cohere_bills_is_billed(command: Caller) -> None:
    tag = uuid4().hex
    response = ask(command, f"hi [[sandbox usage=1000,200,100,50 reasoning=3 tag={tag}]]", max_tokens=500)
    assert response.status_code == 200, response.content
    body = response.json()
    ChatCompletion.model_validate({**body, "metadata": None})
    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("You said: hi", "thought-1 thought-2 thought-3")
    assert body["choices"][0]["finish_reason"] == "stop"
    usage = body["usage"]
    # 1,500 tokens were read and 200 written in all; neither Cohere's own instructions nor thinking are on its bill.
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (1000, 150)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 100
    (sent,) = command.sent(tag)
    assert sent["path"] == "/v2/chat"
    assert sent["body"]["max_tokens"] == 500
    assert "authorization" in {name.lower() for name in sent["headers"]}
    settle_all()
    log = RequestLog.objects.get()
    assert log.cost == Decimal(str(usage["cost_usd_total"]))
    assert log.cost > 0


def test_a_stream_comes_back_in_openais_chunks(command: Caller) -> None:
    *chunks, end = chunks_of(ask(command, "one two [[sandbox chunks=3 usage=10,5 reasoning=2]]", stream=True))
    assert end == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "You said: one two"
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "thought-1 thought-2"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 15


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_answer_taken_with_the_plan_before_it(command: Caller, stream: bool) -> None:
    tag = uuid4().hex
    question = {"role": "user", "content": "call weather"}
    response = ask(command, model="command/tools", messages=[question], tools=[WEATHER], stream=stream)
    message = streamed_message(response) if stream else response.json()["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    answer = {"role": "assistant", "content": None, **message}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}
    mark = {"role": "system", "content": f"[[sandbox tag={tag}]]"}
    again = ask(command, model="command/tools", messages=[mark, question, answer, result], tools=[WEATHER])
    assert again.status_code == 200, again.content
    assert again.json()["choices"][0]["message"]["content"] == "weather answered: Sun"
    (sent,) = command.sent(tag)
    assert sent["body"]["messages"][2]["tool_plan"] == "I will use a tool."


def streamed_message(response: Any) -> dict[str, Any]:
    """Return the one call of a stream and the thinking before it, put together as clients do."""
    call: dict[str, Any] = {"type": "function", "function": {"name": "", "arguments": ""}}
    details: dict[int, dict[str, Any]] = {}
    for chunk in chunks_of(response)[:-1]:
        delta = chunk["choices"][0]["delta"]
        for piece in delta.get("tool_calls", []):
            call["id"] = piece.get("id", call.get("id"))
            for name, text in piece["function"].items():
                call["function"][name] += text
        for detail in delta.get("reasoning_details", []):
            known = details.setdefault(detail["index"], {**detail, "text": ""})
            known["text"] += detail["text"]
    return {"tool_calls": [call], "reasoning_details": list(details.values())}


def test_one_of_several_tools_can_be_insisted_on(command: Caller) -> None:
    other = {"type": "function", "function": {"name": "place"}}
    choice = {"type": "function", "function": {"name": "place"}}
    response = ask(command, "hi", model="command/tools", tools=[WEATHER, other], tool_choice=choice)
    [call] = response.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "place"


@pytest.mark.parametrize("tools", [[], [WEATHER]])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_the_form_of_a_schema_also_beside_tools(
    command: Caller, stream: bool, tools: list[dict[str, Any]]
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    fields: dict[str, Any] = {"tools": tools} if tools else {}
    said = "call final_answer" if tools else "hi"
    response = ask(command, said, model="command/json", response_format=form, stream=stream, **fields)
    assert response.status_code == 200, response.content if not stream else ""
    if stream:
        choices = [chunk["choices"][0] for chunk in chunks_of(response)[:-1]]
        content = "".join(choice["delta"].get("content") or "" for choice in choices)
        finish = choices[-1]["finish_reason"]
    else:
        content, finish = (response.json()["choices"][0][part] for part in ("message", "finish_reason"))
        content = content["content"]
    assert (json.loads(content).keys(), finish) == ({"city"}, "stop")


def test_a_refusal_of_coheres_reaches_the_client_in_its_words(command: Caller) -> None:
    response = ask(command, "hi [[sandbox status=400]]")
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_what_cohere_has_no_words_for_is_told_and_refused_under_strictness(command: Caller) -> None:
    tag = uuid4().hex
    lax = ask(command, "hi", logit_bias={"1": 5}, headers={"X-No-Fallback": "true"})
    assert lax.status_code == 200
    assert "logit_bias" in lax.headers["x-gateway-loss"]
    strict = ask(
        command, f"hi [[sandbox tag={tag}]]", logit_bias={"1": 5}, headers={"X-Strict": "true", "X-No-Fallback": "true"}
    )
    assert strict.status_code == 400
    assert command.sent(tag) == []


def test_several_answers_are_as_many_calls(command: Caller) -> None:
    tag = uuid4().hex
    response = ask(command, f"hi [[sandbox tag={tag}]]", n=2, headers={"X-No-Fallback": "true"})
    assert response.status_code == 200, response.content
    told = [(choice["index"], choice["message"]["content"]) for choice in response.json()["choices"]]
    assert told == [(0, "You said: hi"), (1, "You said: hi")]
    assert len(command.sent(tag)) == 2


@pytest.mark.parametrize("fault", ["cut=2", "error=2", "broken=2", "end=3"])
def test_a_stream_that_breaks_ends_with_an_error(command: Caller, fault: str) -> None:
    *_, last = chunks_of(ask(command, f"one two three [[sandbox {fault}]]", stream=True))
    assert last["error"]["message"]


def test_the_sandbox_satisfies_coheres_own_client(caller: Caller) -> None:
    client = cohere.ClientV2(api_key="secret", base_url=caller.sandbox_url)
    messages = [cohere.UserChatMessageV2(content="hi")]
    reply = client.chat(model="echo", messages=messages)
    assert reply.message.content is not None
    assert reply.message.content[0].text == "You said: hi"
    assert reply.finish_reason == "COMPLETE"
    kinds = [event.type for event in client.chat_stream(model="echo", messages=messages) if event is not None]
    assert kinds[:2] == ["message-start", "content-start"]
    assert kinds[-1] == "message-end"
