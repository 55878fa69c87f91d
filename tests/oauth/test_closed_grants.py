"""Grants, response types and secrets that the OAuth library knows and the product does not: refused before any look.

Each request here comes without a key; none may read a password, hash anything, or ask without end.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import Client as Web
from oauth2_provider.oauth2_backends import get_oauthlib_core
from pytest_django import DjangoAssertNumQueries, Settings

from apps.console.pages.programs import AUTHORIZE_PER_ADDRESS
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, OAuthClient
from apps.oauth.registration import GRANTS
from apps.oauth.views import TOKEN_PER_ADDRESS, TOKEN_PER_CLIENT_AND_ADDRESS
from tests.support.cast import PASSWORD, World
from tests.support.console_client import Visitor, words
from tests.support.oauth_client import registered, send_form

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
# Other grants of the library, those that OpenID Connect adds, and values that are no grant at all.
CLOSED = (
    "password",
    "client_credentials",
    "implicit",
    "openid",
    DEVICE,
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "urn:ietf:params:oauth:grant-type:token-exchange",
    "",
    "Authorization_Code",
    "authorization_code refresh_token",
)
REFUSED = {
    "error": "unsupported_grant_type",
    "error_description": "grant_type must be authorization_code or refresh_token",
}


class NoHashing(PBKDF2PasswordHasher):
    """Fails where a password would be hashed."""

    def encode(self, *_args: Any, **_kwargs: Any) -> str:
        """Fail."""
        raise AssertionError("a password was hashed")


@pytest.fixture
def no_hashing(world: World, settings: Settings) -> None:
    """Let nothing be hashed once the cast is there."""
    settings.PASSWORD_HASHERS = [f"{__name__}.NoHashing"]


@pytest.mark.parametrize("grant", CLOSED)
@pytest.mark.parametrize("as_json", [False, True], ids=["form", "json"])
def test_a_grant_outside_the_list_is_refused_before_anything_is_looked_at(
    world: World, grant: str, as_json: bool, no_hashing: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    program = registered()
    answers = []
    for password in (PASSWORD, "wrong"):
        fields = {
            "grant_type": grant,
            "client_id": program.client_id,
            "device_code": "y",
            "code": "y",
            "username": world.dana.email,
            "password": password,
            "client_secret": "x",
        }
        with django_assert_num_queries(0):
            answer = (
                program.web.post("/oauth/token", fields, content_type="application/json")
                if as_json
                else send_form(program.web, "/oauth/token", fields)
            )
        answers.append((answer.status_code, answer.json()))
    assert answers == [(400, REFUSED)] * 2
    assert AccessToken.objects.count() == 0


@pytest.mark.parametrize("body", [{"grant_type": ["password"]}, {"grant_type": {"a": 1}}, {}])
def test_a_grant_that_is_no_text_is_refused(db: None, body: dict[str, Any]) -> None:
    answer = Web().post("/oauth/token", body, content_type="application/json")
    assert (answer.status_code, answer.json()) == (400, REFUSED)


def test_the_library_has_no_other_grants_and_response_types() -> None:
    """A new one that comes with another version of the library fails here."""
    server = get_oauthlib_core().server
    assert tuple(server.grant_types) == GRANTS
    assert tuple(server.response_types) == ("code",)
    assert not hasattr(server, "create_device_authorization_response")


@pytest.mark.parametrize("kind", ["token", "none", "code token", "code id_token", "id_token", "Code", ""])
def test_another_response_type_gives_nothing(world: World, kind: str) -> None:
    program = registered()
    answer = program.allowed_by(world.dana, world.project, program.authorization(response_type=kind))
    assert (answer.status_code, "Location" in answer) == (400, False)
    assert (Consent.objects.count(), AuthorizationCode.objects.count()) == (0, 0)


@pytest.mark.parametrize("mode", ["fragment", "form_post", "query.jwt"])
def test_another_response_mode_gives_nothing(world: World, mode: str) -> None:
    program = registered()
    answer = program.allowed_by(world.dana, world.project, program.authorization(response_mode=mode))
    assert (answer.status_code, "Location" in answer) == (400, False)
    assert "response_mode must be query" in words(answer)
    assert (Consent.objects.count(), AuthorizationCode.objects.count()) == (0, 0)


class TestSecrets:
    @pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
    @pytest.mark.parametrize("known", [True, False], ids=["known client", "unknown client"])
    @pytest.mark.parametrize("secret", ["", "guess"])
    def test_none_is_right_and_none_costs_a_hash(
        self, world: World, no_hashing: None, path: str, known: bool, secret: str
    ) -> None:
        program = registered()
        # A secret that was written into the table all the same, in clear as the library would.
        OAuthClient.objects.filter(client_id=program.client_id).update(client_secret="guess")
        client_id = program.client_id if known else "nobody"
        fields = {"grant_type": "refresh_token", "refresh_token": "gw_refresh_x", "token": "gw_oauth_x"}
        basic = b64encode(f"{client_id}:{secret}".encode()).decode()
        by_header = send_form(Web(), path, fields, authorization=f"Basic {basic}")
        assert (by_header.status_code, by_header.json()["error"]) == (401, "invalid_client")
        if secret:
            by_body = send_form(Web(), path, {**fields, "client_id": client_id, "client_secret": secret})
            assert (by_body.status_code, by_body.json()["error"]) == (401, "invalid_client")

    def test_a_registration_hashes_nothing(self, world: World, no_hashing: None) -> None:
        assert registered().client_id


class TestThrottling:
    @pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
    def test_one_client_at_an_address_is_told_when_to_come_back(self, db: None, path: str) -> None:
        web = Web(REMOTE_ADDR="203.0.113.7")
        fields = {"grant_type": "refresh_token", "refresh_token": "x", "token": "x", "client_id": "one"}
        for _ in range(TOKEN_PER_CLIENT_AND_ADDRESS.count):
            assert send_form(web, path, fields).status_code in {400, 401}
        refused = send_form(web, path, fields)
        assert (refused.status_code, refused.json()["error"]) == (429, "temporarily_unavailable")
        assert 0 < int(refused["Retry-After"]) <= TOKEN_PER_CLIENT_AND_ADDRESS.seconds
        # Neither another program at the address nor the same one elsewhere has to wait.
        assert send_form(web, path, {**fields, "client_id": "other"}).status_code in {400, 401}
        assert send_form(Web(REMOTE_ADDR="203.0.113.8"), path, fields).status_code in {400, 401}

    def test_refused_grants_count_for_their_address_whatever_they_name(self, db: None) -> None:
        web = Web(REMOTE_ADDR="203.0.113.9")
        for number in range(TOKEN_PER_ADDRESS.count):
            fields = {"grant_type": "password", "client_id": f"{number}", "username": "a@b.c", "password": "x"}
            assert send_form(web, "/oauth/token", fields).status_code == 400
        refused = send_form(web, "/oauth/token", {"grant_type": "password"})
        assert refused.status_code == 429
        assert 0 < int(refused["Retry-After"]) <= TOKEN_PER_ADDRESS.seconds

    def test_the_page_of_consent_is_not_asked_without_end(self, world: World) -> None:
        visitor, path = Visitor(world.dana), registered().authorization()
        for _ in range(AUTHORIZE_PER_ADDRESS.count):
            assert visitor.client.get(path).status_code == 200
        refused = visitor.client.get(path)
        assert refused.status_code == 429
        assert 0 < int(refused["Retry-After"]) <= AUTHORIZE_PER_ADDRESS.seconds
