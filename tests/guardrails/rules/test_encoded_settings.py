"""Settings in base64, hashes of passwords, keys without a head, short tokens, and values whose end was made."""

from __future__ import annotations

import base64

import pytest

from tests.guardrails.rules.test_chosen_passwords import found_in

MIXED = "k7Wq2zR9mX4vB6nLp3sYg8Tf"
HEX = "9f3e1b7c5d2a80647e93bc15fa20d846"
SIGNS = "/OiuM01kEhX5sQ7cPzT2vWbR8nLyJ4gD6fAaGt.HjK"
SETTINGS = 'user_secret="GrWTm5k2jtWy9CeOVbOjlREt"\n'


def encoded(text: str) -> str:
    """Return a text in base64."""
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "said",
    [
        SETTINGS,
        encoded(SETTINGS),
        "db:\n  user: anja\n  password: karo4sieben\n",
        "xdb:\n  user: anja\n  password: karo4sieben\n",
        "yxdb:\n  user: anja\n  password: karo4sieben\n",
        '{"a": 1, "password": "karo4sieben"}',
        f"//registry.acme.io/:_authToken={MIXED}\n",
        f"apiVersion: v1\ndata:\n  aws_secret_access_key: {encoded(MIXED)}\nkind: Secret\n",
        '_json_key:{"type": "service_account", "private_key_id": "x"}',
    ],
)
def test_settings_in_base64_are_found(said: str) -> None:
    assert found_in(f"config: {encoded(said)}") == [encoded(said).rstrip("=")]


@pytest.mark.parametrize(
    "said",
    [
        "the password is kept elsewhere, ask your administrator for it",
        "<label>Password: <input name=password></label>",
        "password: ${DB_PASSWORD}",
        '{"password": "password"}',
        "\x00\x01password: karo4sieben",
    ],
)
def test_base64_without_a_login_passes(said: str) -> None:
    assert found_in(f"config: {encoded(said)}") == []


def test_a_clusters_secret_is_found_in_its_document() -> None:
    data = f"data:\n  DB_PASSWORD: {encoded('regenschirm')}\n"
    assert found_in(f"kind: Secret\n{data}") == [encoded("regenschirm")]
    assert found_in("kind: SecretProviderClass\nparameters:\n  keyvaultName: shopvault1") == []
    assert found_in('kind: Secret\nfields["clientSecret"], "publishableKey": Shape().fields') == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"nt $3$${HEX}", f"$3$${HEX}"),
        (f"$gy$j9T${SIGNS[:22]}${SIGNS[:43]}xY", f"$gy$j9T${SIGNS[:22]}${SIGNS[:43]}x"),
        (f"Administrator:500:aad3b435b51404eeaad3b435b51404ee:{HEX}:::", HEX),
        ("root:aB1k.q7Zw/x2Z:0:0:root:/root:/bin/bash", "aB1k.q7Zw/x2Z"),
        ("userPassword: {SSHA}q83vASNFZ4mrze8BI0VniQq83vASNFZ4", "{SSHA}q83vASNFZ4mrze8BI0VniQq83vASNFZ4"),
        ("api_key: 'q8Rm2xW7'", "q8Rm2xW7"),
        ("X-Api-Key: q8Rm2xW7vT", "q8Rm2xW7vT"),
        ("parsehub token = 'LAwdpRpHOnYEWyc'", "LAwdpRpHOnYEWyc"),
        ('shop_token = "acme_production_ot_lwjtaej460gqsk5l5jdr81b"', "acme_production_ot_lwjtaej460gqsk5l5jdr81b"),
        ('token = "vla7av3iohil20u1itkh3v"', "vla7av3iohil20u1itkh3v"),
        ('$oauth = "Qm7vXpLr2FzT9baWtHx";', "Qm7vXpLr2FzT9baWtHx"),
        ('def api_token():\n    return "Qm7vXpLr2FzT9baWtHx"', "Qm7vXpLr2FzT9baWtHx"),
        ("https://a.io/?code=q83vASNFZ4mrze8BI0VniQq83vASNFZ4mr==", "q83vASNFZ4mrze8BI0VniQq83vASNFZ4mr=="),
        ('password = nexusPassword ?: "regenschirm"', "regenschirm"),
        ('password = "MySecret!2024x"', "MySecret!2024x"),
    ],
)
def test_hashes_and_tokens_are_found(text: str, secret: str) -> None:
    assert found_in(text) == [secret]


@pytest.mark.parametrize("head", ["b3BlbnNzaC1rZXktdjE", "MIIJqQIBAzCC", "MIIFHDBOBgkqhkiG9w0BBQ0w"])
def test_a_private_key_is_found_without_its_head(head: str) -> None:
    key = head + SIGNS[:42].replace(".", "x")
    assert found_in(f"key {key}") == [key]


@pytest.mark.parametrize(
    "text",
    [
        "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin",
        "shop:development26:2026:01",
        'def token_type():\n    return "bearer"',
        'function secretName() { return "shop-db-2026"; }',
        "https://acme.io/?code=authorization_code&state=xyz",
        "https://acme.io/search?key=summer-holidays-in-the-mountains-2026-07",
        "MIICIjANBgkqhkiG9w0BAQEFAAOCAg8AMIICCgKCAgEA",
        "secret: ENC[RSA,tUf83Ex0oSbDGa8vaU1hGqesODG9J4j40EgLClQYrwNT]",
        "val signingPassword: String? by project",
        'password = "{cipher}1e3faa2cdab2deae117dca102e52922a"',
        "sonarqube-scanner/-/sonarqube-scanner-2.5.0.tgz#ff704cbddf355d38a52c5e9479d6bb5c1ff28eac",
        'export PUBLIC_API_KEY="fewc9LVRMbwMBBxdp36b1V48_lM-326LX0SGZM8ZR48"',
        'api_key: "api_key_1"',
        "token = 'v1beta1alpha2'",
        'enter your password or "cancel"',
    ],
)
def test_what_looks_like_them_passes(text: str) -> None:
    assert found_in(text) == []
