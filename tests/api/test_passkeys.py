"""Passkeys: optional, alone or beside a password (section 2)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from knox.models import AuthToken

from apps.organizations.credentials import attempt_rate_limiter, passkeys
from apps.organizations.models import AuditEntry, Passkey, TwoFactor, User
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, Caller, World, signed_in
from tests.support.webauthn_authenticator import (
    NO_CEREMONY,
    OPTIONS,
    PRESENT,
    PROOF,
    REFUSED,
    SIGN_IN,
    Authenticator,
    add_passkey,
    answer,
    decode,
    registration,
    sign_in,
)


class TestSigningIn:
    def test_a_passkey_alone_begins_a_session_of_its_user(self, world: World) -> None:
        made = add_passkey(signed_in(world.olivia))
        add_passkey(signed_in(world.dana))
        asked = Caller().post(OPTIONS).json()
        assert asked["options"]["allowCredentials"] == [], "who has one is told to nobody"
        assert (asked["options"]["rpId"], asked["options"]["userVerification"]) == ("localhost", "required")
        response = Caller().post(SIGN_IN, {"ceremonyId": asked["ceremonyId"], "credential": made.get(asked["options"])})
        assert (response.status_code, response.json()["user"]["email"]) == (200, world.olivia.email)
        assert Caller(response.json()["token"]).get("/auth/get-session").status_code == 200
        row = world.olivia.passkeys.get()
        assert (row.sign_count, row.last_used_at is not None) == (1, True)

    def test_beside_a_password_it_is_what_a_code_is(self, world: World) -> None:
        made = add_passkey(signed_in(world.olivia))
        sessions = AuthToken.objects.count()
        refused = sign_in(world.olivia)
        assert (refused.status_code, AuthToken.objects.count()) == (401, sessions)
        assert refused.json() == {"message": "Send a `passkey`, or a recovery code as `code`"}
        assert sign_in(world.olivia, passkey=answer(Caller(), made)).status_code == 200
        assert sign_in(world.olivia, password="wrong", passkey=answer(Caller(), made)).status_code == 401
        assert sign_in(world.dana).status_code == 200, "it is hers alone"

    def test_a_code_of_the_app_does_as_well(self, world: World) -> None:
        enrol(world.olivia)
        add_passkey(signed_in(world.olivia), password=PASSWORD, code=app_code())
        refused = sign_in(world.olivia)
        assert refused.json()["message"].endswith("a recovery code, or a `passkey`")
        assert sign_in(world.olivia, code=app_code(1)).status_code == 200

    def test_recovery_codes_stand_in_for_a_lost_one(self, world: World) -> None:
        caller = signed_in(world.olivia)
        codes = caller.post("/auth/passkeys", registration(caller, Authenticator())).json()["recoveryCodes"]
        assert len(set(codes)) == 10
        assert [sign_in(world.olivia, code=one).status_code for one in (codes[0], codes[0], codes[1])] == [
            200,
            401,
            200,
        ]
        again = registration(caller, Authenticator(), password=PASSWORD, code=codes[2])
        assert caller.post("/auth/passkeys", again).json()["recoveryCodes"] == [], "they are shown once"
        assert sign_in(world.olivia, code=app_code()).status_code == 401, "there is no app"

    def test_an_app_begun_and_not_confirmed_lets_nobody_in(self, world: World) -> None:
        """The person who began setup saw its secret; it is no factor until they enter one of its codes."""
        add_passkey(signed_in(world.olivia))
        enrol(User.objects.get(pk=world.dana.pk), confirmed=False)
        TwoFactor.objects.filter(user=world.olivia).update(
            sealed_secret=TwoFactor.objects.get(user=world.dana).sealed_secret
        )
        assert sign_in(world.olivia, code=app_code()).status_code == 401

    def test_of_an_account_that_is_closed_it_opens_nothing(self, world: World) -> None:
        made = add_passkey(signed_in(world.olivia))
        User.objects.filter(pk=world.olivia.pk).update(is_active=False)
        response = Caller().post(SIGN_IN, answer(Caller(), made))
        assert (response.status_code, response.json()) == (401, REFUSED)

    def test_tries_are_throttled(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        made = add_passkey(signed_in(world.olivia))
        monkeypatch.setattr(
            attempt_rate_limiter, "SIGN_IN_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("sign-in:address", 2)
        )
        monkeypatch.setattr(
            attempt_rate_limiter, "PASSKEY_PER_ADDRESS", attempt_rate_limiter.AttemptLimit("passkey:address", 3)
        )
        answers = [answer(Caller(), made) for _ in range(3)]
        assert Caller().post(OPTIONS).status_code == 429
        assert [Caller().post(SIGN_IN, one).status_code for one in answers] == [200, 200, 429]


class TestAdding:
    def test_it_is_kept_under_its_name(self, world: World) -> None:
        caller = signed_in(world.olivia)
        made = Authenticator()
        body = registration(caller, made, "  my laptop ")
        response = caller.post("/auth/passkeys", body).json()
        assert response["passkey"]["name"] == "my laptop"
        assert set(response["passkey"]) == {"id", "name", "transports", "backedUp", "lastUsedAt", "createdAt"}
        row = Passkey.objects.get()
        assert (bytes(row.credential_id), row.user, row.transports) == (made.credential_id, world.olivia, ["internal"])
        assert caller.get("/auth/passkeys").json() == {"passkeys": [response["passkey"]]}
        assert signed_in(world.dana).get("/auth/passkeys").json() == {"passkeys": []}
        entry = AuditEntry.objects.get(action="passkey.create")
        assert (entry.organization_id, entry.actor_email) == (world.acme.id, world.olivia.email)
        assert (entry.resource_id, entry.details) == (str(row.pk), {})

    def test_what_is_asked_for_says_whose_it_is_and_which_there_are(self, world: World) -> None:
        caller = signed_in(world.olivia)
        made = add_passkey(caller)
        options = caller.post("/auth/passkeys/options", {"passkey": answer(caller, made, PROOF)}).json()["options"]
        assert decode(options["user"]["id"]) == world.olivia.pk.bytes
        assert [decode(one["id"]) for one in options["excludeCredentials"]] == [made.credential_id]
        assert options["authenticatorSelection"] == {
            "residentKey": "required",
            "requireResidentKey": True,
            "userVerification": "required",
        }
        assert [one["alg"] for one in options["pubKeyCredParams"]] == [-7, -8, -257]

    @pytest.mark.parametrize("proof", [{"password": "not hers"}, {}, {"code": "000000"}, {"password": PASSWORD}])
    def test_a_stolen_session_cannot_add_one(self, world: World, proof: dict[str, str]) -> None:
        enrol(world.olivia)
        caller = signed_in(world.olivia)
        assert caller.post("/auth/passkeys/options", proof).status_code in (400, 401)
        assert Passkey.objects.count() == 0

    def test_the_proof_was_of_this_session(self, world: World) -> None:
        body = registration(signed_in(world.olivia), Authenticator())
        assert signed_in(world.olivia).post("/auth/passkeys", body).json() == NO_CEREMONY
        body = registration(signed_in(world.olivia), Authenticator())
        assert signed_in(world.dana).post("/auth/passkeys", body).json() == NO_CEREMONY
        assert Passkey.objects.count() == 0

    def test_one_is_kept_once_whoever_brings_it(self, world: World) -> None:
        caller = signed_in(world.olivia)
        made = add_passkey(caller)
        again = registration(caller, made, passkey=answer(caller, made, PROOF))
        dana = signed_in(world.dana)
        for response in (caller.post("/auth/passkeys", again), dana.post("/auth/passkeys", registration(dana, made))):
            assert (response.status_code, response.json()) == (409, {"message": "This passkey is already registered"})
        assert [row.user for row in Passkey.objects.all()] == [world.olivia]
        assert not TwoFactor.objects.filter(user=world.dana).exists(), "nor recovery codes for what was not kept"

    @pytest.mark.parametrize(
        "change",
        [
            {"origin": "http://evil.example"},
            {"rp_id": "evil.example"},
            {"flags": PRESENT},
            {"client_data": {"type": "webauthn.get"}},
            {"client_data": {"crossOrigin": True}},
            {"fmt": "android-safetynet"},
            {"fmt": "tpm"},
            {"fmt": "packed"},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_what_no_authenticator_made_here_is_not_kept(self, world: World, change: dict[str, Any]) -> None:
        caller = signed_in(world.olivia)
        response = caller.post("/auth/passkeys", registration(caller, Authenticator(**change)))
        assert (response.status_code, response.json()) == (400, {"message": "This passkey cannot be registered here"})
        assert (Passkey.objects.count(), TwoFactor.objects.count()) == (0, 0)

    def test_there_is_an_end_to_them(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(passkeys, "MAX_PASSKEYS", 1)
        caller = signed_in(world.olivia)
        body = registration(caller, Authenticator())
        made = add_passkey(caller)
        assert caller.post("/auth/passkeys", body).json() == NO_CEREMONY, "what was begun before has ended"
        assert world.olivia.passkeys.count() == 1
        proof = {"passkey": answer(caller, made, PROOF)}
        assert caller.post("/auth/passkeys/options", proof).json() == {
            "message": "You already have 1 passkeys: remove one first"
        }

    def test_without_a_domain_there_are_none(self, world: World, settings: Any) -> None:
        settings.PASSKEY_DOMAIN = type(settings.PASSKEY_DOMAIN)("", ())
        refused = {"message": "Passkeys are not available: PUBLIC_URL must be an HTTPS address with a domain name"}
        assert Caller().post(OPTIONS).json() == refused
        assert signed_in(world.olivia).post("/auth/passkeys/options", {"password": PASSWORD}).json() == refused

    def test_nothing_of_it_is_a_secret_that_lies_in_clear(self, world: World) -> None:
        made = add_passkey(signed_in(world.olivia))
        with connection.cursor() as cursor:
            cursor.execute("SELECT t::text FROM organizations_passkey t")
            kept = str(cursor.fetchall())
        assert made.key.private_numbers().private_value.to_bytes(32, "big").hex() not in kept


class TestRemoving:
    def test_it_is_named_anew_and_removed_with_proof(self, world: World) -> None:
        caller = signed_in(world.olivia)
        made = add_passkey(caller)
        row = Passkey.objects.get()
        assert caller.send("PATCH", f"/auth/passkeys/{row.pk}", {"name": "phone"}).json()["passkey"]["name"] == "phone"
        for proof in ({}, {"password": PASSWORD}, {"password": "not hers", "code": "x"}):
            assert caller.post(f"/auth/passkeys/{row.pk}/remove", proof).status_code in (400, 401)
        assert Passkey.objects.get().name == "phone"
        removed = caller.post(f"/auth/passkeys/{row.pk}/remove", {"passkey": answer(caller, made, PROOF)})
        assert removed.json() == {"message": "Passkey removed"}
        assert (Passkey.objects.count(), TwoFactor.objects.count()) == (0, 0)
        assert sign_in(world.olivia).status_code == 200, "after the last factor, the password alone"
        assert Caller().post(SIGN_IN, answer(Caller(), made)).json() == REFUSED
        actions = AuditEntry.objects.filter(action__startswith="passkey.").order_by("id")
        assert [entry.action for entry in actions] == ["passkey.create", "passkey.update", "passkey.delete"]

    def test_a_proof_is_good_once_and_in_its_session(self, world: World) -> None:
        caller = signed_in(world.olivia)
        made = add_passkey(caller)
        path = f"/auth/passkeys/{Passkey.objects.get().pk}/remove"
        elsewhere = answer(signed_in(world.olivia), made, PROOF)
        assert caller.post(path, {"passkey": elsewhere}).json() == NO_CEREMONY
        proof = answer(caller, made, PROOF)
        assert caller.post("/auth/two-factor", {"passkey": proof}).status_code == 200
        assert caller.post(path, {"passkey": proof}).json() == NO_CEREMONY
        assert Passkey.objects.count() == 1

    def test_with_an_app_the_second_factor_stays(self, world: World) -> None:
        caller = signed_in(world.olivia)
        enrol(world.olivia)
        made = add_passkey(caller, password=PASSWORD, code=app_code())
        proof = {"passkey": answer(caller, made, PROOF)}
        assert caller.post(f"/auth/passkeys/{Passkey.objects.get().pk}/remove", proof).status_code == 200
        assert sign_in(world.olivia).status_code == 401

    def test_without_the_app_passkey_and_recovery_codes_stay(self, world: World) -> None:
        caller = signed_in(world.olivia)
        enrol(world.olivia, confirmed=False)
        codes = caller.post("/auth/two-factor/confirm", {"code": app_code()}).json()["recoveryCodes"]
        made = add_passkey(caller, password=PASSWORD, code=codes[0])
        off = caller.post("/auth/two-factor/disable", {"passkey": answer(caller, made, PROOF)})
        assert off.status_code == 200
        assert [
            sign_in(world.olivia, **one).status_code for one in ({}, {"code": app_code(1)}, {"code": codes[1]})
        ] == [
            *(401, 401, 200),
        ]
        assert set(AuditEntry.objects.filter(action__startswith="two_factor.").values_list("action", flat=True)) == {
            *("two_factor.enable", "two_factor.disable"),
        }

    def test_a_stolen_session_with_the_password_cannot_turn_the_app_on_beside_it(self, world: World) -> None:
        caller = signed_in(world.olivia)
        add_passkey(caller)
        assert caller.post("/auth/two-factor", {"password": PASSWORD}).status_code == 401
        assert not TwoFactor.objects.exclude(sealed_secret=b"").exists()
