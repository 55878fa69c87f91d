"""Two requests compared: figures with their change, and only those lines of prompts and answers that differ."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from apps.logs.comparison import MAX_LINES, DiffLine, Pair, RequestComparison, compare
from apps.logs.models import RequestLog
from apps.logs.request_page import row_of


def row(**columns: Any) -> Any:
    usual = {
        "id": UUID(int=1),
        "created_at": datetime(2026, 3, 4, tzinfo=UTC),
        "request_id": "1",
        "organization_id": UUID(int=2),
        "project_id": UUID(int=3),
        "api_key_id": UUID(int=4),
        "route": "chat_completions",
        "duration": 1_000,
        "requested_model": "gpt-5",
        "used_model": "gpt-5",
        "used_provider": "openai",
        "mode": "credits",
        "used_mode": "credits",
        "status_code": 200,
        "unified_finish_reason": "completed",
    }
    return row_of(RequestLog(**{**usual, **columns}))


def test_figures_stand_side_by_side_with_their_change() -> None:
    found = compare(
        row(cost=Decimal("0.010000000000"), prompt_tokens=1_000, cached_tokens=0),
        row(cost=Decimal("0.012500000000"), prompt_tokens=900, used_model="echo", duration=1_000, cached_tokens=0),
    )
    assert found.pairs == [
        Pair("Model", "gpt-5", "echo"),
        Pair("Provider", "openai", "openai"),
        Pair("Status", "200 Completed", "200 Completed"),
        Pair("Cost", "$0.01", "$0.0125", "+$0.0025 (+25%)"),
        Pair("Duration", "1.00 s", "1.00 s"),
        Pair("Prompt tokens", "1,000", "900", "\N{MINUS SIGN}100 (\N{MINUS SIGN}10%)"),
        Pair("of which cached", "0", "0"),
    ]
    assert [pair.is_equal for pair in found.pairs] == [False, True, True, False, True, False, True]
    assert (found.has_content, found.prompt, found.answer) == (False, [], [])
    [change] = [pair for pair in compare(row(cached_tokens=0), row(cached_tokens=5)).pairs if "cached" in pair.title]
    assert change.change == "+5"


def test_equal_messages_are_counted_and_the_others_compared_line_by_line() -> None:
    system, end = {"role": "system", "content": "Be kind"}, {"role": "user", "content": "Go on"}
    text = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight"
    ours = [system, {"role": "user", "content": text}, end]
    theirs = [system, {"role": "user", "content": text.replace("one", "1").replace("eight", "8")}, end]
    found = compare(row(messages=ours, content="yes"), row(messages=theirs, content="no"))
    assert found.equal_messages == 2
    assert found.prompt == [
        DiffLine("same", "user:"),
        DiffLine("removed", "one"),
        DiffLine("added", "1"),
        DiffLine("same", "two"),
        DiffLine("same", "three"),
        DiffLine("skipped", "2 equal lines"),
        DiffLine("same", "six"),
        DiffLine("same", "seven"),
        DiffLine("removed", "eight"),
        DiffLine("added", "8"),
    ]
    assert found.answer == [DiffLine("same", "answer:"), DiffLine("removed", "yes"), DiffLine("added", "no")]
    assert (found.has_content, found.is_cut) == (True, False)


def test_equal_requests_differ_in_nothing() -> None:
    messages = [{"role": "user", "content": "hi"}]
    found = compare(row(messages=messages, content="yes"), row(messages=messages, content="yes"))
    assert (found.equal_messages, found.prompt, found.answer) == (1, [], [])


def test_a_call_of_a_tool_differs_by_its_arguments() -> None:
    def calling(city: str) -> RequestComparison:
        calls = [{"id": "1", "name": "find", "arguments": f'{{"city": "{city}"}}'}]
        return compare(
            row(tool_calls=[{"id": "1", "name": "find", "arguments": '{"city": "Rome"}'}]), row(tool_calls=calls)
        )

    assert calling("Rome").answer == []
    assert [one for one in calling("Oslo").answer if one.kind in ("removed", "added")] == [
        DiffLine("removed", '  "city": "Rome"'),
        DiffLine("added", '  "city": "Oslo"'),
    ]


def test_long_texts_are_cut() -> None:
    content = "\n".join(str(number) for number in range(MAX_LINES + 10))
    found = compare(row(content="x"), row(content=content))
    assert found.is_cut
    assert sum(line.kind == "added" for line in found.answer) == MAX_LINES - 1
