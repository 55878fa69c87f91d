"""The needs of a request, over real HTTP: a capable model answers, `auto` takes the cheapest capable one, and without
it the error says which need it was."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from tests.support.image_requests import PNG, data_url
from tests.support.model_routes import Answer, error_of, post
from tests.support.sandbox_providers import Adding, add_provider, clock
from tests.support.upstream import Caller, nothing_happened, settle_all

__all__ = ["add_provider", "clock"]
pytestmark = pytest.mark.usefixtures("clock")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}
PICTURE = [
    {"type": "text", "text": "look"},
    {"type": "image_url", "image_url": {"url": data_url(PNG)}},
]
# Fields of a request, the columns of a mapping that say which models can take them, and the name of the need.
NEEDS: dict[str, tuple[dict[str, Any], dict[str, bool], str]] = {
    "tools": ({"tools": [TOOL]}, {"tools": False}, "tools"),
    "parallel tools": (
        {"tools": [TOOL], "parallel_tool_calls": True},
        {"parallel_tools": False},
        "parallel tool calls",
    ),
    "vision": ({"messages": [{"role": "user", "content": PICTURE}]}, {"vision": False}, "image input"),
    "json": ({"response_format": {"type": "json_object"}}, {"json_output": False}, "JSON output"),
    "schema": (
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"structured_outputs": False, "tools": False, "json_output": False},
        "structured outputs",
    ),
    "reasoning": ({"reasoning_effort": "high"}, {"reasoning": False}, "reasoning"),
    "streaming": ({"stream": True}, {"streaming": False}, "streaming"),
}
# The field that a refusal names, where it is not the model.
PARAMS = {"json": "response_format", "schema": "response_format"}
each_need = pytest.mark.parametrize("need", NEEDS)


def change(columns: dict[str, Any], **which: Any) -> None:
    """Change mappings of the catalog."""
    ModelProvider.objects.filter(**which).update(**columns)
    generation.bump(generation.CATALOG)


def able(columns: dict[str, bool]) -> dict[str, bool]:
    return dict.fromkeys(columns, True)


def refused(
    caller: Caller, message: str, param: str = "model", code: str = "unsupported_feature", **fields: Any
) -> None:
    """Ask; assert the whole refusal, and that no provider was called."""
    settle_all()
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox tag={tag}]]", **fields)
    expected = error_of("chat", 400, "invalid_request_error", code, message, param)
    assert (answer.status, answer.json()) == (400, expected)
    assert caller.sent(tag) == []
    assert nothing_happened(caller)


def who(answer: Answer) -> tuple[str, str]:
    """Return the model and the provider that answered, whole or streamed."""
    assert answer.status == 200, answer.content
    found = answer.content.decode()
    return _after(found, '"used_model":"'), _after(found, '"used_provider":"')


def _after(text: str, words: str) -> str:
    return text.partition(words)[2].partition('"')[0]


@each_need
def test_a_provider_that_lacks_it_is_passed_over_and_not_tried_either(
    caller: Caller, add_provider: Adding, need: str
) -> None:
    fields, columns, name = NEEDS[need]
    add_provider("second", "9")
    change(able(columns), provider_id="second")
    change(columns, provider_id="sandbox")
    answer = post(caller, "chat", model="echo", **fields)
    assert who(answer) == ("echo", "second")
    # One that was named is not silently replaced.
    refused(caller, f"sandbox/echo does not support {name}", PARAMS.get(need, "model"), model="sandbox/echo", **fields)
    change(columns, provider_id="second")
    refused(caller, f"echo does not support {name}", PARAMS.get(need, "model"), model="echo", **fields)


@each_need
def test_auto_takes_the_cheapest_model_that_has_it(caller: Caller, need: str) -> None:
    fields, columns, name = NEEDS[need]
    change(able(columns), provider_id="sandbox", model_id__in=["free", "json", "echo"])
    assert who(post(caller, "chat", model="auto", **fields)) == ("free", "sandbox")
    change(columns, model_id="free")
    assert who(post(caller, "chat", model="auto", **fields)) == ("json", "sandbox")
    change(columns)
    refused(caller, f"auto does not support {name}", PARAMS.get(need, "model"), model="auto", **fields)


class TestAuto:
    def test_only_free_models(self, caller: Caller) -> None:
        wish = {"model": "auto", "free_models_only": True}
        assert who(post(caller, "chat", **wish)) == ("free", "sandbox")
        change({"prices": {"input": "0.01", "output": "0.01"}}, model_id="free")
        message = "auto: there is no model without a price that this project can use"
        refused(caller, message, "free_models_only", **wish)
        change({"prices": {}}, model_id="free")
        refused(caller, message, "free_models_only", **wish)
        assert who(post(caller, "chat", model="auto", free_models_only=False)) == ("json", "sandbox")

    def test_no_models_that_reason(self, caller: Caller) -> None:
        change({"reasoning": True}, model_id__in=["free", "json"])
        assert who(post(caller, "chat", model="auto")) == ("free", "sandbox")
        assert who(post(caller, "chat", model="auto", no_reasoning=True))[0] not in {"free", "json", "reasoner"}
        change({"reasoning": True})
        message = "auto: there is no model without reasoning that this project can use"
        refused(caller, message, "no_reasoning", model="auto", no_reasoning=True)

    def test_neither_unstable_models_nor_unpriced_ones(self, caller: Caller) -> None:
        change({"stability": "unstable"}, model_id="free")
        change({"prices": {}}, model_id="json")
        assert who(post(caller, "chat", model="auto"))[0] not in {"free", "json"}
        change({"stability": "experimental"}, provider_id="sandbox")
        assert post(caller, "chat", model="auto").status == 400
        assert who(post(caller, "chat", model="free")) == ("free", "sandbox"), "but whoever names it gets it"

    def test_web_search_that_nobody_offers(self, caller: Caller) -> None:
        for fields in ({"web_search": True}, {"tools": [{"type": "web_search"}]}):
            refused(caller, "auto does not support web search", model="auto", **fields)

    def test_room_for_the_prompt(self, caller: Caller) -> None:
        change({"context_length": 150}, model_id="free")
        assert who(post(caller, "chat", "word " * 20, model="auto")) == ("free", "sandbox")
        assert who(post(caller, "chat", "word " * 200, model="auto")) == ("json", "sandbox")


class TestRoom:
    """Room in a context, for prompt and answer; room in an answer, for as many tokens as are asked for."""

    def test_a_prompt_too_large_for_one_goes_to_another(self, caller: Caller, add_provider: Adding) -> None:
        add_provider("roomy", "9")
        change({"context_length": 200}, provider_id="sandbox")
        assert who(post(caller, "chat", "word " * 40, model="echo")) == ("echo", "sandbox")
        assert who(post(caller, "chat", "word " * 400, model="echo")) == ("echo", "roomy")
        assert who(post(caller, "chat", "hi", model="echo", max_tokens=300)) == ("echo", "roomy")
        tag = uuid4().hex
        failed = post(caller, "chat", "word " * 400 + f"[[sandbox tag={tag} status=503]]", model="echo")
        assert (failed.status, len(caller.sent(tag))) == (503, 1), "nor is it tried after a failure"

    def test_one_too_large_for_everybody_is_400(self, caller: Caller, add_provider: Adding) -> None:
        add_provider("second", "9")
        change({"context_length": 100})
        content = "word " * 400
        answer = post(caller, "chat", content, model="echo")
        message = (
            "This model's maximum context length is 100 tokens. "
            "The prompt is too long: about 504 tokens > 100 that echo takes"
        )
        expected = error_of("chat", 400, "invalid_request_error", "context_length_exceeded", message, "messages")
        assert (answer.status, answer.json()) == (400, expected)
        assert nothing_happened(caller)
        # The count is an estimate: up to twice the context, the provider itself may say.
        assert post(caller, "chat", "word " * 150, model="echo").status == 200

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_longer_answer_than_anybody_writes_is_cut_and_told(self, caller: Caller, stream: bool) -> None:
        tag = uuid4().hex
        question = f"hi [[sandbox tag={tag}]]"
        answer = post(caller, "chat", question, model="echo", max_tokens=50_000, stream=stream)
        assert answer.status == 200
        assert answer.headers["x-gateway-loss"] == "max_tokens"
        assert [one["body"]["max_tokens"] for one in caller.sent(tag)] == [16_384]
        told = '{"param":"max_tokens","message":"this model writes at most 16384 tokens; that is the limit now"}'
        assert f'"warnings":[{told}]' in answer.content.decode()
        messages = post(caller, "messages", "hi", model="echo", max_tokens=50_000, stream=stream)
        assert (messages.status, messages.headers["x-gateway-loss"]) == (200, "max_tokens")

    def test_whoever_writes_as_long_an_answer_is_asked_instead(self, caller: Caller, add_provider: Adding) -> None:
        add_provider("long", "9", max_output=64_000)
        answer = post(caller, "chat", model="echo", max_tokens=50_000)
        assert who(answer) == ("echo", "long")
        assert "x-gateway-loss" not in answer.headers

    def test_with_x_strict_it_is_refused(self, caller: Caller) -> None:
        message = (
            "With X-Strict nothing may be left out, and this would be: "
            "max_tokens: this model writes at most 16384 tokens; that is the limit now"
        )
        for route in ("chat", "messages"):
            tag = uuid4().hex
            question = f"hi [[sandbox tag={tag}]]"
            headers = {"x-strict": "true"}
            answer = post(caller, route, question, model="echo", max_tokens=16_385, headers=headers)
            code = "unsupported_feature"
            expected = error_of(route, 400, "invalid_request_error", code, message, "max_tokens")
            assert (answer.status, answer.json()) == (400, expected)
            assert caller.sent(tag) == []
            assert post(caller, route, model="echo", max_tokens=16_384, headers=headers).status == 200
