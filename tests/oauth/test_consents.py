"""Consents in daily use: given again, listed, revoked, ended by others; and how long their rows are kept."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.conf import settings
from django.test import Client as Web
from django.utils import timezone

from apps.keys.models import ApiKey
from apps.oauth import tokens
from apps.oauth.access import authenticate_access_token
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, KeyCode, OAuthClient, RefreshToken
from apps.oauth.resources import resource_of, www_authenticate
from apps.organizations.models import AuditEntry, Membership
from tests.support.cast import World, signed_in
from tests.support.console_client import Visitor, page, words
from tests.support.oauth_client import Program, registered, rows_of_every_table, send_form


def lives(token: str) -> bool:
    return authenticate_access_token(token, resource=resource_of("/mcp")) is not None


def test_a_second_consent_has_the_same_key_and_the_new_budget(world: World) -> None:
    program = registered()
    first = program.signed_in_by(world.dana, world.project)
    text = Visitor(world.dana).client.get(program.authorization()).content.decode()
    assert 'value="5"' in text
    program.allowed_by(world.dana, world.project, budget="9", period="all")
    key = ApiKey.objects.get(prefix="oauth")
    assert (key.usage_limit, key.period_limit, key.period) == (Decimal(9), None, "")
    assert Consent.objects.count() == 1
    assert lives(first["access_token"])


def test_programs_are_listed_and_revoked_by_whoever_may(world: World) -> None:
    danas, olivias = registered(), registered()
    dana, olivia = (
        danas.signed_in_by(world.dana, world.project),
        olivias.signed_in_by(world.olivia, world.project),
    )
    where = page(world.acme, "programs")
    assert words(Visitor(world.dana).open(where)).count("Test program") == 2  # its link, its button
    assert words(Visitor(world.adam).open(where)).count("Test program") == 4
    theirs = str(Consent.objects.get(user=world.olivia).id)
    for visitor in (Visitor(world.dana), Visitor(world.sam)):
        refused = visitor.send(where, {"program": theirs})
        assert refused.status_code in {400, 403}
    assert lives(olivia["access_token"])
    assert Visitor(world.adam).send(where, {"program": theirs}).status_code == 302
    assert not lives(olivia["access_token"])
    assert lives(dana["access_token"])
    assert olivias.refresh(olivia["refresh_token"]).json()["error"] == "invalid_grant"
    ended = ApiKey.objects.get(created_by=world.olivia)
    assert ended.status == ApiKey.Status.DELETED
    entry = AuditEntry.objects.get(action="consent.revoke")
    assert (entry.actor_email, entry.details["client"]) == ("adam@example.com", "Test program")


def test_a_member_who_leaves_is_signed_out_everywhere(world: World) -> None:
    program = registered()
    tokens = program.signed_in_by(world.dana, world.project)
    member = Membership.objects.get(organization=world.acme, user=world.dana)
    answer = signed_in(world.adam).send("DELETE", f"/organization/{world.acme.id}/members/{member.id}", {})
    assert answer.json() == {"message": "Member removed", "revokedApiKeys": 1}
    assert not lives(tokens["access_token"])
    assert program.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"
    assert Consent.objects.get().revoked_at is not None


def test_a_program_revokes_its_own_tokens_and_no_other_programs(world: World) -> None:
    program, other = registered(), registered()
    tokens = program.signed_in_by(world.dana, world.project)
    fields = {"token": tokens["access_token"], "client_id": other.client_id}
    assert send_form(Web(), "/oauth/revoke", fields).status_code == 200
    assert lives(tokens["access_token"])
    assert send_form(Web(), "/oauth/revoke", {**fields, "client_id": program.client_id}).status_code == 200
    assert not lives(tokens["access_token"])
    assert program.refresh(tokens["refresh_token"]).json()["error"] == "invalid_grant"


def test_json_is_read_at_the_token_endpoint_too(world: World) -> None:
    program = registered()
    tokens = program.signed_in_by(world.dana, world.project)
    body = {
        "grant_type": "refresh_token",
        "client_id": program.client_id,
        "refresh_token": tokens["refresh_token"],
    }
    answer = Web().post("/oauth/token", body, content_type="application/json")
    assert (answer.status_code, answer["Cache-Control"], answer["Access-Control-Allow-Origin"]) == (
        200,
        "no-store",
        "*",
    )


def test_metadata_says_what_there_is(db: None) -> None:
    here = settings.PUBLIC_URL
    server = Web().get("/.well-known/oauth-authorization-server").json()
    assert (server["issuer"], server["token_endpoint"]) == (here, f"{here}/oauth/token")
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["token_endpoint_auth_methods_supported"] == ["none"]
    assert Web().get("/.well-known/oauth-authorization-server/mcp").json() == server
    for path, resource in (("", "/mcp"), ("/mcp", "/mcp"), ("/mcp/tracker", "/mcp/tracker")):
        found = Web().get(f"/.well-known/oauth-protected-resource{path}").json()
        assert (found["resource"], found["authorization_servers"]) == (here + resource, [here])
    nowhere = Web().get("/.well-known/oauth-protected-resource/v1/chat")
    assert (nowhere.status_code, nowhere.json()["error"]) == (404, "invalid_request")
    # The host that a client names is not believed.
    assert Web().get("/.well-known/oauth-authorization-server", headers={"host": "localhost"}).json() == server
    assert www_authenticate("/mcp", error="invalid_token") == (
        f'Bearer error="invalid_token", resource_metadata="{here}/.well-known/oauth-protected-resource/mcp"'
    )


def test_what_is_past_its_time_goes_and_what_must_be_recognized_stays(world: World) -> None:
    rows_of_every_table(world.dana, world.project)
    tables = (AuthorizationCode, AccessToken, RefreshToken, KeyCode, OAuthClient, Consent)
    now = timezone.now()
    Program().register()
    assert tokens.purge(now) == 0
    # The access token has ended; the refresh token, the used code and what it gave are still to be recognized.
    assert tokens.purge(now + timedelta(days=20)) == 2
    assert [table.objects.count() for table in tables] == [1, 1, 1, 0, 1, 1]
    tokens.purge(now + timedelta(days=40))
    assert [table.objects.count() for table in tables] == [0, 0, 0, 0, 1, 1]
