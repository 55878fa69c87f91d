"""Attacks on codes and tokens: each tried, and what it left behind."""

from __future__ import annotations

import secrets

import pytest

from apps.keys.models import ApiKey
from apps.oauth.access import authenticate_access_token
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, RefreshToken
from apps.oauth.resources import resource_of
from tests.support.cast import PASSWORD, World
from tests.support.console_client import Visitor, words
from tests.support.oauth_client import Program, query_of, registered, send_form


def lives(token: str) -> bool:
    return authenticate_access_token(token, resource=resource_of("/mcp")) is not None


def code_of(program: Program, world: World) -> str:
    return query_of(program.allowed_by(world.dana, world.project))["code"]


class TestStolenCode:
    @pytest.mark.parametrize(
        "changed",
        [
            {"code_verifier": ""},
            {"code_verifier": secrets.token_urlsafe(48)},
            {"redirect_uri": "http://127.0.0.1:3030/other"},
            {"client_id": "another"},
        ],
        ids=lambda changed: next(iter(changed)),
    )
    def test_a_code_is_nothing_without_what_belongs_to_it(self, world: World, changed: dict[str, str]) -> None:
        program, thief = registered(), registered()
        code = code_of(program, world)
        if "client_id" in changed:
            changed = {"client_id": thief.client_id}
        answer = program.exchange(code, **changed)
        assert answer.status_code in {400, 401}
        assert answer.json()["error"] in {"invalid_grant", "invalid_request"}
        assert (AccessToken.objects.count(), RefreshToken.objects.count()) == (0, 0)
        # The code was the program's own all the while.
        assert program.exchange(code).status_code == 200

    def test_a_code_that_comes_twice_ends_what_it_gave(self, world: World) -> None:
        program = registered()
        code = code_of(program, world)
        first = program.exchange(code).json()
        assert lives(first["access_token"])
        second = program.exchange(code)
        assert (second.status_code, second.json()["error"]) == (400, "invalid_grant")
        assert not lives(first["access_token"])
        assert program.refresh(first["refresh_token"]).json()["error"] == "invalid_grant"

    def test_the_stored_digest_of_a_code_is_no_code(self, world: World) -> None:
        program = registered()
        code_of(program, world)
        stored = AuthorizationCode.objects.get().code
        assert program.exchange(stored).json()["error"] == "invalid_grant"

    def test_a_code_asked_for_without_s256_is_never_given(self, world: World) -> None:
        program = registered()
        for changed in (
            {"code_challenge": None, "code_challenge_method": None},
            {"code_challenge_method": "plain"},
            {"code_challenge_method": None},
            {"code_challenge": "short"},
        ):
            answer = program.allowed_by(world.dana, world.project, program.authorization(**changed))
            assert answer.status_code == 400
            assert "code_challenge" in words(answer).lower().replace("code challenge", "code_challenge")
        assert (Consent.objects.count(), ApiKey.objects.filter(prefix="oauth").count()) == (0, 0)


class TestRefreshTokens:
    def test_each_is_good_once_and_brings_the_next(self, world: World) -> None:
        program = registered()
        first = program.signed_in_by(world.dana, world.project)
        second = program.refresh(first["refresh_token"]).json()
        assert not lives(first["access_token"])
        assert lives(second["access_token"])
        assert second["refresh_token"] != first["refresh_token"]

    def test_a_second_use_ends_the_family(self, world: World) -> None:
        program = registered()
        first = program.signed_in_by(world.dana, world.project)
        second = program.refresh(first["refresh_token"]).json()
        stolen = program.refresh(first["refresh_token"])
        assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
        assert not lives(second["access_token"])
        assert program.refresh(second["refresh_token"]).json()["error"] == "invalid_grant"
        assert AccessToken.objects.count() == 0

    def test_whose_person_was_switched_off_gives_nothing(self, world: World) -> None:
        program = registered()
        tokens = program.signed_in_by(world.dana, world.project)
        world.dana.is_active = False
        world.dana.save()
        assert program.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
        assert AccessToken.objects.count() == 1

    def test_another_program_cannot_use_one(self, world: World) -> None:
        program, thief = registered(), registered()
        tokens = program.signed_in_by(world.dana, world.project)
        assert thief.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
        assert lives(tokens["access_token"])

    def test_a_refresh_reaches_no_further_resource_and_no_further_scope(self, world: World) -> None:
        program = registered()
        tokens = program.signed_in_by(world.dana, world.project, scope="models")
        for more, error in (
            ({"resource": resource_of("/mcp/all")}, "invalid_target"),
            ({"scope": "models tools"}, "invalid_scope"),
        ):
            assert program.refresh(tokens["refresh_token"], **more).json()["error"] == error
        assert program.refresh(tokens["refresh_token"]).json()["scope"] == "models"


def test_hostile_fields_are_refused_and_never_an_error_of_ours(world: World) -> None:
    program = registered()
    tokens = program.signed_in_by(world.dana, world.project)
    for fields in (
        {"x": "y"},
        {"grant_type": "password", "username": "dana@example.com", "password": PASSWORD},
        {"grant_type": "client_credentials", "client_id": program.client_id},
        {"grant_type": "authorization_code", "client_id": "a\x00b", "code": "x"},
        {"grant_type": "authorization_code", "client_id": program.client_id, "code": "x" * 5000},
        {"grant_type": "refresh_token", "client_id": program.client_id, "refresh_token": "\x00"},
        {"grant_type": "refresh_token", "client_id": program.client_id, "refresh_token": tokens["access_token"]},
    ):
        answer = send_form(program.web, "/oauth/token", fields)
        assert answer.status_code in {400, 401}, fields
        assert answer.json()["error"], fields
    twice = program.web.post("/oauth/token", "code=a&code=b", content_type="application/x-www-form-urlencoded")
    assert (twice.status_code, twice.json()["error_description"]) == (400, "No field may occur more than once")
    visitor = Visitor(world.dana)
    for query in ("client_id=%00", "client_id=%zz", f"client_id={program.client_id}&client_id=b", "a=b&" * 50, "%ff=1"):
        answer = visitor.client.get(f"/oauth/authorize?{query}")
        assert answer.status_code == 400, query
    assert lives(tokens["access_token"])
