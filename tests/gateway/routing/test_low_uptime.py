"""Providers with low uptime come last, as all tenants saw it; but a provider that a client named is not replaced."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from apps.catalog.models import Provider
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS, OPEN_AFTER
from apps.kernel.valkey import generation
from tests.gateway.routing.test_ranking import candidate, order, ranked, stats
from tests.support.sandbox_providers import Adding, add_provider, ask_echo, clock, stands, tried
from tests.support.upstream import Caller

__all__ = ["add_provider", "clock"]
ECHO = "sandbox/echo"


class TestRanking:
    every = candidate("cheap", "1"), candidate("dear", "5"), candidate("dearer", "6")

    def test_who_is_hardly_up_is_never_first_for_being_cheap(self) -> None:
        """By price alone it would be, and was."""
        low = {"cheap": stats(uptime=89.9), "dear": stats(), "dearer": stats(uptime=90)}
        ranking = ranked(*self.every, stats_of=low)
        assert [one.provider_id for one in ranking.candidates] == ["dear", "dearer", "cheap"]
        scores = {one["providerId"]: one["score"] for one in ranking.explanation["providerScores"]}
        assert scores["cheap"] > scores["dear"]

    def test_at_ninety_it_is_where_its_score_puts_it(self) -> None:
        assert order(*self.every, stats_of={"cheap": stats(uptime=90)})[0][0] == "cheap"

    def test_cut_off_ones_come_after_it(self) -> None:
        stats_of = {"dear": stats(uptime=80), "cheap": stats(open=True)}
        assert order(*self.every, stats_of=stats_of)[0] == ["dearer", "dear", "cheap"]

    def test_where_all_are_the_score_decides(self) -> None:
        low = {name: stats(uptime=80) for name in ("cheap", "dear", "dearer")}
        assert order(*self.every, stats_of=low)[0] == ["cheap", "dear", "dearer"]

    def test_no_conversation_stays_with_it(self) -> None:
        alike = candidate("a", "1"), candidate("b", "1")
        chosen = {order(*alike, session=str(n), stats_of={"a": stats(uptime=89)})[0][0] for n in range(20)}
        assert chosen == {"b"}

    def test_nobody_explores_it(self) -> None:
        stale = {"cheap": stats(), "dear": stats(uptime=50, fresh_requests=0)}
        found = order(*self.every[:2], stats_of=stale, random_draw=0.0, exploration=1.0)
        assert found == (["cheap", "dear"], "weighted-score")

    def test_a_named_one_is_not_left_for_another_that_is_hardly_up(self) -> None:
        low = {"dear": stats(uptime=50), "cheap": stats(uptime=60)}
        found = order(*self.every, requested="dear", stats_of=low)
        assert found == (["dearer", "cheap", "dear"], "low-uptime-fallback")


@pytest.mark.usefixtures("clock")
class TestWhatOneTenantSaw:
    def fail(self, caller: Caller, times: int) -> None:
        """Have one tenant alone see failures that its requests may have caused."""
        for _ in range(times):
            answer, _ = ask_echo(caller, "status=500", model=ECHO, headers={"x-no-fallback": "true"})
            assert answer.status == 502
        CIRCUIT_BREAKERS.sync()

    def test_lowers_the_uptime_that_is_shown_and_cuts_nobody_off(self, caller: Caller, add_provider: Adding) -> None:
        add_provider("dear", "9")
        stands(ECHO, 30, 0)
        self.fail(caller, 2 * OPEN_AFTER)
        stats = CIRCUIT_BREAKERS.stats(ECHO)
        assert (stats.requests, stats.uptime, stats.open) == (40, 75.0, False)
        answer, _ = ask_echo(caller)
        metadata = answer.json()["metadata"]
        assert tried(answer) == [("dear", 200, True)]
        shown = {one["providerId"]: (one["uptime"], one.get("circuit")) for one in metadata["providerScores"]}
        assert shown == {"sandbox": (75.0, None), "dear": (100.0, None)}

    def test_has_the_one_that_was_named_passed_over(self, caller: Caller, add_provider: Adding) -> None:
        add_provider("dear", "9")
        stands(ECHO, 30, 0)
        self.fail(caller, 10)
        metadata = ask_echo(caller, model=ECHO)[0].json()["metadata"]
        assert (metadata["used_provider"], metadata["selectionReason"]) == ("dear", "low-uptime-fallback")
        assert (metadata["originalProvider"], metadata["originalProviderUptime"]) == ("sandbox", 75.0)


CUSTOM = {"type": "custom", "custom": {"name": "sql"}}
# Fields that only OpenAI's format has words for.
ONLY_OPENAI = {"logprobs": True}


@pytest.mark.usefixtures("clock")
class TestAFormatThatCannotSayIt:
    @pytest.fixture(autouse=True)
    def _providers(self, caller: Caller, add_provider: Adding) -> None:
        """The sandbox speaks Anthropic's format, which has no words for log probabilities; another has."""
        add_provider("dear", "9")
        Provider.objects.filter(pk="sandbox").update(dialect="anthropic", auth="x-api-key")
        generation.bump(generation.CATALOG)
        requests.delete(f"{caller.sandbox_url}/sandbox/requests", timeout=5)

    @pytest.mark.parametrize("fields", [{}, {"stream": True}, {"stream": True, "headers": {"x-hedge": "50"}}], ids=str)
    def test_a_named_provider_is_not_answered_for_by_another(self, caller: Caller, fields: Any) -> None:
        refused = caller.chat(model=ECHO, **ONLY_OPENAI, **fields)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert (error["code"], error["param"]) == ("unsupported_feature", "logprobs")
        assert requests.get(f"{caller.sandbox_url}/sandbox/requests", timeout=5).json()["requests"] == []

    def test_and_the_explanation_says_so_too(self, caller: Caller) -> None:
        body = {"model": ECHO, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"x-api-key": caller.token}

        def explain(**more: Any) -> Any:
            return caller.client.post(
                "/v1/route/explain", {**body, **more}, content_type="application/json", headers=headers
            )

        refused = explain(**ONLY_OPENAI)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "logprobs")
        # A function replaces a custom tool, as in a request.
        emulated = explain(tools=[CUSTOM])
        assert (emulated.status_code, emulated.json()["warnings"]) == (200, [])

    def test_nor_with_everything_or_nothing_wanted(self, caller: Caller) -> None:
        headers = {"x-strict": "true"}
        refused = caller.chat(model=ECHO, seed=1, headers=headers)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "seed")

    def test_a_wish_is_left_out_and_told(self, caller: Caller) -> None:
        answer = caller.chat(model=ECHO, seed=1)
        assert answer.status_code == 200
        assert answer.json()["metadata"]["used_provider"] == "sandbox"
        assert [one["param"] for one in answer.json()["metadata"]["warnings"]] == ["seed"]

    @pytest.mark.parametrize("stream", [False, True])
    def test_where_none_is_named_another_answers(self, caller: Caller, stream: bool) -> None:
        answer = caller.chat(model="echo", **ONLY_OPENAI, stream=stream)
        assert answer.status_code == 200
        said = b"".join(answer.streaming_content) if stream else answer.content
        assert b'"used_provider":"dear"' in said.replace(b'": "', b'":"')
