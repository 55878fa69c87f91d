"""Whom an access token stands for, and when for no one."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.db import connection
from django.utils import timezone

from apps.keys.actions import change_api_key, delete_api_key
from apps.keys.models import ApiKey
from apps.oauth.access import AccessGrant, authenticate_access_token
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, RefreshToken
from apps.oauth.resources import resource_of
from tests.support.cast import World
from tests.support.oauth_client import Program

MCP = "/mcp"


def grant_of(token: str, path: str = MCP) -> AccessGrant | None:
    return authenticate_access_token(token, resource=resource_of(path))


def test_a_token_stands_for_a_key_with_the_budget_that_was_chosen(world: World) -> None:
    tokens = Program().signed_in_by(world.dana, world.project)
    assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 3600, "models tools")
    key = ApiKey.objects.get(prefix="oauth")
    assert grant_of(tokens["access_token"]) == AccessGrant(
        key.id, world.project.id, world.dana.id, frozenset({"models", "tools"})
    )
    assert (key.description, key.created_by, key.project) == ("Test program", world.dana, world.project)
    assert (key.period_limit, key.period, key.usage_limit) == (Decimal(5), "month", None)


def test_a_token_for_one_resource_is_nothing_at_another(world: World) -> None:
    token = Program().signed_in_by(world.dana, world.project, resource=resource_of("/mcp/tracker"))["access_token"]
    assert grant_of(token, "/mcp/tracker") is not None
    assert [grant_of(token, path) for path in (MCP, "/mcp/other", "/mcp/all", "/mcp/tracker/x")] == [None] * 4
    assert authenticate_access_token(token, resource="https://elsewhere.example/mcp/tracker") is None


def test_a_token_ends_with_its_time_its_key_and_its_person(world: World) -> None:
    token = Program().signed_in_by(world.dana, world.project)["access_token"]
    [key] = ApiKey.objects.filter(prefix="oauth")
    change_api_key(key=key, changes={"status": ApiKey.Status.INACTIVE})
    assert grant_of(token) is None
    change_api_key(key=key, changes={"status": ApiKey.Status.ACTIVE})
    assert grant_of(token) is not None
    world.dana.is_active = False
    world.dana.save()
    assert grant_of(token) is None
    world.dana.is_active = True
    world.dana.save()
    AccessToken.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert grant_of(token) is None
    AccessToken.objects.update(expires=timezone.now() + timedelta(seconds=60))
    delete_api_key(key=key)
    assert grant_of(token) is None


def test_no_other_words_are_a_token(world: World) -> None:
    tokens = Program().signed_in_by(world.dana, world.project)
    digest = AccessToken.objects.get().token_checksum
    for words in (
        "",
        "x",
        "\x00",
        "é\udcff",
        tokens["refresh_token"],
        digest,
        tokens["access_token"] + "x",
        "a" * 5000,
    ):
        assert grant_of(words) is None


def test_nothing_in_the_tables_is_a_token_or_code(world: World) -> None:
    program = Program()
    tokens = program.signed_in_by(world.dana, world.project)
    program.allowed_by(world.dana, world.project)
    with connection.cursor() as cursor:
        held = ""
        for model in (AccessToken, RefreshToken, AuthorizationCode, Consent):
            cursor.execute(f"SELECT to_jsonb(t)::text FROM {model._meta.db_table} t")
            held += "".join(row[0] for row in cursor.fetchall())
    assert AuthorizationCode.objects.count() == 2
    assert tokens["access_token"] not in held
    assert tokens["refresh_token"] not in held
    assert program.verifier not in held
    assert '"token":' not in held
