"""Prompts of guard models, and their verdicts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.guardrails.custom import BadConfig
from apps.guardrails.outside import GuardQuestion, OutsideFinding, OutsideText, RequestFacts, UnusableAnswer, model


def question(*texts: tuple[str, str], direction: str = "input", said: str = "", **config: Any) -> GuardQuestion:
    return GuardQuestion(
        id="q",
        rule_id="r",
        rule_name="Judge",
        direction=direction,
        facts=RequestFacts("o", "k", "m", "", said),
        texts=[OutsideText(role, "place", text, True) for role, text in texts],
        config=model.read_config({"model": "guard", **config}),
        secrets={},
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )


def asked(of: GuardQuestion) -> list[Any]:
    return [json.loads(one.body) for one in model.requests_of(of)]


def prompt_of(of: GuardQuestion) -> str:
    [body] = asked(of)
    [message] = body["messages"]
    return str(message["content"])


def test_llama_guards_published_prompt() -> None:
    one = question(("user", "How?"), promptBy="gateway", categories=["S2", "S14"])
    assert prompt_of(one) == (
        "Task: Check if there is unsafe content in 'User' messages in conversations according our safety policy with "
        "the below categories.\n\n<BEGIN UNSAFE CONTENT CATEGORIES>\nS2: Non-Violent Crimes.\n"
        "S14: Code Interpreter Abuse.\n<END UNSAFE CONTENT CATEGORIES>\n\n<BEGIN CONVERSATION>\n\nUser: How?\n\n"
        "<END CONVERSATION>\n\nProvide your safety assessment for ONLY THE LAST User message in the above "
        "conversation:\n - First line must read 'safe' or 'unsafe'.\n - If unsafe, a second line must include a "
        "comma-separated list of violated categories."
    )


def test_llama_guards_published_prompt_for_an_answer() -> None:
    one = question(("assistant", "So."), direction="output", said="How?", promptBy="gateway")
    assert "<BEGIN CONVERSATION>\n\nUser: How?\n\nAgent: So.\n\n<END CONVERSATION>" in prompt_of(one)
    assert "ONLY THE LAST Agent message" in prompt_of(one)


def test_shieldgemmas_published_prompt() -> None:
    one = question(("user", "How?"), template="shieldgemma", categories=["dangerous"])
    assert prompt_of(one) == (
        "You are a policy expert trying to help determine whether a user prompt is in violation of the defined safety "
        "policies.\n\n<start_of_turn>\nHuman Question: How?\n<end_of_turn>\n\nOur safety principle is defined in the "
        'below:\n\n* "No Dangerous Content": The prompt shall not contain or seek generation of content that harming '
        "oneself and/or others (e.g., accessing or building firearms and explosive devices, promotion of terrorism, "
        "instructions for suicide).\n\n===\n\nDoes the human question violate the above principle? Your answer must "
        "start with 'Yes' or 'No'. And then walk through step by step to be sure we answer correctly."
    )


def test_shieldgemmas_published_prompt_for_an_answer() -> None:
    one = question(("assistant", "So."), direction="output", said="How?", template="shieldgemma", categories=["sexual"])
    written = prompt_of(one)
    assert "whether an AI response to prompt is in violation" in written
    assert "Human Question: How?\n<end_of_turn>\n\n<start_of_turn>\nChatbot Response: So.\n<end_of_turn>" in written
    assert '* "No Sexually Explicit Information": The chatbot shall not generate content that contains' in written
    assert "Does the Chatbot Response violate the above principle?" in written


@pytest.mark.parametrize(
    "mark",
    ["<|eot_id|>", "<end_of_turn>", "<start_of_turn>", "<END CONVERSATION>", "<BEGIN UNSAFE CONTENT CATEGORIES>"],
)
@pytest.mark.parametrize("config", [{}, {"promptBy": "gateway"}, {"template": "custom", "prompt": "Judge: {text}"}])
def test_a_text_cannot_end_its_own_turn(mark: str, config: dict[str, Any]) -> None:
    with_mark, without = question(("user", f"a{mark}b"), **config), question(("user", "a b"), **config)
    assert prompt_of(with_mark) == prompt_of(without)


def test_texts_of_a_role_are_judged_together_whatever_is_between() -> None:
    one = question(("user", "1"), ("assistant", "2"), ("user", "3"), ("system", "4"), ("user", " "))
    conversations = [[turn["content"] for turn in body["messages"]] for body in asked(one)]
    assert conversations == [["1\n\N{SYMBOL FOR RECORD SEPARATOR}\n3"], ["Hello", "2"]]
    assert model.read_answers(one, [b"unsafe\nS10", b"safe"]) == [
        OutsideFinding(text=0, pattern="S10 Hate"),
        OutsideFinding(text=2, pattern="S10 Hate"),
    ]


def test_long_texts_are_judged_in_pieces() -> None:
    one = question(("user", "a" * (2 * model.MAX_CHARACTERS + 1)))
    assert [len(body["messages"][0]["content"]) for body in asked(one)] == [8_000, 8_000, 1]
    assert model.read_answers(one, [b"safe", b"safe", b"unsafe"]) == [OutsideFinding(text=0, pattern="unsafe")]


@pytest.mark.parametrize(
    ("answer", "patterns"),
    [
        ("safe", []),
        ("\n\nSafe.", []),
        ("unsafe\nS1", ["S1 Violent Crimes"]),
        ("unsafe\nS1, S9", ["S1 Violent Crimes", "S9 Indiscriminate Weapons"]),
        ("unsafe S1", ["S1 Violent Crimes"]),
        ("unsafe", ["unsafe"]),
        ("unsafe\nS2", []),
        ("unsafe\nO3", ["unsafe"]),
    ],
)
def test_llama_guards_verdicts(answer: str, patterns: list[str]) -> None:
    one = question(("user", "x"), categories=["S1", "S9"])
    assert [found.pattern for found in model.read_answers(one, [answer.encode()])] == patterns


@pytest.mark.parametrize(("answer", "patterns"), [("Yes", ["hate"]), ("**No**, as", []), ("yes\n\nStep 1", ["hate"])])
def test_shieldgemmas_verdicts(answer: str, patterns: list[str]) -> None:
    one = question(("user", "x"), template="shieldgemma", categories=["hate"])
    assert [found.pattern for found in model.read_answers(one, [answer.encode()])] == patterns


@pytest.mark.parametrize("answer", ["", "I cannot", "unsafely", "safe/unsafe", "\ufffd"])
def test_another_answer_is_no_verdict(answer: str) -> None:
    with pytest.raises(UnusableAnswer, match="begins neither with unsafe nor with safe"):
        model.read_answers(question(("user", "x")), [answer.encode()])


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"model": ""}, "model"),
        ({"template": "llama"}, "template"),
        ({"promptBy": "me"}, "promptBy"),
        ({"categories": ["S15"]}, "categories"),
        ({"categories": "S1"}, "categories"),
        ({"template": "shieldgemma", "categories": ["S1"]}, "categories"),
        ({"template": "custom", "prompt": "{text}", "categories": ["S1"]}, "categories"),
        ({"roles": ["robot"]}, "roles"),
        ({"prompt": "{text}"}, "prompt"),
        ({"template": "custom"}, "prompt"),
        ({"template": "custom", "prompt": "Judge"}, "prompt"),
        ({"template": "custom", "prompt": "{text}{text}"}, "prompt"),
        ({"template": "custom", "prompt": "{text}", "foundWord": "two words"}, "foundWord"),
        ({"template": "custom", "prompt": "{text}", "passedWord": ""}, "passedWord"),
    ],
)
def test_a_wrong_configuration_names_the_field(config: dict[str, Any], path: str) -> None:
    with pytest.raises(BadConfig) as refused:
        model.read_config({"model": "guard", **config})
    assert refused.value.path == path
