"""Sessions in the console: the list with its sums, one session as turns in time, who sees them, hostile names."""

from __future__ import annotations

import html
from decimal import Decimal
from typing import Any

import pytest

from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words

HOSTILE = "<script>alert(1)</script>/\u202e?&x=%"


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project, "crawler").key


def run(key: Any, session: str, **fields: Any) -> list[Any]:
    """Write a turn of three requests, with two failures of a kind, ten minutes ago; return their ids."""
    tokens = {"prompt_tokens": 1_000, "completion_tokens": 20, "cached_tokens": 250}
    tools = {"unified_finish_reason": "tool_calls", "tool_call_counts": {"Read": 2, "Bash": 1}}
    requests = [
        {**tools, "cost": Decimal("0.1")},
        {"has_error": True, "status_code": 502, "unified_finish_reason": "upstream_error"},
        {"cost": Decimal("0.02"), "time_to_first_token": 40},
    ]
    return list(
        write(
            *(
                entry(key, id=id_at(ago(minutes=10 - place)), session_id=session, **{**tokens, **one, **fields})
                for place, one in enumerate(requests)
            )
        )
    )


def test_the_list_has_the_sums_of_each_session(world: World, key: Any) -> None:
    run(key, "run-1", user_agent="claude-cli/2.1.197")
    write(entry(key, id=id_at(ago(minutes=1)), session_id="run-2", user_agent="my-agent/1"), entry(key))
    answer = Visitor(world.dana).open(page(world.acme, "sessions"))
    assert [row["session"].id for row in answer.context["rows"]] == ["run-2", "run-1"]
    text = words(answer)
    assert "Claude Code run-1 $0.12 3 1 turn Read ( 2 ), Bash 1 3,000 25% cached 60 2 min" in text
    assert "my-agent/1 run-2 $0.00 1 1 turn – 0 0 0 120 ms" in text


def test_one_session_is_its_turns_with_the_cost_so_far(world: World, key: Any) -> None:
    ids = run(key, "run-1", user_agent="codex_exec/0.169")
    mark = {"tool": "send_mail", "argument": "to", "kind": "email", "source": HOSTILE}
    small = {
        "requested_model": "small",
        "cost": Decimal("0.003"),
        "routing_metadata": {"tool_argument_origins": [mark]},
    }
    write(entry(key, id=id_at(ago(minutes=2)), session_id="run-1", **small))
    answer = Visitor(world.dana).open(page(world.acme, "sessions/run-1"))
    text = words(answer)
    assert "Codex" in text
    assert "Requests 4 2 turns Errors 1 Tokens in 3,000 25% cached" in text
    assert "gpt-5 3 requests, 2 min, $0.12" in text
    assert "small 1 request, 120 ms, $0.003" in text
    assert "calls Bash, Read (2) $0.10 total $0.10" in text
    assert "502 Provider failed – total $0.10" in text
    assert "$0.02 total $0.12" in text
    assert "$0.003 total $0.123" in text
    assert text.count(f"email in send_mail.to from {HOSTILE}") == 1
    source = answer.content.decode()
    assert "<script>alert" not in source
    for one in ids:
        assert f'href="{page(world.acme, f"logs/{one}")}?sessionId=run-1"' in source
    assert source.count('class="waterfall"') == 4


def test_a_request_leads_to_its_session_and_back(world: World, key: Any) -> None:
    [first, *_] = run(key, "run-1")
    answer = Visitor(world.dana).open(page(world.acme, f"logs/{first}"), sessionId="run-1")
    assert f'<a href="{page(world.acme, "sessions/run-1")}">run-1</a>' in answer.content.decode()
    assert answer.context["newer"] is not None
    listed = Visitor(world.dana).open(page(world.acme, "logs"), sessionId="run-1").context["rows"]
    assert len(listed) == 3


def test_pages_keep_the_filter(world: World, key: Any) -> None:
    for name in ("a", "b", "c"):
        run(key, name)
    dana = Visitor(world.dana)
    query = {"projectId": str(world.project.id), "limit": "2"}
    first = dana.open(page(world.acme, "sessions"), **query)
    assert f"projectId={world.project.id}" in first.context["following"]
    second = dana.client.get(f"{page(world.acme, 'sessions')}?{first.context['following']}")
    seen = [row["session"].id for one in (first, second) for row in one.context["rows"]]
    assert (sorted(seen), second.context["following"]) == (["a", "b", "c"], None)

    steps = dana.open(page(world.acme, "sessions/a"), limit="2")
    rest = dana.open(page(world.acme, "sessions/a"), limit="2", cursor=steps.context["following"])
    assert [sum(len(shown["steps"]) for shown in one.context["turns"]) for one in (steps, rest)] == [2, 1]
    assert rest.context["following"] is None


def test_names_of_clients_are_plain_text(world: World, key: Any) -> None:
    run(key, HOSTILE, user_agent=HOSTILE, requested_model=HOSTILE, used_model=HOSTILE)
    dana = Visitor(world.dana)
    listed = dana.open(page(world.acme, "sessions"))
    assert (listed.status_code, "<script>alert" in listed.content.decode()) == (200, False)
    [address] = {part for part in listed.content.decode().split('"') if part.startswith(page(world.acme, "sessions/"))}
    shown = dana.client.get(html.unescape(address))
    assert (shown.status_code, shown.context["session"].id) == (200, HOSTILE)
    assert "<script>alert" not in shown.content.decode()


@pytest.mark.parametrize("path", ["sessions", "sessions/run-1"])
def test_strangers_see_nothing(world: World, key: Any, path: str) -> None:
    run(key, "run-1")
    assert Visitor(world.sam).open(page(world.acme, path)).status_code == 403
    theirs = Visitor(world.sam).open(page(world.elsewhere, path))
    assert (theirs.status_code, b"run-1" in theirs.content) == ({"sessions": 200}.get(path, 404), False)


def test_an_empty_list_says_which_clients_have_sessions(world: World, key: Any) -> None:
    write(entry(key))
    dana = Visitor(world.dana)
    assert "Claude Code, Codex and opencode name their session" in words(dana.open(page(world.acme, "sessions")))
    assert "No matching sessions" in words(dana.open(page(world.acme, "sessions"), startDate="2026-01-01"))
    wrong = dana.open(page(world.acme, "sessions"), startDate="soon")
    assert (wrong.status_code, "startDate" in wrong.context["form"].errors) == (400, True)
    assert dana.open(page(world.acme, "sessions/none")).status_code == 404
