"""Passwords that people chose, keys written as bytes, and issuers' forms: what counts, and what looks alike."""

from __future__ import annotations

import pytest

from apps.guardrails.findings.scan_types import RuleSettings
from apps.guardrails.rules import secrets
from apps.guardrails.text.scanned_text import ScannedText


def found_in(text: str) -> list[str]:
    """Return the characters of each finding."""
    return [text[span.start : span.end] for span in secrets.find(ScannedText(text), RuleSettings())]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('password = "kite7"', "kite7"),
        ("if (pwd == 'blau&gelb')", "blau&gelb"),
        ("define('DB_PASSWORD', 'karo42');", "karo42"),
        ('login = "anja"\npassword = "regenschirm"', "regenschirm"),
        ("Server=db1;User Id=anja;Password=regenschirm;Timeout=5;", "regenschirm"),
        ("Pwd=regenschirm;Server=db1", "regenschirm"),
        ("curl -u anja:regenschirm https://shop.acme.io/", "regenschirm"),
        ("CREATE USER anja IDENTIFIED BY regenschirm;", "regenschirm"),
        ("GRANT ALL ON shop.* TO anja IDENTIFIED BY 'regenschirm'", "regenschirm"),
        ("ALTER ROLE anja WITH LOGIN PASSWORD 'regenschirm'", "regenschirm"),
        ("machine git.acme.io login anja password regenschirm", "regenschirm"),
        ("SHOP_ADMIN_PASSWORD=regenschirm", "regenschirm"),
        ("<smtpPassword>karo42</smtpPassword>", "karo42"),
        ("The password is 'regenschirm'", "regenschirm"),
        ("SECRET_KEY = 'h(3 v)w!q8z#k2m&x7r_t5y@b9n^c4d'", "h(3 v)w!q8z#k2m&x7r_t5y@b9n^c4d"),
        (
            "aes_key[8] = {0x35, 0x9b, 0x1c, 0x2e, 0xf0, 0x41, 0x77, 0x08}",
            "0x35, 0x9b, 0x1c, 0x2e, 0xf0, 0x41, 0x77, 0x08",
        ),
        ("thingsboard.cloud/api/v1/k3v9w2m7q4z8x1c5b6n0", "thingsboard.cloud/api/v1/k3v9w2m7q4z8x1c5b6n0"),
        ("live_104857213_k3V9w2M7q4Z8x1C5b6N0r7T2y8P4s1", "live_104857213_k3V9w2M7q4Z8x1C5b6N0r7T2y8P4s1"),
    ],
)
def test_what_stands_where_a_password_does_is_found(text: str, secret: str) -> None:
    """The value alone is the finding."""
    assert found_in(text) == [secret]


@pytest.mark.parametrize(
    "text",
    [
        "password = regenschirm",
        'password = "<password>"',
        'password = "your-password"',
        'password = "${DB_PASSWORD}"',
        'password = "settings.db.password"',
        'user = "anja"\npassword = "password"',
        'password_regex = "^[a-z0-9]{8}$"',
        'password_label: "Wort2"',
        "Server=db1;User Id=anja;Password={password};",
        "curl -u user:pass https://shop.acme.io/",
        "CREATE USER anja IDENTIFIED BY :password",
        "The finder was identified as Sheikh Ibrahim, a body identified by traits such as its name.",
        "const is_valid_auth = valid_auth_regex.test(text);",
        "primary_key = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
        "outlook.office.com/webhook/ is where hooks begin",
    ],
)
def test_what_stands_for_a_password_passes(text: str) -> None:
    """Placeholders, templates, other names, and words without a user are no secrets."""
    assert found_in(text) == []
