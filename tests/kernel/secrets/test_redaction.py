"""Credentials in other people's words: taken out however they are quoted, and nothing else is."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.kernel.secrets.redaction import SecretMask, StreamMask, redact, redact_forms

SECRET = "Canary+of/the=tests:0123456789abcdefghij"
TOKEN = "tok-0123456789abcdefghij"


@pytest.mark.parametrize(
    "quoted",
    [
        SECRET,
        quote(SECRET, safe=""),
        b64encode(SECRET.encode()).decode(),
        urlsafe_b64encode(SECRET.encode()).decode(),
        b64encode(f"user:{SECRET}".encode()).decode(),
        b64encode(f":{SECRET}!".encode()).decode(),
        b64encode(f"ab{SECRET}".encode()).decode(),
        SECRET[:20],
        SECRET[-20:],
        SECRET[7:29],
        json.dumps(SECRET),
        f"{SECRET[:18]}***{SECRET[-18:]}",
    ],
)
def test_no_part_of_a_known_secret_is_told(quoted: str) -> None:
    told = redact(f"Incorrect key provided: {quoted}. Try another.", [SECRET])
    assert told.startswith("Incorrect key provided: ")
    assert told.endswith(". Try another.")
    for text in (SECRET, quote(SECRET, safe=""), b64encode(SECRET.encode()).decode()):
        assert not any(text[start : start + 16] in told for start in range(len(text) - 15))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("sent Authorization: Bearer abcdefgh12345678 to us", "sent Authorization: Bearer ... to us"),
        ('{"x-api-key": "abc12345xyz"}', '{"x-api-key": "..."}'),
        ('{\\"authorization\\": \\"Bearer abc12345xyz\\"}', '{\\"authorization\\": \\"Bearer ...\\"}'),
        ("Basic dXNlcjpwYXNzd29yZDEyMw== is wrong", "Basic ... is wrong"),
        ("key sk-proj-a1b2c3d4e5f6g7h8i9j0 is unknown", "key ... is unknown"),
        (f"gw_live_{'a1' * 20}", "..."),
        (f"AIza{'b' * 35}", "..."),
        ("AKIAIOSFODNN7EXAMPLE", "..."),
        ("ya29.c.b0Aaekm1KthisIsAToken-_x", "..."),
        ("-----BEGIN PRIVATE KEY-----\\nMIIEvQ+/=\\n-----END PRIVATE KEY-----\\n", "...\\n"),
    ],
)
def test_what_looks_like_a_credential_is_masked(said: str, told: str) -> None:
    assert redact_forms(said) == told


@pytest.mark.parametrize(
    "said",
    [
        "Bearer authentication is required",
        "The Authorization header is missing",
        "The model `gpt-5-2025-08-07` does not exist",
        "risk-assessment-of-the-2nd-kind-takes-long",
        '{"api_key": "0198c5f2-1111-7abc-8def-000000000000", "event": "policy.kept"}',
        "This model's maximum context length is 128000 tokens",
    ],
)
def test_words_that_hold_none_stay_as_they_are(said: str) -> None:
    assert redact(said, [SECRET, "EMPTY-"]) == said


def test_the_parts_of_an_account_are_masked_each() -> None:
    account = json.dumps({"client_email": "robot@acme.example", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIabc\n"})
    assert "MIIabc" not in redact('bad key "-----BEGIN PRIVATE KEY-----\\nMIIabc\\n"', [account])
    pair = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert redact("secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", [pair]) == "secret ..."


@given(st.text(max_size=200), st.text(min_size=4, max_size=60))
def test_a_secret_never_stands_in_what_is_told(text: str, secret: str) -> None:
    if secret not in "...":
        assert secret not in redact(f"{text}{secret}{text}", [secret]) or set(secret) <= {"."}


def test_a_line_of_the_log_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    line = json.dumps({"event": 'got "Authorization: Bearer abc12345"', "exception": "x-api-key=abc12345xyz\n at"})
    assert json.loads(redact_forms(line)) == {
        "event": 'got "Authorization: Bearer ..."',
        "exception": "x-api-key=...\n at",
    }


def test_data_is_masked_where_a_secret_stands_and_nowhere_else() -> None:
    mask = SecretMask([SECRET, 'with "quotes" in it', "short"])
    data = {"a": [f"<{SECRET}>", 1, None], SECRET: {"b": 'with "quotes" in it', "c": "short"}}
    assert mask.value(data) == {"a": ["<...>", 1, None], "...": {"b": "...", "c": "short"}}
    clean = {"a": [SECRET[:12], "Bearer abc12345xyz"]}
    assert mask.value(clean) is clean
    assert SecretMask(["short"]).value(data) is data


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_a_secret_is_masked_in_a_body_that_arrives_in_pieces(size: int) -> None:
    body = f'data: {{"said": "{TOKEN}, {TOKEN[:-1]}"}}\n\ndata: {TOKEN}'.encode()
    mask = StreamMask([TOKEN])
    pieces = [mask.add(body[at : at + size]) for at in range(0, len(body), size)]
    assert b"".join([*pieces, mask.end()]) == f'data: {{"said": "..., {TOKEN[:-1]}"}}\n\ndata: ...'.encode()


def test_only_the_beginning_of_a_secret_waits_for_the_next_piece() -> None:
    mask = StreamMask([TOKEN])
    assert mask.add(f"a {TOKEN[:5]}".encode()) == b"a "
    assert mask.add(b" b\n\n") == f"{TOKEN[:5]} b\n\n".encode()
    assert mask.add(TOKEN.encode() + b"\n") == b"...\n"
    assert mask.end() == b""
