"""The choice of providers, over real HTTP to the upstream: reroutes of named ones, conversations, its explanation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.attempt_lines import without_times
from tests.support.model_routes import post
from tests.support.sandbox_providers import Adding, add_provider, ask_echo, clock, stands, tried
from tests.support.upstream import Caller, settle_all

__all__ = ["add_provider", "clock"]
pytestmark = pytest.mark.usefixtures("clock")
ECHO = "sandbox/echo"


class TestNamedProviders:
    def test_below_ninety_percent_the_cheapest_better_one_is_asked(self, caller: Caller, add_provider: Adding) -> None:
        for name, price in (("dear", "9"), ("cheap", "2"), ("worse", "1")):
            add_provider(name, price)
        stands(ECHO, 89, 11)
        stands("worse/echo", 88, 12)
        answer, _ = ask_echo(caller, model=ECHO)
        metadata = answer.json()["metadata"]
        assert (metadata["requested_provider"], metadata["used_provider"]) == ("sandbox", "cheap")
        assert (metadata["selectionReason"], metadata["selectedProvider"]) == ("low-uptime-fallback", "cheap")
        assert (metadata["originalProvider"], metadata["originalProviderUptime"]) == ("sandbox", 89.0)

    @pytest.mark.parametrize(("answered", "failed"), [(90, 10), (100, 0), (0, 0)])
    def test_from_ninety_percent_on_it_is_asked(
        self, caller: Caller, add_provider: Adding, answered: int, failed: int
    ) -> None:
        add_provider("cheap", "0.001")
        stands(ECHO, answered, failed)
        metadata = ask_echo(caller, model=ECHO)[0].json()["metadata"]
        assert (metadata["used_provider"], metadata["selectionReason"]) == ("sandbox", "direct-provider-specified")
        assert "originalProvider" not in metadata

    def test_without_fallback_it_is_asked_however_bad_it_is(self, caller: Caller, add_provider: Adding) -> None:
        add_provider("cheap", "0.001")
        stands(ECHO, 1, 3)
        metadata = ask_echo(caller, model=ECHO, headers={"x-no-fallback": "true"})[0].json()["metadata"]
        assert (metadata["used_provider"], metadata["selectionReason"]) == ("sandbox", "direct-provider-specified")
        assert tried(ask_echo(caller, model=ECHO)[0]) == [("cheap", 200, True)]


CLAUDE_CODE = "user_0f_account__session_{}"
CARRIERS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{
        name: lambda word, name=name: {"headers": {name: word}}
        for name in ("x-claude-code-session-id", "x-session-id", "x-session-affinity", "session-id")
    },
    "prompt_cache_key": lambda word: {"prompt_cache_key": word},
    "metadata.user_id": lambda word: {"metadata": {"user_id": CLAUDE_CODE.format(word)}},
}


class TestConversations:
    @pytest.fixture(autouse=True)
    def _equals(self, caller: Caller, add_provider: Adding) -> None:
        prices = ModelProvider.objects.get(provider_id="sandbox", model_id="echo").prices
        for name in ("second", "third"):
            add_provider(name, prices=prices)

    @pytest.mark.parametrize("carrier", CARRIERS)
    def test_one_stays_with_its_provider_however_its_client_names_it(self, caller: Caller, carrier: str) -> None:
        chosen = {}
        for number in range(12):
            fields = CARRIERS[carrier](f"talk-{number}")
            metadata = [ask_echo(caller, **fields)[0].json()["metadata"] for _ in range(2)]
            assert [one["selectionReason"] for one in metadata] == ["session-affinity"] * 2
            assert metadata[0]["used_provider"] == metadata[1]["used_provider"]
            chosen[number] = metadata[0]["used_provider"]
        assert len(set(chosen.values())) > 1

    def test_of_anthropics_format(self, caller: Caller) -> None:
        Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
        policy.forget_all()
        for number in range(8):
            for _ in range(2):
                user = f'{{"device_id": "d", "session_id": "talk-{number}"}}'
                assert post(caller, "messages", model="echo", metadata={"user_id": user}).status == 200
        settle_all()
        rows = list(RequestLog.objects.order_by("created_at", "id"))
        assert {row.routing_metadata["selectionReason"] for row in rows} == {"session-affinity"}
        used = [row.used_provider for row in rows]
        assert used[::2] == used[1::2]
        assert len(set(used)) > 1

    def test_nobody_stays_with_a_provider_that_has_become_much_worse(self, caller: Caller) -> None:
        headers = {"x-session-id": "talk-1"}
        loyal = ask_echo(caller, headers=headers)[0].json()["metadata"]["used_provider"]
        stands(f"{loyal}/echo", 80, 20)
        assert ask_echo(caller, headers=headers)[0].json()["metadata"]["used_provider"] != loyal

    def test_without_a_conversation_the_best_is_asked(self, caller: Caller) -> None:
        answers = [ask_echo(caller)[0].json()["metadata"] for _ in range(6)]
        assert {one["selectionReason"] for one in answers} <= {"price-only-no-metrics", "weighted-score"}
        assert len({one["used_provider"] for one in answers}) == 1


def test_the_choice_is_explained_in_the_answer_in_a_stream_and_in_the_log(caller: Caller, add_provider: Adding) -> None:
    add_provider("second", "1", priority=0.8)
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
    policy.forget_all()
    answer, _ = ask_echo(caller, "status=503 times=1")
    metadata = answer.json()["metadata"]
    assert metadata["availableProviders"] == ["sandbox", "second"]
    assert (metadata["selectedProvider"], metadata["used_provider"]) == ("sandbox", "second")
    scores = metadata["providerScores"]
    assert [sorted(one) for one in scores] == [["latency", "price", "providerId", "score", "throughput", "uptime"]] * 2
    assert [one["uptime"] for one in scores] == [100.0, 100.0]
    assert (scores[0]["score"], scores[1]["price"]) == (1.0, 1.0)
    assert 0 < scores[1]["score"] < 0.8
    settle_all()
    kept = RequestLog.objects.get().routing_metadata
    names = ("availableProviders", "selectedProvider", "selectionReason", "providerScores", "routing")
    assert {**kept, "routing": without_times(kept["routing"])} == {name: metadata[name] for name in names}
