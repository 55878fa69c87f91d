"""Service accounts of Google Cloud: valid ones, the keeping of tokens, and what they never call, read or reveal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import gevent
import pytest
import requests
import responses

from apps.gateway.access.schemes import (
    SignableRequest,
    authorize,
    can_fill_placeholders,
    fill_base_url,
    google_service_account,
    split_secrets,
)
from apps.gateway.failures import UpstreamFailure
from tests.support.google_service_accounts import account_json, private_key

KIND = "google-service-account"
GOOGLE = "https://oauth2.googleapis.com/token"
REQUEST = SignableRequest("POST", "https://aiplatform.googleapis.com/v1/x", {}, b"{}")
TEMPLATE = "https://{location}-x.googleapis.com/v1/projects/{project}/locations/{location}"


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    google_service_account.forget_all()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands; its only entry is the time."""
    now = [1_000.0]
    monkeypatch.setattr(google_service_account.time, "monotonic", lambda: now[0])
    return now


def gives(token: str, seconds: Any = 3_600) -> None:
    """Let Google answer with a token."""
    responses.post(GOOGLE, json={"access_token": token, "expires_in": seconds, "token_type": "Bearer"})


def present(secret: str) -> dict[str, str]:
    """Return the headers that present a credential."""
    return authorize(KIND, secret, REQUEST)


@responses.activate
def test_a_signed_statement_is_exchanged_for_a_token() -> None:
    gives("ya29.first")
    assert present(account_json()) == {"Authorization": "Bearer ya29.first"}
    [call] = responses.calls
    said = parse_qs(str(call.request.body, "utf-8") if isinstance(call.request.body, bytes) else call.request.body)
    assert said["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    header, claims, signature = said["assertion"][0].split(".")
    assert all((header, claims, signature))
    assert "PRIVATE" not in str(call.request.body)


@responses.activate
def test_a_token_is_kept_until_five_minutes_before_its_end(clock: list[float]) -> None:
    gives("ya29.first")
    gives("ya29.second")
    account = account_json()
    assert present(account) == {"Authorization": "Bearer ya29.first"}
    clock[0] += 3_600 - 310
    assert present(account) == {"Authorization": "Bearer ya29.first"}
    clock[0] += 20
    assert present(account) == {"Authorization": "Bearer ya29.second"}
    assert len(responses.calls) == 2


@responses.activate
def test_a_token_that_is_still_good_serves_when_no_new_one_is_given(clock: list[float]) -> None:
    gives("ya29.first")
    account = account_json()
    present(account)
    responses.reset()
    responses.post(GOOGLE, body=requests.ConnectionError("gone"))
    clock[0] += 3_600 - 200
    assert present(account) == {"Authorization": "Bearer ya29.first"}
    clock[0] += 190
    with pytest.raises(UpstreamFailure) as failure:
        present(account)
    assert (failure.value.error_type, failure.value.status) == ("network", None)
    assert failure.value.retryable


@responses.activate
def test_accounts_do_not_share_tokens() -> None:
    gives("ya29.one")
    gives("ya29.two")
    assert present(account_json("a@x")) != present(account_json("b@x"))
    assert present(account_json("a@x")) == {"Authorization": "Bearer ya29.one"}


def test_a_token_is_got_by_one_greenlet_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = []
    go_on = gevent.event.Event()

    def exchange(secret: str, *, trusted: bool) -> tuple[str, float]:
        exchanges.append(trusted)
        go_on.wait()
        return "ya29.shared", 3_600.0

    monkeypatch.setattr(google_service_account, "fetch_token", exchange)
    account = account_json()
    waiting = [gevent.spawn(present, account) for _ in range(5)]
    gevent.idle()
    go_on.set()
    gevent.joinall(waiting, timeout=10)
    assert [greenlet.value for greenlet in waiting] == [{"Authorization": "Bearer ya29.shared"}] * 5
    assert exchanges == [False]


def test_those_who_waited_for_a_failure_do_not_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = []
    go_on = gevent.event.Event()

    def exchange(secret: str, *, trusted: bool) -> tuple[str, float]:
        exchanges.append(trusted)
        go_on.wait()
        raise UpstreamFailure("network", "no answer")

    monkeypatch.setattr(google_service_account, "fetch_token", exchange)
    waiting = [gevent.spawn(present, account_json()) for _ in range(3)]
    gevent.idle()
    go_on.set()
    gevent.joinall(waiting, timeout=10)
    assert [type(greenlet.exception) for greenlet in waiting] == [UpstreamFailure] * 3
    assert len(exchanges) == 1


@responses.activate
@pytest.mark.parametrize(
    "secret",
    [
        account_json(token_uri="https://evil.example/token"),
        account_json(token_uri="http://169.254.169.254/token"),
        account_json(type="external_account", credential_source={"file": "/etc/passwd"}),
        account_json(type="authorized_user"),
        account_json(private_key="no key at all"),
        account_json(private_key=None),
        account_json(client_email=5),
        "{",
        '{"type": "service_account"}',
    ],
)
def test_what_is_no_account_of_googles_calls_nobody(secret: str) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        present(secret)
    assert failure.value.status == 401
    assert len(responses.calls) == 0


@responses.activate
@pytest.mark.parametrize(
    "answer",
    [
        {"status": 400, "json": {"error": "invalid_grant", "error_description": "secret words"}},
        {"status": 200, "json": {"nothing": "secret words"}},
        {"status": 200, "body": "secret words"},
        {"status": 200, "json": ["secret words"]},
        {"status": 200, "json": {"access_token": "t", "expires_in": "secret words"}},
        {"status": 200, "json": {"access_token": "t"}},
        {"status": 302, "headers": {"Location": "https://evil.example/secret-words"}},
    ],
)
def test_a_refusal_quotes_neither_the_key_nor_what_was_answered(
    answer: dict[str, Any], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    responses.post(GOOGLE, **answer)
    with pytest.raises(UpstreamFailure) as failure:
        present(account_json())
    told = failure.value.message + caplog.text + "".join(capsys.readouterr())
    assert "secret" not in told
    assert private_key()[30:60] not in told
    assert failure.value.__cause__ is None
    assert {call.request.url for call in responses.calls} == {GOOGLE}


def test_an_access_token_and_an_api_key_are_presented_as_they_are() -> None:
    assert present("ya29.abc") == {"Authorization": "Bearer ya29.abc"}
    assert present("AIzaSy-key") == {"x-goog-api-key": "AIzaSy-key"}


def test_a_variable_holds_json_or_paths_and_keys(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(account_json("file@x") + "\n")
    text = account_json("text@x")
    assert split_secrets(KIND, text) == [text]
    assert split_secrets(KIND, f" {file}, AIzaKey ,") == [account_json("file@x"), "AIzaKey"]
    assert split_secrets(KIND, "") == []
    assert split_secrets("bearer", "a, b,,c") == ["a", "b", "c"]
    file.write_text(account_json("changed@x", project_id="another-project"))
    assert json.loads(split_secrets(KIND, str(file))[0])["client_email"] == "changed@x"


def test_a_path_that_leads_nowhere_is_no_credential(tmp_path: Path) -> None:
    file = tmp_path / "later.json"
    assert split_secrets(KIND, str(file)) == []
    file.write_text(account_json())
    assert split_secrets(KIND, str(file)) == [account_json()]


@responses.activate
def test_only_the_operators_own_account_may_name_another_endpoint() -> None:
    responses.post("http://localhost:1/token", json={"access_token": "ya29.local", "expires_in": 60})
    account = account_json(token_uri="http://localhost:1/token")
    with pytest.raises(UpstreamFailure):
        present(account)
    google_service_account.forget_all()
    [operators] = split_secrets(KIND, account)
    assert present(operators) == {"Authorization": "Bearer ya29.local"}


def test_an_account_fills_in_its_project() -> None:
    filled = "https://eu-x.googleapis.com/v1/projects/operators/locations/eu"
    half = TEMPLATE.replace("{location}", "eu")
    own = "https://eu-x.googleapis.com/v1/projects/acme-project/locations/eu"
    account = account_json()
    assert fill_base_url(KIND, account, half, own=False) == own
    assert fill_base_url(KIND, account, half, own=True) == own
    assert fill_base_url(KIND, account, filled, own=False) == filled
    assert fill_base_url(KIND, account, filled, own=True) == own
    assert fill_base_url("bearer", "key", filled, own=True) == filled


@pytest.mark.parametrize("secret", ["AIzaKey", account_json(project_id="../../evil"), account_json(project_id=None)])
def test_an_address_that_nobody_fills_is_not_called(secret: str) -> None:
    half = TEMPLATE.replace("{location}", "eu")
    with pytest.raises(UpstreamFailure):
        fill_base_url(KIND, secret, half, own=True)


def test_which_addresses_can_be_filled() -> None:
    assert can_fill_placeholders(KIND, TEMPLATE.replace("{location}", "eu"))
    assert not can_fill_placeholders(KIND, TEMPLATE)
    assert can_fill_placeholders("bearer", "https://x")
    assert not can_fill_placeholders("bearer", "https://{resource}.x")
    assert not can_fill_placeholders("x-api-key", "https://{project}.x")
