"""Legacy completions through the whole pipeline: answered, guarded, cached and billed like chats (section 4)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.billing.models import LedgerEntry
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.guardrails_in_force import forbid, guard
from tests.support.providers_of_every_format import add_provider, offer_models
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all


def complete(caller: Caller, prompt: Any = "hi", **fields: Any) -> Any:
    """Ask for a completion, of `sandbox/echo` unless `model` says otherwise."""
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    body = json.dumps({"model": "sandbox/echo", "prompt": prompt, **fields})
    return caller.client.post("/v1/completions", body, content_type="application/json", headers=headers)


def test_a_prompt_is_answered_recorded_and_charged_once(caller: Caller) -> None:
    Organization.objects.update(retention_level="retain")
    policy.forget_all()
    tag = uuid4().hex
    body = complete(caller, f"hi [[sandbox tag={tag} usage=1000,200]]", max_tokens=50, stop=["END"], echo=True).json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {
            "text": f"hi [[sandbox tag={tag} usage=1000,200]]You said: hi",
            "index": 0,
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (1000, 200)
    (sent,) = caller.sent(tag)
    own = sent["body"]["model"]
    message = {"role": "user", "content": f"hi [[sandbox tag={tag} usage=1000,200]]"}
    assert sent["body"] == {"model": own, "messages": [message], "max_tokens": 50, "stop": ["END"]}
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.used_model, row.cost) == ("completions", "echo", Decimal("0.00027"))
    assert (row.messages, row.content) == ([message], "You said: hi")
    assert body["id"] == f"gen-{row.pk.hex}"


def test_a_stream_says_the_same(caller: Caller) -> None:
    chunks = chunks_of(complete(caller, "hi", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1] == "[DONE]"
    choices = [choice for chunk in chunks[:-1] for choice in chunk["choices"]]
    assert "".join(choice["text"] for choice in choices) == "You said: hi"
    assert [choice["finish_reason"] for choice in choices][-1] == "stop"
    assert chunks[-2]["usage"]["prompt_tokens"] > 0
    settle_all()
    assert RequestLog.objects.get().streamed is True


def test_several_answers(caller: Caller) -> None:
    texts = [choice["text"] for choice in complete(caller, "hi", n=2, best_of=2).json()["choices"]]
    assert texts == ["You said: hi", "You said: hi (choice 2)"]


@pytest.mark.parametrize("provider", ["sandbox", "messages"])
def test_each_of_several_prompts_gets_its_answers_in_order_on_one_bill(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    if provider == "messages":
        add_messages_provider(caller, monkeypatch)
    tag = uuid4().hex
    # The first answers last: what comes first is not the first choice.
    prompts = [
        f"one [[sandbox tag={tag} usage=100,10 latency=60]]",
        f"two [[sandbox tag={tag} usage=200,20]]",
        f"three [[sandbox tag={tag} usage=400,40]]",
    ]
    body = complete(caller, prompts, model=f"{provider}/echo", n=2, echo=True).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3, 4, 5]
    said = [choice["text"].partition("You said: ")[2] for choice in body["choices"]]
    second = " (choice 2)" if provider == "sandbox" else ""
    assert said == [f"{word}{end}" for word in ("one", "two", "three") for end in ("", second)]
    for number, choice in enumerate(body["choices"]):
        assert choice["text"].startswith(prompts[number // 2])
    # Anthropic gives one answer at a time, and reads the prompt for each.
    calls = 1 if provider == "sandbox" else 2
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (700 * calls, 70 * calls)
    sent = [one["body"]["messages"] for one in caller.sent(tag)]
    assert (len(sent), {len(messages) for messages in sent}) == (3 * calls, {1})
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert row.cost == (Decimal("0.15") * 700 + Decimal("0.6") * 70) * calls / 1_000_000
    assert [-entry.credits for entry in LedgerEntry.objects.filter(kind="usage")] == [row.cost]


def test_a_stream_of_several_prompts_has_their_indexes(caller: Caller) -> None:
    chunks = chunks_of(complete(caller, ["one", "two"], stream=True, echo=True))
    texts = {0: "", 1: ""}
    ends = []
    for choice in (choice for chunk in chunks[:-1] for choice in chunk["choices"]):
        texts[choice["index"]] += choice["text"]
        ends += [choice["index"]] if choice["finish_reason"] else []
    assert texts == {0: "oneYou said: one", 1: "twoYou said: two"}
    assert (sorted(ends), chunks[-1]) == ([0, 1], "[DONE]")


def test_one_prompt_that_fails_fails_all_and_is_free(caller: Caller) -> None:
    failed = complete(caller, ["one", "two [[sandbox status=400]]"])
    assert (failed.status_code, failed.json()["error"]["message"]) == (400, "The request is invalid.")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.status_code, row.cost, LedgerEntry.objects.filter(kind="usage").count()) == (400, 0, 0)


def test_a_rule_finds_what_it_forbids_in_any_prompt(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "project zanzibar")
    blocked = complete(caller, ["fine", "tell me of project zanzibar"]).json()["error"]
    assert (blocked["code"], blocked["param"]) == ("guardrail_blocked", "prompt")
    assert "in prompt[1]:" in blocked["message"]
    settle_all()
    assert LedgerEntry.objects.filter(kind="usage").count() == 0


def add_messages_provider(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a provider of `echo` that speaks Anthropic's format; it is the sandbox."""
    add_provider(caller, monkeypatch, "messages", "anthropic", auth="x-api-key")
    offer_models("messages", model_id="echo")
    generation.bump(generation.CATALOG)


def test_the_same_prompt_is_answered_from_the_cache_as_no_chat_is(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    text = f"hi [[sandbox tag={uuid4().hex}]]"
    told = [complete(caller, text)["x-gateway-cache"], caller.chat(text)["x-gateway-cache"], complete(caller, text)]
    assert (told[0], told[1], told[2]["x-gateway-cache"]) == ("miss", "miss", "hit")
    assert told[2].json()["choices"][0]["text"] == "You said: hi"


def test_what_cannot_be_served_is_told_or_refused_by_name_and_changes_nothing(caller: Caller) -> None:
    for fields, param in (
        ({"prompt": [[1, 2]]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"min_p": 0.1, "headers": {"x-strict": "true"}}, "min_p"),
        ({"model": "embedder"}, "model"),
    ):
        refused = complete(caller, **fields)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)
    told = complete(caller, min_p=0.1)
    assert (told.status_code, told["x-gateway-loss"]) == (200, "min_p")


@pytest.mark.parametrize(("restore", "said"), [(True, "project pemba"), (False, "[TERM_REDACTED]")])
@pytest.mark.parametrize("stream", [False, True])
def test_a_rule_names_the_prompt_and_an_echo_is_masked_as_the_answer_is(
    caller: Caller, restore: bool, said: str, stream: bool
) -> None:
    guard(caller)
    forbid(caller, "project zanzibar")
    forbid(caller, "project pemba", action="redact", name="Others", restore=restore)
    blocked = complete(caller, "tell me of project zanzibar").json()["error"]
    assert (blocked["code"], blocked["param"]) == ("guardrail_blocked", "prompt")
    assert "in prompt:" in blocked["message"]
    answer = complete(caller, "tell me of project pemba", echo=True, stream=stream)
    answers = [chunk for chunk in chunks_of(answer) if chunk != "[DONE]"] if stream else [answer.json()]
    text = "".join(one["choices"][0]["text"] for one in answers if one["choices"])
    assert text == f"tell me of {said}You said: tell me of {said}"
