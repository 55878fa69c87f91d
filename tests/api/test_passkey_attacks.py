"""Passkey attacks: authenticator answers that are replayed, made elsewhere, or another user's (section 2)."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from knox.models import AuthToken
from redis.exceptions import RedisError

from apps.kernel.errors import InvalidRequest
from apps.kernel.valkey.redis import client
from apps.organizations.credentials import ceremonies, passkeys
from apps.organizations.models import Passkey
from tests.support.cast import Caller, World, signed_in
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
    encode,
    sign_in,
)


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "http://localhost:9999"},
        {"origin": "https://localhost:8000"},
        {"origin": "http://evil.example"},
        {"rp_id": "evil.example"},
        {"flags": PRESENT},
        {"flags": 0},
        {"client_data": {"crossOrigin": True}},
        {"client_data": {"type": "webauthn.create"}},
        {"client_data": {"challenge": "AAAA"}},
        {"handle": b"x" * 16},
        {"handle": b""},
        {"credential_id": b"unknown"},
        {"key": Authenticator().key},
    ],
    ids=lambda change: next(iter(change)),
)
def test_nobody_gets_in_with_it(world: World, change: dict[str, Any]) -> None:
    """Another page's, another domain's, without its user being verified, another key's, and so on."""
    made = add_passkey(signed_in(world.olivia))
    for name, value in change.items():
        setattr(made, name, value)
    sessions = AuthToken.objects.count()
    response = Caller().post(SIGN_IN, answer(Caller(), made))
    assert (response.status_code, response.json()) == (401, REFUSED)
    assert AuthToken.objects.count() == sessions
    assert Passkey.objects.get().sign_count == 0


def test_a_challenge_is_answered_once(world: World) -> None:
    made = add_passkey(signed_in(world.olivia))
    made.count = -1  # An authenticator that counts nothing.
    asked = Caller().post(OPTIONS).json()
    body = {"ceremonyId": asked["ceremonyId"], "credential": made.get(asked["options"])}
    assert [Caller().post(SIGN_IN, body).status_code for _ in range(2)] == [200, 400]
    assert Caller().post(SIGN_IN, body).json() == NO_CEREMONY


def test_a_wrong_answer_uses_the_challenge_up(world: World) -> None:
    made = add_passkey(signed_in(world.olivia))
    asked = Caller().post(OPTIONS).json()
    good = {"ceremonyId": asked["ceremonyId"], "credential": made.get(asked["options"])}
    bad = {"ceremonyId": asked["ceremonyId"], "credential": Authenticator(handle=b"x").get(asked["options"])}
    assert [Caller().post(SIGN_IN, body).status_code for body in (bad, good)] == [401, 400]


def test_a_challenge_is_good_for_five_minutes(world: World) -> None:
    made = add_passkey(signed_in(world.olivia))
    body = answer(Caller(), made)
    [key] = client().keys("passkey-ceremony:*")
    assert 0 < client().ttl(key) <= 300
    client().delete(key)
    assert Caller().post(SIGN_IN, body).json() == NO_CEREMONY


def test_a_challenge_of_another_purpose_is_none(world: World) -> None:
    caller = signed_in(world.olivia)
    made = add_passkey(caller)
    of_proof = answer(caller, made, PROOF)
    assert Caller().post(SIGN_IN, of_proof).json() == NO_CEREMONY
    begun = caller.post("/auth/passkeys/options", {"passkey": answer(caller, made, PROOF)}).json()
    of_registration = {"ceremonyId": begun["ceremonyId"], "credential": made.get(begun["options"])}
    assert Caller().post(SIGN_IN, of_registration).json() == NO_CEREMONY
    of_sign_in = answer(Caller(), made)
    assert caller.post("/auth/passkeys/options", {"passkey": of_sign_in}).json() == NO_CEREMONY


def test_another_users_passkey_is_no_second_factor(world: World) -> None:
    add_passkey(signed_in(world.olivia))
    danas = add_passkey(signed_in(world.dana))
    response = sign_in(world.olivia, passkey=answer(Caller(), danas))
    assert (response.status_code, response.json()) == (401, REFUSED)


def test_a_count_that_goes_back_is_a_copy(world: World) -> None:
    made = add_passkey(signed_in(world.olivia))
    made.count = 5
    assert Caller().post(SIGN_IN, answer(Caller(), made)).status_code == 200
    # It signs with one more each time: with the same again, with less, and with none.
    for count in (5, 4, -1):
        made.count = count
        response = Caller().post(SIGN_IN, answer(Caller(), made))
        assert (response.status_code, response.json()) == (401, REFUSED), count
        assert Passkey.objects.get().sign_count == 6
    made.count = 6
    assert Caller().post(SIGN_IN, answer(Caller(), made)).status_code == 200


def test_without_the_store_nothing_is_begun_or_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = add_passkey(signed_in(world.olivia))
    body = answer(Caller(), made)

    def away() -> Any:
        raise RedisError

    monkeypatch.setattr(ceremonies, "client", away)
    assert [Caller().post(path, body if path == SIGN_IN else {}).status_code for path in (OPTIONS, SIGN_IN)] == [
        *(503, 503),
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["clientDataJSON", "attestationObject", "rawId"]),
    st.one_of(
        st.binary(max_size=200),
        st.recursive(st.integers(), lambda one: st.lists(one), max_leaves=5).map(cbor2.dumps),
    ),
)
def test_no_bytes_are_a_failure_of_ours(world: World, name: str, data: bytes) -> None:
    holder = passkeys.Holder(world.olivia, "a session")
    asked = passkeys.begin_registration(holder)
    credential = Authenticator().create(asked.options)
    place = credential if name == "rawId" else credential["response"]
    place[name] = encode(data)
    with pytest.raises(InvalidRequest) as caught:
        passkeys.register(holder, answered=passkeys.Answered(asked.ceremony_id, credential), name="x")
    assert caught.value.code == "invalid_passkey"
