"""Values that stand for a secret, as the bench takes them: words that say so, nothing that somebody might choose."""

from __future__ import annotations

import pytest

from bench.detection import is_found, without_stand_ins
from bench.detection_sources import NO_CREDENTIAL, Sample, family_of
from bench.stand_ins import holds_only_stand_ins, is_of_stand_in_words, stands_in

# The token with which jwt.io introduces itself, without its signature.
SHOWN_TOKEN = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
)
STAND_INS = (
    "password someSecret changeme my-secret-key YOUR_API_KEY <password> ${DB_PASSWORD} xxxxxxxx ******** foobar "
    "testpassword somepass your-token-1 AKIAZZZZZZZZZZZZZZZZ"
)


@pytest.mark.parametrize("value", STAND_INS.split())
def test_words_for_a_secret_stand_for_one(value: str) -> None:
    assert is_of_stand_in_words(value)


CHOSEN = (
    "hunter2 admin123 Sommer2024 letmein! supersecret password1 test123 root1234 regenschirm s3cret P@ssw0rd qwerty "
    "tokenring secretary airflow 9f3e1b7c5d2a80647e93bc15fa20d846 12345678"
)


@pytest.mark.parametrize("value", CHOSEN.split())
def test_what_somebody_might_choose_stands_for_nothing(value: str) -> None:
    assert not is_of_stand_in_words(value)


@pytest.mark.parametrize(
    ("value", "text", "stands"),
    [
        ("airflow", "postgres://airflow:airflow@db:5432/airflow", True),
        ("airflow", "postgres://worker:airflow@db:5432/airflow", False),
        ("anja", "username: anja\npassword: anja", True),
        ("anja", 'connect("anja", "anja")', True),
        ("k7Wq2zR9", "user:k7Wq2zR9 password:k7Wq2zR9", False),
        ("postgres://user:password@db/shop", "postgres://user:password@db/shop", True),
        ("postgres://user:karo4sieben@db/shop", "postgres://user:karo4sieben@db/shop", False),
    ],
)
def test_a_users_own_name_stands_for_a_password(value: str, text: str, stands: bool) -> None:
    assert stands_in(value, text) is stands


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("credentials {\n  username 'user'\n  password 'password'\n}", True),
        ("https://user:token@git.example.org/x", True),
        ('jwt.sign({ id: "foo" }, "someSecret")', True),
        ('jwt.sign({ id: "foo" }, "regenschirm")', False),
        (f"{SHOWN_TOKEN}.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c", True),
        (SHOWN_TOKEN, True),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmphIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c", False),
        ("password = 'karo4sieben'", False),
        ('sign("k7Wq2zR9mX4v"); password = "password"', False),
        ("the password is kept elsewhere", False),
    ],
)
def test_a_text_without_a_label_holds_only_stand_ins_where_all_its_values_are(text: str, only: bool) -> None:
    assert holds_only_stand_ins(text) is only


def test_only_the_values_that_stand_for_nothing_are_wanted() -> None:
    both = Sample("password: password\ntoken: k7Wq2zR9mX4v", ("password", "k7Wq2zR9mX4v"), "", "")
    rest = without_stand_ins(both)
    assert rest is not None
    assert rest.wanted == ("k7Wq2zR9mX4v",)
    assert is_found(both, ["password"])
    assert not is_found(rest, ["password"])
    assert without_stand_ins(both._replace(wanted=("password",))) is None
    clean = both._replace(wanted=())
    assert without_stand_ins(clean) == clean


@pytest.mark.parametrize(
    ("detector", "credential"),
    [
        ("Controlled Unclassified Information", False),
        ("AWS IAM Unique Identifier", False),
        ("Algolia Application ID", False),
        ("sumologic_access_id", False),
        ("planetscale-id", False),
        ("Eagle Eye Networks Email", False),
        ("HashiCorp Vault AppRole SecretID", True),
        ("Mailgun API Key", True),
        ("Age Identity (X22519 secret key)", True),
        ("jfrog-identity-token", True),
        ("SEC101_051.StripeTestApiKey", True),
        ("Generic Secret", True),
    ],
)
def test_a_detector_looks_for_a_credential_unless_its_name_says_otherwise(detector: str, *, credential: bool) -> None:
    assert family_of(detector, "vendor") == ("vendor" if credential else NO_CREDENTIAL)
    found = Sample("key: k7Wq2zR9mX4v", ("k7Wq2zR9mX4v",), family_of(detector, "vendor"), "")
    assert without_stand_ins(found) == (found if credential else None)
