"""The account: name, address, password and sessions; nothing that counts without the present password."""

from __future__ import annotations

from base64 import b32decode

from knox.models import AuthToken

from apps.console.browser_session import COOKIE
from apps.organizations.actions import sign_in
from apps.organizations.credentials.sessions import find_session, sessions_of, start_session
from apps.organizations.models import TwoFactor
from tests.support.authenticator import app_code
from tests.support.cast import PASSWORD, World
from tests.support.console_client import Visitor, words

ACCOUNT, METHODS = "/app/account", "/app/account/sign-in-methods"
NEW = "nine blue lanterns"


def test_the_name_is_changed(world: World) -> None:
    visitor = Visitor(world.olivia)
    assert visitor.send(ACCOUNT, {"action": "rename", "name": "Olive"}).status_code == 302
    assert visitor.send(ACCOUNT, {"action": "rename", "name": ""}).status_code == 400
    world.olivia.refresh_from_db()
    assert world.olivia.name == "Olive"


def test_another_address_waits_for_the_password_and_for_its_confirmation(world: World) -> None:
    visitor = Visitor(world.olivia)
    fields = {"action": "email", "newEmail": "olivia@sea.example"}
    assert visitor.send(ACCOUNT, {**fields, "password": "not this one"}).status_code == 400
    world.olivia.refresh_from_db()
    assert world.olivia.wanted_email == ""
    assert visitor.send(ACCOUNT, {**fields, "password": PASSWORD}).status_code == 302
    world.olivia.refresh_from_db()
    assert (world.olivia.email, world.olivia.wanted_email) == ("olivia@example.com", "olivia@sea.example")
    assert "Waiting for olivia@sea.example" in words(visitor.open(ACCOUNT))


def test_another_password_ends_every_session_but_this_browsers(world: World) -> None:
    elsewhere, visitor = start_session(world.olivia), Visitor(world.olivia)
    before = visitor.client.cookies[COOKIE].value
    fields = {"action": "password", "password": PASSWORD, "newPassword": NEW}
    for wrong in ({"password": "not this one"}, {"newPassword": "12345"}):
        assert visitor.send(ACCOUNT, {**fields, **wrong}).status_code == 400
    assert find_session(elsewhere) is not None
    assert visitor.send(ACCOUNT, fields).status_code == 302
    assert find_session(elsewhere) is None
    assert find_session(before) is None
    now = find_session(visitor.client.cookies[COOKIE].value)
    assert now is not None
    assert now.user == sign_in(email="olivia@example.com", password=NEW)


def test_sessions_are_listed_without_their_tokens_and_ended(world: World) -> None:
    other, strangers = start_session(world.olivia), start_session(world.sam)
    visitor = Visitor(world.olivia)
    shown = visitor.open(ACCOUNT)
    names = {one.name for one in shown.context["sessions"]}
    assert names == {one.name for one in sessions_of(world.olivia)}
    assert len(names) == 2
    assert all(part not in shown.content.decode() for part in (other, other[:15]))
    sams = sessions_of(world.sam)[0].name
    assert visitor.send(ACCOUNT, {"action": "end", "session": sams}).status_code == 400
    assert find_session(strangers) is not None
    ended = (names - {shown.context["this_session"]}).pop()
    assert visitor.send(ACCOUNT, {"action": "end", "session": ended}).status_code == 302
    assert find_session(other) is None
    start_session(world.olivia)
    visitor.send(ACCOUNT, {"action": "end-others"})
    assert AuthToken.objects.filter(user=world.olivia).count() == 1
    assert visitor.open(ACCOUNT).status_code == 200


def test_an_authenticator_app_is_set_up_after_proof_and_the_proof_is_this_sessions(world: World) -> None:
    visitor = Visitor(world.olivia)
    visitor.send(METHODS, {"action": "begin"})
    assert not TwoFactor.objects.exists()
    visitor.send(METHODS, {"action": "prove", "password": "not this one"})
    assert not visitor.open(METHODS).context["proved"]
    visitor.send(METHODS, {"action": "prove", "password": PASSWORD})
    assert visitor.open(METHODS).context["proved"]
    begun = visitor.send(METHODS, {"action": "begin"})
    secret = b32decode(begun.context["enrolment"].secret)
    confirmed = visitor.send(METHODS, {"action": "confirm", "code": app_code(secret=secret)})
    assert len(confirmed.context["recovery_codes"]) == 10
    assert TwoFactor.objects.get(user=world.olivia).confirmed_at is not None
    # The same browser, another session: of the same person, and of another.
    for user in (world.olivia, world.sam):
        visitor.client.cookies[COOKIE] = start_session(user)
        assert not visitor.open(METHODS).context["proved"]
        visitor.send(METHODS, {"action": "disable"})
    assert TwoFactor.objects.get(user=world.olivia).confirmed_at is not None


def test_without_a_session_there_is_no_account(world: World) -> None:
    for path in (ACCOUNT, METHODS):
        assert Visitor().open(path)["Location"].startswith("/app/sign-in?next=")
        assert Visitor().send(path, {"action": "rename", "name": "Eve"}).status_code == 302
    world.olivia.refresh_from_db()
    assert world.olivia.name == "Olivia"
