"""Registration of programs: a flood, hostile descriptions, and secrets that no program gets."""

from __future__ import annotations

from typing import Any

from django.test import Client as Web

from apps.oauth.models import OAuthClient
from apps.oauth.views import REGISTER_PER_ADDRESS
from tests.support.cast import World
from tests.support.oauth_client import CALLBACK, Program, query_of


def code_of(program: Program, world: World) -> str:
    return query_of(program.allowed_by(world.dana, world.project))["code"]


class TestRegistration:
    def test_a_flood_is_told_when_to_come_back(self, world: World) -> None:
        for _ in range(REGISTER_PER_ADDRESS.count):
            assert Program().register().status_code == 201
        answer = Program().register()
        assert answer.status_code == 429
        assert 0 < int(answer["Retry-After"]) <= REGISTER_PER_ADDRESS.seconds
        assert answer.json()["error"] == "temporarily_unavailable"
        assert OAuthClient.objects.count() == REGISTER_PER_ADDRESS.count

    def test_hostile_descriptions_are_refused_by_name(self, db: None) -> None:
        web = Web(REMOTE_ADDR="203.0.113.5")
        uri = "invalid_redirect_uri"
        hostile: list[tuple[Any, str, str]] = [
            ({"redirect_uris": ["https://a.example/#f"]}, uri, "redirect_uris: Must have no fragment"),
            ({"redirect_uris": ["https://u:p@a.example/"]}, uri, "redirect_uris: Must have no user or password"),
            ({"redirect_uris": ["http://a.example/"]}, uri, "redirect_uris: Must be https"),
            ({"redirect_uris": ["javascript:alert(1)"]}, uri, "redirect_uris: Must be https"),
            ({"redirect_uris": ["data:text/html,x"]}, uri, "redirect_uris: Must be https"),
            ({"redirect_uris": ["file:///etc/passwd"]}, uri, "redirect_uris: Must be https"),
            ({"redirect_uris": ["https://a.example/x y"]}, uri, "redirect_uris: Must be an absolute URI"),
            ({"redirect_uris": []}, uri, "redirect_uris: "),
            ({"redirect_uris": ["https://a.example/"] * 21}, uri, "redirect_uris: "),
            ({"redirect_uris": "https://a.example/"}, uri, "redirect_uris: "),
            ({"redirect_uris": [7]}, uri, "redirect_uris: "),
            ({}, uri, "redirect_uris: "),
            (({"redirect_uris": [CALLBACK], "client_name": "x" * 101}), "invalid_client_metadata", "client_name: "),
            (({"redirect_uris": [CALLBACK], "client_name": "a\u202eb"}), "invalid_client_metadata", "client_name: "),
            (({"redirect_uris": [CALLBACK], "grant_types": ["password"]}), "invalid_client_metadata", "grant_types: "),
            ([], "invalid_client_metadata", "Must be a JSON object"),
            ('"no"', "invalid_client_metadata", "Must be a JSON object"),
        ]
        for body, error, start in hostile:
            answer = web.post("/oauth/register", body, content_type="application/json")
            assert answer.status_code == 400, body
            assert answer.json()["error"] == error, body
            assert answer.json()["error_description"].startswith(start), answer.json()
        answer = web.post("/oauth/register", "{" * 1000, content_type="application/json")
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_client_metadata")
        assert OAuthClient.objects.count() == 0

    def test_a_client_is_given_no_secret_and_proves_itself_with_none(self, world: World) -> None:
        program = Program()
        answer = program.register(token_endpoint_auth_method="client_secret_post").json()
        assert answer["token_endpoint_auth_method"] == "none"
        assert "client_secret" not in answer
        code = code_of(program, world)
        assert program.exchange(code, client_secret="guess").json()["error"] == "invalid_client"
        assert program.exchange(code).status_code == 200
