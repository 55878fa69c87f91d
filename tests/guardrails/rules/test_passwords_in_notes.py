"""Passwords in sentences, and in lines and calls in which little says that they are; and what looks alike.

Values are made up.
"""

from __future__ import annotations

import pytest

from tests.guardrails.rules.test_chosen_passwords import found_in

STRONG = "Kt7!orkan9"


@pytest.mark.parametrize(
    "text",
    [
        "Enter password: …",
        "the admin password on the new node is still …, please rotate it",
        "new password will be … from Monday",
        "the passphrase for the key file is “…”",
        "le mot de passe du serveur : …",
        "la contraseña … no cambia",
        "la clave del wifi es …",
        "il codice di accesso è …",
        "пароль от базы: …",
        "密码：…",
        "パスワードは「…」です",
        "비밀번호는 …",
        "bind password … for the proxy",
        "set-variable DB_PASSWORD …",
        "hadoop.security.credential.password …",
        "creds for the printer: admin:…",
        "use login qa_lead with …",
        "Zugangsdaten: gast / …",
        'smtp_login("mailer@shop.io", "…")',
        ".withBasicAuth('shop', '…')",
        'find(By.ID, "password").send_keys("…")',
        '<wsse:Password Type="PasswordText">…</wsse:Password>',
        "tacacs-server key …",
        "radius-server host 10.0.0.7 key 0 …",
        'set ike policy p pre-shared-key ascii-text "…"',
        "The wifi at the office: SSID Kontor5, key …",
        r"net use \\files\share /user:SHOP\svc …",
    ],
)
def test_a_password_is_found_where_its_form_says_little(text: str) -> None:
    assert found_in(text.replace("…", STRONG)) == [STRONG]


def test_a_key_is_found_behind_its_name_and_a_blank() -> None:
    assert found_in("ENV APP_SECRET d0ck3rQz77kW") == ["d0ck3rQz77kW"]
    assert found_in("OTP seed: JBSWY4DPEHPL3PXQ") == ["JBSWY4DPEHPL3PXQ"]


@pytest.mark.parametrize(
    "text",
    [
        "The password must contain at least 8 characters, 1 digit and 1 symbol.",
        "Set a password of 12+ characters (A-Z, 0-9) before 2025-11-30.",
        "Password hashing with bcrypt, cost 12, is described in RFC2898.",
        "Forgot password? Contact Support24x7 by phone.",
        'password: see 1Password vault "Team-Ops2"',
        "passphrase strength: 77.5 bits (EFF wordlist)",
        "We use OAuth2.0, and the password grant is deprecated since v2.1.3",
        "password field is Password1Field in Form2",
        'page.locator("input#password").type("textInput2")',
        "login(user, Config.PASSWORD_V2)",
        'authenticate("user", "ROLE_ADMIN_V2")',
        "your password will be sent to Jane.Doe2@example.com",
        "password rotation is due Q3/2025 (KW35)",
        "passwort: siehe KeePass-Eintrag Server03",
        "the passcode for the webinar will be sent by 10:30AM",
        "ENV TOKEN_URL https://auth.shop.io/oauth2/Token",
        "export API_KEY_FILE /run/secrets/ApiKey2",
        "radius server key features of the product: fast",
        "pre-shared-key authentication uses IKEv2 with SHA-256",
        "the wifi at Hotel24 is called Guest2024",
        "credentials: see the wiki/Access2Prod page",
        "login: Anna with Bob at 10:30",
        "mnemonic: push pop add sub mul div mov jmp call ret nop hlt",
        "otp secret key must be BASE32 encoded",
        "github.com/aws/credentials v1.19.30 h1:TTCvvzFU6gXa4iJecNG/0F/B0oYTiazoRECr2XyLHrY=",
    ],
)
def test_what_only_speaks_of_passwords_passes(text: str) -> None:
    assert found_in(text) == []
