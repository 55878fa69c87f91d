"""Guardrails on answers: what a rule finds does not get through, however it arrives; the rest does, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Event,
    Finished,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
    fold,
)
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.response_guard import ResponseGuard
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import EngineConfig, RuleSource, SystemRuleState
from apps.kernel.usage import Usage
from apps.kernel.valkey.redis import cache_client
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.anthropic_requests import ask
from tests.support.guardrails_in_force import forbid, guard, violations
from tests.support.upstream import Caller, chunks_of, settle_all

WORD, MASK = "zanzibar", "[TERM_REDACTED]"
LONG = "All of this is harmless and rather long, as answers are. " * 20


def guard_of(action: str = "redact") -> RequestGuard:
    config = {"type": "blocked_terms", "terms": [WORD], "matchType": "contains", "caseSensitive": False}
    rule: Any = RuleSource(id="rule", name="Terms", type="blocked_terms", config=config, action=action)
    off = {name: SystemRuleState(enabled=False) for name in system_rules()}
    return RequestGuard(
        engine.compile_guardrails(EngineConfig(system_rules=off, scan_output=True, custom_rules=(rule,))), "retain"
    )


def passed(
    events: list[Event], guard: RequestGuard | None = None, *, choices: int = 1, whole: bool = False
) -> list[Event]:
    return list(ResponseGuard(guard or guard_of(), choices, whole=whole).screen(iter(events)))


def in_pieces(text: str, size: int, kind: type[Any] = TextDelta, **fields: Any) -> list[Event]:
    return [kind(text=text[at : at + size], **fields) for at in range(0, len(text), size)]


END = Finished(reason="stop", native="stop")


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta, RefusalDelta])
@pytest.mark.parametrize("size", [1, 3, 7, 50, 5000])
def test_text_is_masked_however_it_is_cut(kind: type[Any], size: int) -> None:
    text = f"{WORD} {LONG}the {WORD} {LONG} and {WORD}"
    out = passed([Started(id="1"), *in_pieces(text, size, kind), END])
    assert "".join(event.text for event in out if isinstance(event, kind)) == text.replace(WORD, MASK)
    assert (out[0], out[-1]) == (Started(id="1"), END)


def test_text_goes_on_while_it_is_written() -> None:
    written: list[str] = []

    def events() -> Iterator[Event]:
        for piece in in_pieces(LONG, 10):
            written.append(piece.text)
            yield piece
        yield END

    through = ResponseGuard(guard_of(), 1, whole=False).screen(events())
    first = next(event for event in through if isinstance(event, TextDelta))
    assert LONG.startswith(first.text)
    assert len("".join(written)) < len(LONG) / 2


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_a_block_ends_the_answer_like_a_content_filter_and_hangs_up(size: int) -> None:
    closed: list[bool] = []

    def events() -> Iterator[Event]:
        try:
            yield from in_pieces(f"{LONG}the {WORD} {LONG}", size)
            yield END
            yield UsageReported(usage=Usage(input=1))
        finally:
            closed.append(True)

    guard = guard_of("block")
    answer = ResponseGuard(guard, 1, whole=False)
    out = list(answer.screen(events()))
    assert out[-1] == Finished(reason="content_filter")
    assert closed == [True]
    said = "".join(event.text for event in out if isinstance(event, TextDelta))
    assert f"{LONG}the {WORD}".startswith(said)
    assert WORD[:3] not in said
    assert not any(isinstance(event, UsageReported) for event in out)
    assert [(one.action_taken, one.matched_content) for one in guard.violations] == [("blocked", WORD)]


def test_what_an_answer_that_is_whole_has_used_is_told_all_the_same() -> None:
    usage = UsageReported(usage=Usage(input=5, output=7))
    out = passed([Started(), TextDelta(text=WORD), END, usage], guard_of("block"), whole=True)
    assert out == [Started(), Finished(reason="content_filter"), usage]


def test_of_several_choices_each_is_looked_at() -> None:
    events: list[Event] = [
        TextDelta(choice=0, text="all good"),
        TextDelta(choice=1, text=f"the {WORD}"),
        Finished(choice=0, reason="stop"),
        Finished(choice=1, reason="stop"),
    ]
    reply = fold(passed(events, choices=2))
    assert [choice.text for choice in reply.choices] == ["all good", f"the {MASK}"]
    reply = fold(passed(events, guard_of("block"), choices=2))
    assert [(choice.text, choice.finish) for choice in reply.choices] == [
        ("all good", "stop"),
        (None, "content_filter"),
    ]


def test_tool_calls_are_held_until_they_are_whole_and_stay_json() -> None:
    arguments = json.dumps({"to": f"the {WORD}", "n": 1}).replace("z", "\\u007a")
    calls: list[Event] = [
        ToolCallStarted(index=0, id="a", name="mail"),
        ToolCallStarted(index=1, id="b", name="call"),
        *(ToolCallDelta(index=0, arguments=arguments[at : at + 5]) for at in range(0, len(arguments), 5)),
        ToolCallDelta(index=1, arguments="{}"),
    ]
    done = Finished(reason="tool_calls")
    out = passed([TextDelta(text="I will mail"), *calls, done])
    assert out == [
        TextDelta(text="I will mail"),
        ToolCallStarted(index=0, id="a", name="mail"),
        ToolCallDelta(index=0, arguments=f'{{"to":"the {MASK}","n":1}}'),
        ToolCallStarted(index=1, id="b", name="call"),
        ToolCallDelta(index=1, arguments="{}"),
        done,
    ]
    out = passed([TextDelta(text="I will mail"), *calls, done], guard_of("block"))
    assert out == [TextDelta(text="I will mail"), Finished(reason="content_filter")]


def test_arguments_in_which_nothing_is_found_stay_as_the_model_wrote_them() -> None:
    events: list[Event] = [
        ToolCallStarted(index=0, id="a", name="mail"),
        ToolCallDelta(index=0, arguments='{ "to" :  "you"'),
        END,
    ]
    assert passed(events) == events


def test_thinking_keeps_its_seal_unless_it_was_masked() -> None:
    def block(number: int, text: str) -> list[Event]:
        return [
            ReasoningDelta(block=number, text=text, format="f"),
            ReasoningDelta(block=number, signature=f"seal{number}", format="f"),
        ]

    out = passed([*block(0, "all good"), *block(1, f"the {WORD}"), *block(2, "again"), TextDelta(text="So"), END])
    [choice] = fold(out).choices
    assert [(it.text, it.signature) for it in choice.reasoning] == [
        ("all good", "seal0"),
        (f"the {MASK}", None),
        ("again", "seal2"),
    ]
    kinds = [type(event) for event in out]
    assert kinds.index(TextDelta) > max(at for at, kind in enumerate(kinds) if kind is ReasoningDelta)


def test_what_else_tells_the_words_is_looked_at_or_left_out() -> None:
    probabilities = Logprobs(logprobs={"content": [{"token": WORD}]})
    annotation = {"type": "url_citation", "url_citation": {"title": f"on {WORD}", "url": "https://a.b"}}
    events: list[Event] = [
        TextDelta(text=f"the {WORD}"),
        probabilities,
        Annotated(annotation=annotation),
        OpaqueDelta(dialect="openai", data={"note": [WORD]}),
        END,
    ]
    out = passed(events)
    assert WORD not in str(out)
    assert not any(isinstance(event, Logprobs) for event in out)
    good = Logprobs(logprobs={"content": [{"token": "fine"}]})
    assert good in passed([TextDelta(text="fine"), good, END])


def test_what_only_the_clients_format_says_in_a_stream_is_masked() -> None:
    part = OpaqueDelta(dialect="google", data={"part": {"executableCode": {"code": f"print('{WORD}')"}}}, of="stream")
    (event,) = [event for event in passed([part], guard_of()) if isinstance(event, OpaqueDelta)]
    assert WORD not in str(event.data)


def test_sound_whose_words_are_forbidden_is_not_heard() -> None:
    sounds: list[Event] = [AudioDelta(data="AAAA", transcript="the zanz"), AudioDelta(data="BBBB", transcript="ibar")]
    assert passed([*sounds, END]) == [Finished(reason="content_filter")]
    sounds = [AudioDelta(data="AAAA", transcript="fine")]
    assert passed([*sounds, END]) == [*sounds, END]


def test_signs_of_life_and_an_answer_without_an_end_pass() -> None:
    assert passed([Waiting(), TextDelta(text="cut off")]) == [Waiting(), TextDelta(text="cut off")]


# --- end to end


@pytest.fixture
def scanning(caller: Caller) -> Caller:
    """A caller whose answers are looked at."""
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    guard(caller, scan_output=True)
    return caller


def said_in(response: Any, *, stream: bool) -> tuple[str, str]:
    if not stream:
        choice = response.json()["choices"][0]
        return choice["message"]["content"] or "", choice["finish_reason"]
    chunks = [chunk["choices"][0] for chunk in chunks_of(response)[:-1] if chunk["choices"]]
    text = "".join(chunk["delta"].get("content") or "" for chunk in chunks)
    return text, next(chunk["finish_reason"] for chunk in chunks if chunk["finish_reason"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_masked_told_and_recorded(scanning: Caller, stream: bool) -> None:
    rule = forbid(scanning, "you said", action="redact")
    response = scanning.chat("hi there", stream=stream)
    assert said_in(response, stream=stream) == (f"{MASK}: hi there", "stop")
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.content, row.unified_finish_reason) == (f"{MASK}: hi there", "completed")
    assert violations() == [(str(rule.id), "redacted", "you said", "You said")]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_blocked_is_paid(scanning: Caller, stream: bool) -> None:
    rule = forbid(scanning, "you said")
    tag = uuid4().hex
    response = scanning.chat(f"hi there [[sandbox tag={tag} usage=1000,200]]", stream=stream)
    assert response.status_code == 200
    assert said_in(response, stream=stream) == ("", "content_filter")
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.status_code, row.unified_finish_reason, row.content) == (200, "content_filter", None)
    assert row.cost is not None
    assert row.cost > 0
    if not stream:
        assert row.cost == Decimal("0.00027")
    assert violations() == [(str(rule.id), "blocked", "you said", "You said")]


def test_anthropics_clients_are_told_of_a_refusal(scanning: Caller) -> None:
    forbid(scanning, "you said")
    message = ask(scanning, "hi there").json()
    assert (message["content"], message["stop_reason"]) == ([], "refusal")


@pytest.mark.parametrize("stream", [False, True])
def test_only_what_was_let_through_is_kept_for_the_same_question(scanning: Caller, stream: bool) -> None:
    Project.objects.filter(pk=scanning.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    forbid(scanning, "you said", action="redact")
    for state in ("miss", "hit"):
        response = scanning.chat("hi there", stream=stream)
        assert said_in(response, stream=stream)[0] == f"{MASK}: hi there"
        assert response["x-gateway-cache"] == state
    [key] = cache_client().keys("*:answer:*")
    assert "You said" not in str(cache_client().get(key))


def test_a_kept_answer_is_held_against_the_rules_of_today(scanning: Caller) -> None:
    Project.objects.filter(pk=scanning.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    forbid(scanning, "something else")
    assert said_in(scanning.chat("hi there"), stream=False) == ("You said: hi there", "stop")
    forbid(scanning, "you said")
    response = scanning.chat("hi there")
    assert (response["x-gateway-cache"], said_in(response, stream=False)) == ("hit", ("", "content_filter"))


def test_answers_are_not_looked_at_unless_it_is_asked_for(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "you said")
    assert said_in(caller.chat("hi there"), stream=False) == ("You said: hi there", "stop")
