"""Providers and credentials that fail, over real HTTP: who steps in, who rests, and whom it does not concern."""

from __future__ import annotations

import pytest

from apps.gateway.access import credentials, policy
from apps.gateway.routing import circuit_breaker
from apps.gateway.routing.circuit_breaker import CIRCUIT_BREAKERS
from apps.keys.models import ApiKey, ProviderKey
from apps.keys.secrets import digest_of, encrypt_credential, new_token
from apps.organizations.models import Organization, Project
from tests.support.sandbox_providers import Adding, Clock, add_provider, ask_echo, clock, tried
from tests.support.upstream import Caller

__all__ = ["add_provider", "clock"]
pytestmark = pytest.mark.usefixtures("clock")
ECHO = "sandbox/echo"


def session_that_begins_with(caller: Caller, ending: str) -> dict[str, str]:
    """Return the headers of a conversation whose first credential is the one that ends so."""
    for number in range(64):
        headers = {"x-session-id": f"conversation-{number}"}
        credentials.reset_cooldowns()
        used = ask_echo(caller, headers=headers)[1]
        credentials.reset_cooldowns()
        if used[0] == ending:
            return headers
    raise AssertionError(f"no conversation begins with {ending}")


class TestCredentials:
    """The operator's, with commas between them; the sandbox refuses the one called `invalid`."""

    @pytest.fixture
    def refused(self, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """The headers of a conversation that begins with a credential that is refused."""
        monkeypatch.setenv("SANDBOX_API_KEY", "invalid,good-one-2222")
        return session_that_begins_with(caller, "alid")

    def test_one_that_is_refused_is_followed_by_the_next_and_rests(
        self, caller: Caller, refused: dict[str, str], clock: Clock
    ) -> None:
        answer, used = ask_echo(caller, headers=refused)
        assert (answer.status, used) == (200, ["alid", "2222"])
        assert tried(answer) == [("sandbox", 401, False), ("sandbox", 200, True)]
        assert [ask_echo(caller, headers=headers)[1] for headers in (refused, {})] == [["2222"], ["2222"]]
        clock.now += 299
        assert ask_echo(caller, headers=refused)[1] == ["2222"]
        clock.now += 2
        assert ask_echo(caller, headers=refused)[1] == ["alid", "2222"]
        assert not CIRCUIT_BREAKERS.stats(ECHO).open

    def test_they_take_turns_without_fallback_too_and_nobody_else_is_asked(
        self, caller: Caller, refused: dict[str, str], add_provider: Adding
    ) -> None:
        add_provider("second", secrets="backup-3333")
        alone = {**refused, "x-no-fallback": "true"}
        for model in ("echo", ECHO):
            credentials.reset_cooldowns()
            answer, used = ask_echo(caller, model=model, headers=alone)
            assert (answer.status, used) == (200, ["alid", "2222"])
        credentials.reset_cooldowns()
        answer, used = ask_echo(caller, "status=401", headers=alone)
        assert (answer.status, sorted(used)) == (502, ["2222", "alid"])
        credentials.reset_cooldowns()
        answer, used = ask_echo(caller, "status=401", headers=refused)
        assert (answer.status, sorted(used)) == (502, ["2222", "3333", "alid"])

    @pytest.mark.parametrize(("asked", "rests"), [(30, 30), (None, 10), (100_000, 300), (86_000, 300)])
    def test_one_that_is_asked_too_often_rests_as_long_as_its_provider_says(
        self, caller: Caller, clock: Clock, monkeypatch: pytest.MonkeyPatch, asked: int | None, rests: int
    ) -> None:
        monkeypatch.setenv("SANDBOX_API_KEY", "good-one-1111,good-one-2222")
        first = session_that_begins_with(caller, "1111")
        after = "" if asked is None else f"retry-after={asked}"
        answer, used = ask_echo(caller, f"status=429 {after} times=1", headers=first)
        assert (answer.status, used) == (200, ["1111", "2222"])
        clock.now += rests - 1
        assert ask_echo(caller, headers=first)[1] == ["2222"]
        clock.now += 2
        assert ask_echo(caller, headers=first)[1] == ["1111"]

    @pytest.mark.parametrize("status", [500, 503, 404])
    def test_what_is_not_about_the_credential_is_not_tried_with_another(
        self, caller: Caller, monkeypatch: pytest.MonkeyPatch, status: int
    ) -> None:
        monkeypatch.setenv("SANDBOX_API_KEY", "good-one-1111,good-one-2222")
        answer, used = ask_echo(caller, f"status={status} times=1")
        assert (answer.status >= 500, len(used)) == (True, 1)

    def test_conversations_are_spread_over_them_and_stay(self, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SANDBOX_API_KEY", "good-one-1111,good-one-2222")
        first = {}
        for number in range(24):
            headers = {"x-session-id": f"talk-{number}"}
            first[number] = ask_echo(caller, headers=headers)[1]
            assert ask_echo(caller, headers=headers)[1] == first[number]
        assert 4 <= sum(used == ["1111"] for used in first.values()) <= 20


class TestCircuits:
    def test_after_five_failures_in_a_row_the_others_are_asked_until_a_probe_succeeds(
        self, caller: Caller, add_provider: Adding, clock: Clock
    ) -> None:
        add_provider("second")
        for _ in range(5):
            assert not CIRCUIT_BREAKERS.stats(ECHO).open
            assert tried(ask_echo(caller, "status=503 times=1")[0]) == [("sandbox", 503, False), ("second", 200, True)]
        answer, used = ask_echo(caller)
        metadata = answer.json()["metadata"]
        assert (tried(answer), len(used)) == ([("second", 200, True)], 1)
        assert metadata["availableProviders"] == ["second", "sandbox"]
        circuits = {one["providerId"]: one.get("circuit") for one in metadata["providerScores"]}
        assert circuits == {"second": None, "sandbox": "open"}
        named = ask_echo(caller, model=ECHO)[0].json()["metadata"]
        assert (named["selectionReason"], named["used_provider"]) == ("low-uptime-fallback", "second")
        alone = ask_echo(caller, model=ECHO, headers={"x-no-fallback": "true"})[0].json()["metadata"]
        assert alone["used_provider"] == "sandbox", "who insists on it gets it; and that it works is noticed"
        assert not CIRCUIT_BREAKERS.stats(ECHO).open

    def test_a_probe_that_fails_is_answered_by_another_and_one_that_succeeds_closes_it(
        self, caller: Caller, add_provider: Adding, clock: Clock
    ) -> None:
        add_provider("second")
        for _ in range(5):
            ask_echo(caller, "status=503 times=1")
        clock.now += circuit_breaker.FIRST_PROBE_PAUSE + 0.1
        answer, _ = ask_echo(caller, "status=503 times=1")
        assert answer.json()["metadata"]["selectionReason"] == "circuit-probe"
        assert tried(answer) == [("sandbox", 503, False), ("second", 200, True)]
        clock.now += circuit_breaker.FIRST_PROBE_PAUSE + 0.1
        assert tried(ask_echo(caller)[0]) == [("second", 200, True)], "the pause has doubled"
        clock.now += circuit_breaker.FIRST_PROBE_PAUSE + 0.1
        answer, _ = ask_echo(caller)
        assert answer.json()["metadata"]["selectionReason"] == "circuit-probe"
        assert tried(answer) == [("sandbox", 200, True)]
        assert not CIRCUIT_BREAKERS.stats(ECHO).open


class TestOtherTenants:
    @pytest.fixture
    def stranger(self, caller: Caller) -> Caller:
        """A caller of another organization."""
        organization = Organization.objects.create(name="Elsewhere", credits=100, plan="enterprise")
        project = Project.objects.create(organization=organization, name="Default Project")
        token = new_token()
        key = ApiKey.objects.create(
            project=project,
            created_by=caller.key.created_by,
            description="theirs",
            digest=digest_of(token),
            prefix=token[:7],
            last_four=token[-4:],
        )
        return Caller(caller.client, token, key, caller.sandbox_url)

    def assert_undisturbed(self, caller: Caller) -> None:
        CIRCUIT_BREAKERS.sync()
        for model, reason in (
            ("echo", {"price-only-no-metrics", "weighted-score"}),
            (ECHO, {"direct-provider-specified"}),
        ):
            metadata = ask_echo(caller, model=model)[0].json()["metadata"]
            assert metadata["used_provider"] == "sandbox"
            assert metadata["selectionReason"] in reason

    @pytest.mark.parametrize("script", ["status=400", "status=413", "status=422", "finish=content_filter"])
    @pytest.mark.parametrize("stream", [False, True])
    def test_bad_requests_say_nothing_about_a_provider(
        self, caller: Caller, stranger: Caller, add_provider: Adding, script: str, stream: bool
    ) -> None:
        add_provider("second")
        for _ in range(12):
            ask_echo(stranger, script, stream=stream)
        CIRCUIT_BREAKERS.sync()
        assert CIRCUIT_BREAKERS.stats(ECHO).requests == 0
        self.assert_undisturbed(caller)

    @pytest.mark.parametrize("script", ["status=500", "status=503", "status=429", "error=body"])
    def test_what_fails_everywhere_is_nobodys_fault(
        self, caller: Caller, stranger: Caller, add_provider: Adding, script: str
    ) -> None:
        add_provider("second")
        for _ in range(12):
            assert ask_echo(stranger, script)[0].status >= 429
        assert not CIRCUIT_BREAKERS.stats(ECHO).open
        self.assert_undisturbed(caller)

    @pytest.mark.parametrize("status", [401, 402, 403, 404, 429])
    def test_own_credentials_that_are_refused_are_their_owners_affair(
        self, caller: Caller, stranger: Caller, add_provider: Adding, status: int
    ) -> None:
        add_provider("second")
        ProviderKey.objects.create(
            organization_id=stranger.organization_id,
            provider="sandbox",
            encrypted_token=encrypt_credential("sk-of-theirs"),
        )
        policy.forget_all()
        for _ in range(12):
            ask_echo(stranger, f"status={status} times=1")
            credentials.reset_cooldowns()
        CIRCUIT_BREAKERS.sync()
        assert CIRCUIT_BREAKERS.stats(ECHO).requests == 0
        self.assert_undisturbed(caller)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_is_told_not_to_try_again_when_every_provider_was_tried(caller: Caller, stream: bool) -> None:
    refused = caller.chat("hi [[sandbox status=500]]", stream=stream)
    assert (refused.status_code, refused["x-should-retry"]) == (502, "false")
    for vain in (caller.chat("hi [[sandbox status=400]]", stream=stream), caller.chat(model="nobody", stream=stream)):
        assert (vain.status_code, vain["x-should-retry"]) == (400, "false")
    assert not caller.chat("hi [[sandbox status=429]]", stream=stream).has_header("x-should-retry")
