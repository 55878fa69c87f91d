"""Management keys by page: made once and shown once, rotated, revoked; an old session proves who it is."""

from __future__ import annotations

import re
from datetime import timedelta

from django.utils import timezone
from knox.models import AuthToken

from apps.organizations.models import ManagementKey
from tests.support.cast import PASSWORD, Caller, World, make_management_key
from tests.support.console_client import Visitor, page, words

FIELDS = {"action": "create", "name": "Terraform", "scopes": ["keys", "read"], "expiresAt": ""}


def test_an_admin_makes_one_however_often_the_form_is_sent(world: World) -> None:
    visitor = Visitor(world.adam)
    shown = [visitor.send(page(world.acme, "management-keys"), FIELDS, once="one form") for _ in range(2)]
    tokens = {re.findall(r"gw_mgmt_[0-9A-Za-z]{40}", one.content.decode())[0] for one in shown}
    key = ManagementKey.objects.get()
    assert len(tokens) == 1
    assert (key.name, key.scopes, key.created_by, key.expires_at) == ("Terraform", ["keys", "read"], world.adam, None)
    [token] = tokens
    assert Caller(token).get("/organization").status_code == 200
    text = words(visitor.open(page(world.acme, "management-keys")))
    assert token not in text
    assert f"Terraform gw_mgmt_…{token[-4:]} keys, read adam@example.com" in text


def test_a_form_without_scopes_makes_nothing_and_keeps_what_was_typed(world: World) -> None:
    answer = Visitor(world.adam).send(page(world.acme, "management-keys"), {**FIELDS, "scopes": []})
    assert answer.status_code == 400
    assert 'value="Terraform"' in answer.content.decode()
    assert not ManagementKey.objects.exists()


def test_it_is_rotated_and_revoked(world: World) -> None:
    made = make_management_key(world.olivia, world.acme, "read")
    visitor, path = Visitor(world.adam), page(world.acme, "management-keys")
    answer = visitor.send(path, {"action": "rotate", "key": str(made.key.id)})
    assert "The old key has stopped working." in words(answer)
    assert Caller(made.token).get("/organization").status_code == 401
    answer = visitor.send(path, {"action": "revoke", "key": str(made.key.id)})
    assert answer.status_code == 302
    assert "The management key “Terraform” was revoked." in words(visitor.open(path))
    assert ManagementKey.objects.get().revoked_at is not None
    assert visitor.send(path, {"action": "revoke", "key": str(made.key.id)}).status_code == 400
    assert visitor.send(path, {"action": "burn"}).status_code == 400


def test_an_old_session_needs_the_password(world: World) -> None:
    visitor, path = Visitor(world.adam), page(world.acme, "management-keys")
    AuthToken.objects.update(created=timezone.now() - timedelta(hours=1))
    assert "Current password" in words(visitor.open(path))
    for password in ("", "wrong"):
        assert visitor.send(path, {**FIELDS, "password": password}).status_code == 400
    assert not ManagementKey.objects.exists()
    assert "shown only once" in words(visitor.send(path, {**FIELDS, "password": PASSWORD}))


def test_developers_do_not_see_the_page(world: World) -> None:
    assert Visitor(world.dana).open(page(world.acme, "management-keys")).status_code == 403
    assert "Management keys" not in words(Visitor(world.dana).open(page(world.acme)))
