"""Placeholders: numbers by first appearance, stable in a conversation, never one that the client wrote itself."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from redis.exceptions import ConnectionError as StoreDown

from apps.gateway.canonical.chat import Chat, FunctionTool, Message, Reasoning, Text, ToolCall, ToolResult
from apps.gateway.guard import placeholders
from apps.gateway.guard.json_text import Redaction, apply_redactions
from apps.gateway.guard.placeholders import (
    MAX_VALUE_LENGTH,
    MAX_VALUES,
    RENEW_AFTER,
    ConversationNumbers,
    MaskedValue,
    Placeholders,
)
from apps.gateway.guard.request_guard import RequestGuard
from apps.guardrails.outside import RequestFacts
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import CompiledGuardrails, EngineConfig, RuleSource, SystemRuleState
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import cache_client

ANN, BEN, CAT = "ann@post-office.org", "ben@post-office.org", "cat@post-office.org"
SHARE = CacheShare(UUID(int=7), 1_000_000)


def rules(*, restore: bool = True, custom: tuple[RuleSource, ...] = ()) -> CompiledGuardrails:
    states = {name: SystemRuleState(enabled=False) for name in system_rules()}
    states["pii_detection"] = SystemRuleState(
        action="redact", restore=restore, roles={"system": "redact", "tool_result": "redact"}
    )
    return engine.compile_guardrails(EngineConfig(system_rules=states, custom_rules=custom))


def numbers_rule(pattern: str, **more: Any) -> RuleSource:
    config = {"type": "custom_regex", "pattern": pattern}
    return RuleSource(id="n", name="Numbers", type="custom_regex", config=config, action="redact", **more)


def said(text: str, role: Any = "user") -> Message:
    return Message(role=role, parts=[Text(text=text)])


def masked(
    chat: Chat, compiled: CompiledGuardrails | None = None, share: CacheShare | None = None, session: str = ""
) -> RequestGuard:
    guard = RequestGuard(compiled or rules(), "retain", RequestFacts("", "", "", session), share)
    guard.screen(chat, b"{}")
    return guard


def texts(chat: Chat) -> list[Any]:
    return [getattr(part, "text", None) or getattr(part, "arguments", None) for m in chat.messages for part in m.parts]


def chat_of(*messages: Message, **fields: Any) -> Chat:
    return Chat(model="m", messages=list(messages), **fields)


def test_the_same_value_has_the_same_number_and_another_the_next() -> None:
    chat = chat_of(said(f"{ANN} and {BEN}"), said(f"{BEN}, {ANN}, {CAT}"))
    guard = masked(chat)
    assert texts(chat) == ["[EMAIL_1] and [EMAIL_2]", "[EMAIL_2], [EMAIL_1], [EMAIL_3]"]
    assert {word: value.text for word, value in guard.masked_values.items()} == {
        "[EMAIL_1]": ANN,
        "[EMAIL_2]": BEN,
        "[EMAIL_3]": CAT,
    }


def test_a_further_turn_changes_no_number_before_it() -> None:
    tool = FunctionTool(name="f", description=f"writes to {CAT}")
    first = chat_of(said(f"ask {ANN}"), tools=[tool])
    masked(first)
    second = chat_of(
        said(f"ask {ANN}"),
        said(f"{ANN} it is", "assistant"),
        said(f"and {BEN}"),
        tools=[FunctionTool(name="f", description=f"writes to {CAT}")],
    )
    masked(second)
    assert (texts(first), tool.description) == (["ask [EMAIL_2]"], "writes to [EMAIL_1]")
    assert texts(second) == ["ask [EMAIL_2]", "[EMAIL_2] it is", "and [EMAIL_3]"]


def test_a_rule_that_does_not_restore_writes_a_word_without_number() -> None:
    chat = chat_of(said(f"{ANN} and {BEN}"))
    assert masked(chat, rules(restore=False)).masked_values == {}
    assert texts(chat) == ["[EMAIL_REDACTED] and [EMAIL_REDACTED]"]


def test_nothing_comes_back_where_one_of_two_rules_does_not_restore() -> None:
    chat = chat_of(said(f"{ANN}, {BEN}"))
    guard = masked(chat, rules(custom=(numbers_rule("ann@", restore=False),)))
    assert texts(chat) == ["[EMAIL_REDACTED], [EMAIL_1]"]
    assert {word: value.text for word, value in guard.masked_values.items()} == {"[EMAIL_1]": BEN}


def test_a_value_that_is_too_long_does_not_come_back() -> None:
    text = "x" * (MAX_VALUE_LENGTH + 1)
    placeholders = Placeholders({}, lambda label, value: value)
    cut = Redaction(0, len(text), "[X]", "A")
    assert [placeholders.write(cut, one, "text") for one in (text, text[1:])] == ["[X]", "[A_1]"]
    assert placeholders.values == {"[A_1]": MaskedValue(text[1:])}


@pytest.mark.parametrize("task", ["embeddings", "moderations", "rerank"])
def test_texts_that_are_no_chat_have_no_numbers(task: Any) -> None:
    chat = chat_of(said(f"{ANN} and {BEN}"), task=task)
    assert masked(chat).masked_values == {}
    assert texts(chat) == ["[EMAIL_REDACTED] and [EMAIL_REDACTED]"]


def test_a_placeholder_that_the_client_wrote_stands_for_no_value() -> None:
    chat = chat_of(said(f"why is [EMAIL_1] in the file? ask {ANN}"))
    assert list(masked(chat).masked_values) == ["[EMAIL_2]"]
    assert texts(chat) == ["why is [EMAIL_1] in the file? ask [EMAIL_2]"]


def test_a_placeholder_in_thinking_is_the_gateways_own() -> None:
    thinking = Reasoning(text="write to [EMAIL_1]", signature="sealed")
    chat = chat_of(said(f"ask {ANN}"), Message(role="assistant", parts=[thinking]), said("go on"))
    masked(chat)
    assert texts(chat) == ["ask [EMAIL_1]", "write to [EMAIL_1]", "go on"]
    assert thinking.signature == "sealed"


def test_masked_json_stays_json() -> None:
    account = 4440001234
    call = ToolCall(id="c", name="f", arguments=json.dumps({"n": account, "who": f"a {account}", "s": str(account)}))
    result = ToolResult(call_id="c", parts=[Text(text=json.dumps([account, 1.5]))])
    prose = f'the file is {{"n": {account}, "l": [1, {account}], "e": "{{\\"n\\": {account}}}"}} and {account}'
    chat = chat_of(said(prose), Message(role="assistant", parts=[call]), Message(role="tool", parts=[result]))
    guard = masked(chat, rules(custom=(numbers_rule(r"\b444\d{7}\b"),)))
    assert json.loads(call.arguments) == {"n": "[PATTERN_1]", "who": "a [PATTERN_1]", "s": "[PATTERN_1]"}
    assert result.parts == [Text(text='["[PATTERN_1]",1.5]')]
    [written] = [part.text for part in chat.messages[0].parts if isinstance(part, Text)]
    value, end = json.JSONDecoder().raw_decode(written, written.index("{"))
    assert value == {"n": "[PATTERN_1]", "l": [1, "[PATTERN_1]"], "e": '{"n": "[PATTERN_1]"}'}
    assert written[end:] == " and [PATTERN_1]"
    assert guard.masked_values == {"[PATTERN_1]": MaskedValue(str(account), was_number=True, was_string=True)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 123}', '{"a": "[X]"}'),
        ('{"a":123,"b":1}', '{"a":"[X]","b":1}'),
        ('"a": 123\n', '"a": "[X]"\n'),
        (r"{\"a\": 123}", r"{\"a\": \"[X]\"}"),
        ("[1, 2.5, 123]", '[1, 2.5, "[X]"]'),
        ('{"a": -123}', '{"a": -[X]}'),
        ("call 123, please", "call [X], please"),
        ("a: 123,", "a: [X],"),
        ('say "123" now', 'say "[X]" now'),
        ("see [a](b) 123", "see [a](b) [X]"),
    ],
)
def test_a_number_of_json_within_a_text_becomes_a_string(text: str, expected: str) -> None:
    start = text.index("123")
    assert apply_redactions(text, [Redaction(start, start + 3, "[X]")]) == expected


def test_no_rule_takes_a_placeholder_for_a_finding() -> None:
    states = {name: SystemRuleState(action="redact") for name in ("secrets", "pii_detection")}
    text = 'password: [PASSWORD_1], "api_key": "[SECRET_12]", postgres://u:[PASSWORD_2]@h/db, tel [PHONE_1234567]'
    chat = chat_of(said(text), said(f"my password is [PASSWORD_1] {text}", "assistant"))
    assert masked(chat, engine.compile_guardrails(EngineConfig(system_rules=states))).violations == []
    assert texts(chat)[0] == text


class TestConversation:
    def test_numbers_are_kept_though_the_beginning_is_dropped(self) -> None:
        masked(chat_of(said(f"{ANN} and {BEN}")), share=SHARE, session="s")
        later = chat_of(said(f"{BEN}, then {CAT}, then {ANN}"))
        masked(later, share=SHARE, session="s")
        assert texts(later) == ["[EMAIL_2], then [EMAIL_3], then [EMAIL_1]"]

    def test_a_conversation_without_a_name_is_known_by_its_first_message(self) -> None:
        masked(chat_of(said("begin", "system"), said("hello"), said(f"{ANN} and {BEN}")), share=SHARE)
        later = chat_of(said("another", "system"), said("hello"), said(BEN))
        masked(later, share=SHARE)
        other = chat_of(said("hello you"), said(BEN))
        masked(other, share=SHARE)
        assert (texts(later)[-1], texts(other)[-1]) == ("[EMAIL_2]", "[EMAIL_1]")

    def test_organizations_and_sessions_share_no_numbers(self) -> None:
        masked(chat_of(said(f"{ANN} and {BEN}")), share=SHARE, session="s")
        for share, session in ((SHARE, "t"), (CacheShare(UUID(int=8), 1_000_000), "s")):
            chat = chat_of(said(BEN))
            masked(chat, share=share, session=session)
            assert texts(chat) == ["[EMAIL_1]"]

    def test_the_store_holds_no_value(self) -> None:
        masked(chat_of(said(f"ask {ANN}")), share=SHARE, session="s")
        keys = list(cache_client().scan_iter("*placeholders:*"))
        assert len(keys) == 1
        assert "post" not in str(cache_client().get(keys[0])) + str(keys)
        entry = ConversationNumbers(SHARE, "session:s")
        assert [len(known) for known in entry.read().values()] == [1]
        assert ANN not in json.dumps(entry.read())

    @pytest.mark.parametrize("fault", ["lost", "unreadable", "down"])
    def test_without_the_store_numbers_follow_the_first_appearance(
        self, fault: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = chat_of(said(f"{ANN} and {BEN}"))
        masked(first, share=SHARE, session="s")
        if fault == "down":

            def fail(*_: Any) -> None:
                raise StoreDown

            monkeypatch.setattr(CacheShare, "read", fail)
            monkeypatch.setattr(CacheShare, "keep", fail)
        else:
            for key in cache_client().scan_iter("*placeholders:*"):
                cache_client().set(key, "x") if fault == "unreadable" else cache_client().delete(key)
        second = chat_of(said(f"{ANN} and {BEN}"), said(CAT))
        guard = masked(second, share=SHARE, session="s")
        assert texts(second) == ["[EMAIL_1] and [EMAIL_2]", "[EMAIL_3]"]
        assert guard.masked_values["[EMAIL_3]"].text == CAT

    def test_an_answer_only_gets_values_of_its_own_request(self) -> None:
        masked(chat_of(said(f"{ANN} and {BEN}")), share=SHARE, session="s")
        later = masked(chat_of(said(BEN)), share=SHARE, session="s")
        assert {word: value.text for word, value in later.masked_values.items()} == {"[EMAIL_2]": BEN}

    def test_a_number_that_the_client_writes_later_is_given_up(self) -> None:
        masked(chat_of(said(ANN)), share=SHARE, session="s")
        for _ in range(2):
            chat = chat_of(said(ANN), said("the file says [EMAIL_1]"))
            masked(chat, share=SHARE, session="s")
            assert texts(chat) == ["[EMAIL_2]", "the file says [EMAIL_1]"]

    def test_kept_numbers_are_bounded(self) -> None:
        numbers = ConversationNumbers(SHARE, "session:s")
        many = {"A": [f"a{n}" for n in range(MAX_VALUES - 1)], "B": ["b1", "b2"], "C": ["c1"]}
        numbers.keep(many, is_changed=True)
        assert ConversationNumbers(SHARE, "session:s").read() == {"A": many["A"], "B": ["b1"], "C": []}

    def test_an_unchanged_entry_is_written_again_once_it_is_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[int] = []
        keep = CacheShare.keep

        def note(share: CacheShare, *arguments: Any) -> int:
            written.append(1)
            return keep(share, *arguments)

        monkeypatch.setattr(CacheShare, "keep", note)
        now = placeholders.time.time()
        for seconds, writes in ((0, 1), (60, 1), (RENEW_AFTER + 1, 2), (RENEW_AFTER + 60, 2)):
            monkeypatch.setattr(placeholders.time, "time", lambda at=now + seconds: at)
            masked(chat_of(said(ANN)), share=SHARE, session="s")
            assert len(written) == writes
