"""The admin's page of sign-in methods, and the admin's sign-in by passkey (section 2)."""

from __future__ import annotations

import json
import re
from base64 import b32decode
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from apps.organizations.accounts import sign_in_method_forms
from apps.organizations.actions import create_operator
from apps.organizations.models import AuditEntry, Passkey, Role, TwoFactor, User
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, Caller, World, join, signed_in
from tests.support.webauthn_authenticator import OPTIONS, Authenticator, add_passkey, answer

PAGE = "/admin/organizations/twofactor/mine/"


@pytest.fixture
def operator(db: None) -> User:
    """A user who may enter the admin."""
    return create_operator(email="op@example.com", password=PASSWORD)


@pytest.fixture
def browser(operator: User) -> Client:
    """A browser in which the operator has signed in."""
    client = Client()
    client.force_login(operator)
    return client


def do(client: Client, action: str, **fields: str) -> Any:
    return client.post(PAGE, {"action": action, **fields}, follow=True)


def prove(client: Client, **fields: str) -> Any:
    return do(client, "prove", **(fields or {"password": PASSWORD}))


def ask(client: Client, action: str, authenticator: Authenticator) -> str:
    """Return what the script of the page would put into the form."""
    asked = client.post(PAGE, {"action": action}).json()
    answered = authenticator.create if action == "add-options" else authenticator.get
    return json.dumps({"ceremonyId": asked["ceremonyId"], "credential": answered(asked["options"])})


def add(client: Client, name: str = "laptop") -> Authenticator:
    made = Authenticator()
    assert "was added" in do(client, "add", name=name, passkey=ask(client, "add-options", made)).content.decode()
    return made


class TestThePage:
    @pytest.mark.parametrize("action", ["begin", "confirm", "disable", "add", "rename", "remove", "nonsense"])
    def test_nothing_changes_for_who_has_not_proved_who_they_are(
        self, operator: User, browser: Client, action: str
    ) -> None:
        row = Passkey.objects.create(user=operator, name="laptop", credential_id=b"id", public_key=b"key")
        enrol(operator)
        before = list(Passkey.objects.values()), list(TwoFactor.objects.values())
        response = do(browser, action, id=str(row.pk), name="phone", code=app_code(), passkey="{}")
        assert re.search("Confirm your identity first|There is no such action here", response.content.decode())
        assert (list(Passkey.objects.values()), list(TwoFactor.objects.values())) == before
        assert browser.post(PAGE, {"action": "add-options"}).status_code == 400

    @pytest.mark.parametrize("fields", [{"password": "not theirs"}, {"code": "000000"}, {"passkey": "{}"}])
    def test_a_wrong_proof_is_none(self, browser: Client, fields: dict[str, str]) -> None:
        assert 'id="prove"' in prove(browser, **fields).content.decode()
        assert 'id="add-passkey"' not in browser.get(PAGE).content.decode()

    def test_a_password_is_no_proof_where_there_is_a_second_factor(self, operator: User, browser: Client) -> None:
        enrol(operator)
        assert 'id="add-passkey"' not in prove(browser).content.decode()
        assert 'id="add-passkey"' in prove(browser, password=PASSWORD, code=app_code()).content.decode()

    def test_a_proof_is_good_for_five_minutes(self, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        assert 'id="add-passkey"' in prove(browser).content.decode()
        now = sign_in_method_forms.time.time()
        for later, good in ((290.0, True), (310.0, False), (-10.0, False)):
            monkeypatch.setattr(sign_in_method_forms.time, "time", lambda later=later: now + later)
            assert ('id="add-passkey"' in browser.get(PAGE).content.decode()) == good

    def test_an_app_is_turned_on_and_its_secrets_are_shown_once(self, operator: User, browser: Client) -> None:
        prove(browser)
        begun = do(browser, "begin").content.decode()
        found = re.search('id="secret"[^>]*>([A-Z2-7]+)<', begun)
        assert found is not None
        assert 'src="data:image/svg+xml' in begun
        assert found[1] not in browser.get(PAGE).content.decode()
        assert "current code" in do(browser, "confirm", code="000000").content.decode()
        confirmed = do(browser, "confirm", code=app_code(secret=b32decode(found[1]))).content.decode()
        codes = re.findall("<li>([a-z0-9]{5}-[a-z0-9]{5})</li>", confirmed)
        assert len(set(codes)) == 10
        assert codes[0] not in browser.get(PAGE).content.decode()
        assert "is off" in do(browser, "disable").content.decode()
        assert not TwoFactor.objects.exists()
        assert [entry.change_message for entry in LogEntry.objects.order_by("id")] == [
            *("Authenticator app turned on", "Authenticator app turned off"),
        ]

    def test_passkeys_are_added_named_and_removed(self, world: World, operator: User, browser: Client) -> None:
        join(world.acme, operator, Role.ADMIN)
        prove(browser)
        made = add(browser)
        assert (
            "was added" not in do(browser, "add", name="x", passkey=ask(browser, "add-options", made)).content.decode()
        )
        row = Passkey.objects.get()
        do(browser, "rename", id=str(row.pk), name="<b>phone</b>")
        page = browser.get(PAGE).content.decode()
        assert "&lt;b&gt;phone&lt;/b&gt;" in page
        assert "<b>phone" not in page
        assert "was removed" in do(browser, "remove", id=str(row.pk)).content.decode()
        assert (Passkey.objects.count(), TwoFactor.objects.count()) == (0, 0)
        entries = AuditEntry.objects.filter(action__startswith="passkey.").order_by("id")
        assert [(one.action, one.actor_type, one.actor_email) for one in entries] == [
            (f"passkey.{verb}", "admin", operator.email) for verb in ("create", "update", "delete")
        ]

    def test_others_passkeys_are_not_touched(self, world: World, browser: Client) -> None:
        add_passkey(signed_in(world.olivia))
        prove(browser)
        row = Passkey.objects.get()
        for action in ("rename", "remove"):
            assert "belongs to another user" in do(browser, action, id=str(row.pk), name="mine").content.decode()
        assert Passkey.objects.get().name == "laptop"

    def test_a_passkey_proves_who_one_is(self, operator: User, browser: Client) -> None:
        prove(browser)
        made = add(browser)
        other = Client()
        other.force_login(operator)
        assert "Prove that it is you" in other.get(PAGE).content.decode()
        used = ask(other, "prove-options", made)
        assert 'id="add-passkey"' in prove(other, passkey=used).content.decode()
        third = Client()
        third.force_login(operator)
        assert 'id="add-passkey"' not in prove(third, passkey=used).content.decode(), "once, and in its session"
        assert 'id="add-passkey"' not in prove(third, passkey=ask(other, "prove-options", made)).content.decode()

    def test_it_is_for_operators_and_no_other_site(self, world: World, operator: User) -> None:
        member = Client()
        member.force_login(world.olivia)
        for client in (Client(), member):
            assert client.get(PAGE)["Location"].startswith("/admin/login/")
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(operator)
        assert strict.post(PAGE, {"action": "prove", "password": PASSWORD}).status_code == 403

    def test_ones_own_factors_are_not_deleted_in_the_lists(self, world: World, operator: User, browser: Client) -> None:
        """The lists do not ask for proof."""
        enrol(operator)
        enrol(world.olivia)
        path = "/admin/organizations/twofactor/"
        assert browser.post(f"{path}{operator.pk}/delete/", {"post": "yes"}).status_code == 403
        both = [str(operator.pk), str(world.olivia.pk)]
        browser.post(path, {"action": "delete_selected", "_selected_action": both, "post": "yes"})
        assert TwoFactor.objects.count() == 2
        assert browser.post(f"{path}{world.olivia.pk}/delete/", {"post": "yes"}).status_code == 302
        assert [row.user for row in TwoFactor.objects.all()] == [operator]
        assert AuditEntry.objects.get(action="two_factor.delete").organization_id == world.acme.id


class TestTheSignIn:
    def body(self, made: Authenticator, **fields: str) -> dict[str, str]:
        return {"passkey": json.dumps(answer(Caller(), made)), "username": "", "password": "", **fields}

    def test_a_passkey_alone_lets_an_operator_in(self, operator: User, browser: Client) -> None:
        prove(browser)
        made = add(browser)
        fresh = Client()
        assert OPTIONS in fresh.get("/admin/login/").content.decode()
        body = self.body(made)
        assert fresh.post("/admin/login/", {**body, "next": "/admin/"})["Location"] == "/admin/"
        assert fresh.session["_auth_user_id"] == str(operator.pk)
        again = Client()
        page = again.post("/admin/login/", body).content.decode()
        assert "start again" in page
        assert "_auth_user_id" not in again.session

    def test_a_members_does_not(self, world: World) -> None:
        made = add_passkey(signed_in(world.olivia))
        client = Client()
        assert client.post("/admin/login/", self.body(made)).status_code == 200
        assert "_auth_user_id" not in client.session

    @pytest.mark.parametrize("text", ["{}", "[", "null", "x" * 40_000, '{"ceremonyId": "x", "credential": {}}'])
    def test_what_is_no_answer_is_told_so(self, operator: User, text: str) -> None:
        client = Client()
        assert client.post("/admin/login/", {"passkey": text}).status_code == 200
        assert "_auth_user_id" not in client.session

    def test_the_password_alone_does_not_do_beside_it(self, operator: User, browser: Client) -> None:
        prove(browser)
        add(browser)
        client = Client()
        page = client.post("/admin/login/", {"username": operator.email, "password": PASSWORD}).content.decode()
        assert "Send a `passkey`, or a recovery code" in page
        assert "_auth_user_id" not in client.session

    def test_nothing_at_all_is_asked_for_again(self, operator: User) -> None:
        page = Client().post("/admin/login/", {"username": "", "password": ""}).content.decode()
        assert page.count("This field is required.") == 2
