"""Secrets by the form that joins them to their name: Markdown, markup, settings, calls, commands; and what looks alike.

Values are made up, and put together here from pieces, so that no scanner of repositories takes them for real.
"""

from __future__ import annotations

import base64
import json

import pytest

from tests.guardrails.rules.test_chosen_passwords import found_in

HEX = "9f3e1b7c5d2a80647e93bc15fa20d846"
MIXED = "k7Wq2zR9mX4vB6nLp3sYg8Tf"
UPPER = "K7WQ2ZR9MX4VB6NLP3SYG7TF"
UUID = "2a6e3f00-2050-4253-1c6e-577a748fa5cc"
WORDS = "ribbon autumn velvet cactus orbit lamp tunnel pigeon marble scout ginger piano"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("- **Password:** `karo4sieben`", "karo4sieben"),
        ("**shop password**: karo4sieben.", "karo4sieben"),
        ("| password | karo4sieben |", "karo4sieben"),
        ("<dbPassword>\n  karo4sieben\n</dbPassword>", "karo4sieben"),
        ('<entry key="db.password">karo4sieben</entry>', "karo4sieben"),
        ("<key>smtpPassword</key>\n<string>karo4sieben</string>", "karo4sieben"),
        ("- name: DB_PASSWORD\n  value: karo4sieben", "karo4sieben"),
        ("ENV SHOP_PASSWORD karo4sieben", "karo4sieben"),
        ("ARG DB_PASS=karo4sieben", "karo4sieben"),
        ('setx SHOP_PWD "karo4sieben"', "karo4sieben"),
        ("setenv SHOP_PASSWORD karo4sieben", "karo4sieben"),
        ("set -x SHOP_PASSWORD karo4sieben", "karo4sieben"),
        ("keyPassword 'karo4sieben'", "karo4sieben"),
        ("requirepass karo4sieben", "karo4sieben"),
        ('psk="karo4sieben"', "karo4sieben"),
        ("shop --db-password karo4sieben run", "karo4sieben"),
        ('shop_password <- "karo4sieben"', "karo4sieben"),
        ('public string Password { get; set; } = "karo4sieben";', "karo4sieben"),
        ('Dim shopPassword As String = "karo4sieben"', "karo4sieben"),
        ('if (password.equals("karo4sieben")) {', "karo4sieben"),
        ('if ("karo4sieben" == password) {', "karo4sieben"),
        ("the db_password is karo4sieben.", "karo4sieben"),
        ("SHOP_PASSWORD ?= karo4sieben", "karo4sieben"),
        ("SHOP_SECRET=karo4sieben", "karo4sieben"),
        ('password = "regenschirm"', "regenschirm"),
        ('def enter(user, password="regenschirm"):', "regenschirm"),
        ('if password == "regenschirm":', "regenschirm"),
        ('{"root_password": "regenschirm"}', "regenschirm"),
        ("SECRET_KEY = 'regenschirm'", "regenschirm"),
        ("MYSQL_ROOT_PASSWORD: regenschirm", "regenschirm"),
        ("- POSTGRES_PASSWORD=regenschirm", "regenschirm"),
        ("define('DB_PASSWORD', 'regenschirm');", "regenschirm"),
        ("username anja\npassword regenschirm", "regenschirm"),
        ("login anja pw regenschirm", "regenschirm"),
        ("u: anja\np: regenschirm", "regenschirm"),
        ('<property name="username" value="anja"/>\n<property name="password" value="regenschirm"/>', "regenschirm"),
    ],
)
def test_a_password_is_found_in_every_form_that_names_it(text: str, secret: str) -> None:
    assert found_in(text) == [secret]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("connect('db1', 'anja', 'karo4sieben')", "karo4sieben"),
        ('DriverManager.getConnection(url, "anja", "karo4sieben");', "karo4sieben"),
        ('new NetworkCredential("anja", "regenschirm")', "regenschirm"),
        ('request.SetBasicAuth("anja", "regenschirm")', "regenschirm"),
        ('smtp.login("anja@acme.io", "regenschirm")', "regenschirm"),
        ("jwt.sign({ id: 7 }, 'regenschirm', done)", "regenschirm"),
        ('createHmac("sha256", "regenschirm")', "regenschirm"),
        ('Algorithm.HMAC256("regenschirm")', "regenschirm"),
        ('AES.new(b"regenschirmregen", AES.MODE_GCM)', "regenschirmregen"),
        ("session({ secret: 'regenschirm', resave: false })", "regenschirm"),
        ('new SqlCredential ( "anja" , "regenschirm" )', "regenschirm"),
        ("npm login -u anja -p karo4Sieben9", "karo4Sieben9"),
        ("define(  'DB_PASSWORD',   'regenschirm' );", "regenschirm"),
        ('password = getenv("PW") != null ? getenv("PW") : "karo4sieben"', "karo4sieben"),
        ("//npm.acme.io/shop/:_password=regenschirm", "regenschirm"),
        ("sqlplus anja/regenschirm@orcl", "regenschirm"),
        ('echo "anja:regenschirm" | chpasswd', "regenschirm"),
        ("xfreerdp /u:anja /p:karo4sieben /v:srv", "karo4sieben"),
        ("http -a anja:regenschirm GET https://acme.io", "regenschirm"),
        ("ssh-keygen -t ed25519 -N karo4sieben -f key", "karo4sieben"),
        ("enable password 7 0822455D0A16", "0822455D0A16"),
        ("username anja password 0 karo4sieben", "karo4sieben"),
        ("snmp-server community karo4sieben RW", "karo4sieben"),
    ],
)
def test_a_password_is_found_in_calls_and_commands(text: str, secret: str) -> None:
    assert found_in(text) == [secret]


@pytest.mark.parametrize(
    "text",
    [
        f"- **API key:** `{MIXED}`",
        f"| token | {MIXED} |",
        f'api_token <- "{MIXED}"',
        f'public string ApiKey {{ get; set; }} = "{MIXED}";',
        f'std::string api_key("{MIXED}");',
        f'apiKey.equals("{MIXED}")',
        f"ENV SHOP_KEY {MIXED}",
        f'(setq shop-token "{MIXED}")',
        f"api_key\t{MIXED}",
        f'variable "signing_key" {{\n  default = "{MIXED}"\n}}',
    ],
)
def test_a_token_is_found_in_every_form_that_names_it(text: str) -> None:
    assert found_in(text) == [MIXED]


@pytest.mark.parametrize(
    "text",
    [
        'shopToken = "{}"',
        'apiKey: "{}"',
        "SHOP_API_KEY={}",
        "<shopToken>{}</shopToken>",
        "https://acme.io/v1?access_token={}",
    ],
)
@pytest.mark.parametrize(
    "value", ["XqLrTzWbKPmVhGdNsJcRfYkT", "qzkvxwjmtbgrpdhnfcslqwzxvkjh", "60210628263064570884093939025160"]
)
def test_a_token_of_letters_or_digits_alone_is_found_beside_its_name(text: str, value: str) -> None:
    assert found_in(text.format(value)) == [value]


@pytest.mark.parametrize(
    "text",
    [
        'key: "theQuickConnectionOfXMLDocuments"',
        'token = "authenticationrequiredforaccess"',
        'app_key = "362106282630645"',
        'secretName: "ShopDatabaseCredentialsHTTP"',
        "key=thisisalongidentifierofaprogram",
    ],
)
def test_names_and_short_numbers_beside_the_name_of_a_token_pass(text: str) -> None:
    assert found_in(text) == []


@pytest.mark.parametrize("text", ["DB: ${DB_PASSWORD:-karo4sieben}", "pw=${env:DB_PASSWORD, 'karo4sieben'}"])
def test_what_an_empty_variable_stands_for_is_found(text: str) -> None:
    assert ["karo4sieben" in one for one in found_in(text)] == [True]


@pytest.mark.parametrize(
    "value",
    [
        f"waka_{UUID}",
        f"ory_st_{MIXED}{MIXED}",
        f"ck_{HEX}9f3e1b7c",
        f"pk_4711_{UPPER}9X4VB6NL",
        f"dose{HEX}",
        f"snyk_uat.9f3e1b7c.{MIXED}{MIXED}",
        f"da2-{MIXED.lower()}9x",
        f"amzn1.oa2-cs.v1.{HEX}{HEX}",
        f"A3T{UPPER[:17]}",
        f"S{'K7WQ2ZR6MX4VB6NLP3SYG7TF' * 2}QXMKNVH",
        f"{MIXED}{MIXED[:9]}+ASbk7Wq2=",
        f"{HEX[:24]}:{HEX}{HEX}",
        f"acme_live_{MIXED}",
        f"acme_v1_{MIXED}",
        f"acme_org_pat_{MIXED}",
        f"acme-pat-{MIXED}",
    ],
)
def test_keys_are_found_by_what_they_begin_with(value: str) -> None:
    assert found_in(f"see {value} there") == [value]


@pytest.mark.parametrize(
    "text",
    [
        'final String password = "{}";',
        'readonly dbPassword: string = "{}";',
        "{{'smtp_password': '{}'}}",
        "SHOP_PASSWORD={}",
        "spring.datasource.password: {}",
    ],
)
@pytest.mark.parametrize("value", ["c2D+8uv&v}Th)o.--:<c*b3", "6H(6pZ0w<e)9bbL[Iy$@Xb3"])
def test_a_password_of_any_signs_is_found_whole(text: str, value: str) -> None:
    assert found_in(text.format(value)) == [value]


@pytest.mark.parametrize(
    "text",
    [
        'password = "{{ Vault.shop4.Password }}"',
        'password: "${DB_Pass4}!"',
        'password = "^(?=.*[A-Z])(?=.*[0-9]).{8,}$"',
        'password = "Must have 8 characters, 1 number & 1 sign!"',
        'password="%(Shop4)s:%s@"',
    ],
)
def test_templates_and_expressions_are_no_passwords_of_signs(text: str) -> None:
    assert found_in(text) == []


@pytest.mark.parametrize(
    "digest",
    [
        f"$5$rounds=535000$k7Wq2zR9$bi7o{MIXED[:20]}{MIXED[:19]}",
        f"$sha1$480000$k7Wq2zR9${MIXED}x9f3",
        f"$apr1$k7Wq2zR9${MIXED[:22]}",
    ],
)
def test_what_a_system_keeps_of_a_password_is_found(digest: str) -> None:
    assert found_in(f"anja is {digest} there") == [digest]


def test_a_long_word_in_an_address_counts_on_a_local_host() -> None:
    assert found_in("redis://anja:regenschirm@localhost:6379/0") == ["regenschirm"]
    assert found_in("redis://anja:mypassword@localhost:6379/0") == []
    assert found_in("redis://anja:secret@localhost:6379/0") == []


def test_a_line_that_says_what_the_next_one_is() -> None:
    assert found_in(f"# the secret of the shop\n{MIXED}\n") == [MIXED]
    assert found_in(f"# sha256 of the secret file\n{HEX}{HEX}\n") == []


def test_the_words_of_a_wallet_are_found() -> None:
    assert found_in(f'mnemonic: "{WORDS}"') == [WORDS]
    assert found_in("seed: what you put into the ground in spring grows until the autumn comes") == []


def test_a_signed_token_counts_without_its_signature() -> None:
    def part(said: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'HS256'})}.{part({'sub': 'anja', 'role': 'admin'})}"
    assert found_in(f"saw {token} today") == [token]
    assert found_in(f"saw {part({'kid': 'shop-1'})}.{part({'sub': 'anja', 'role': 'admin'})} today") == []


def test_only_the_shown_claims_make_a_signed_token_an_example() -> None:
    def token(claims: dict[str, object]) -> str:
        parts = (json.dumps(one).encode() for one in ({"alg": "HS256"}, claims))
        return ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts) + f".{MIXED}"

    shown: dict[str, object] = {"sub": "1234567890", "name": "John Doe", "iat": 1516239022}
    assert found_in(token(shown)) == []
    assert found_in(token({**shown, "name": "Anja"})) == [token({**shown, "name": "Anja"})]
    assert found_in(token({**shown, "scope": "pay"})) == [token({**shown, "scope": "pay"})]


@pytest.mark.parametrize(
    "text",
    [
        "| password | string | at least 8 characters |",
        "- **Password**: base64url, at least 12 characters",
        "- **password:** sha256 of the text",
        "<password>${DB_PASSWORD}</password>",
        "<key>password</key>\n<string>password</string>",
        "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef: shop4db",
        "ENV SHOP_PASSWORD $SHOP4PASSWORD",
        "shop --password-file /run/secrets/db4",
        'if (password.equals("password")) {',
        '"resetPassword": "zurueck"',
        '"password": "Adgangskode"',
        '"password": "Losenord"',
        "password: 'required|string'",
        "$lang['forgot_password'] = 'vergessen';",
        'const passwordInput = "eingabe";',
        'password = hash.sha256("karo4sieben")',
        "connect('db1', 'anja', password)",
        "line.connect('part1', 'part2')",
        'jwt.sign({ id: 7 }, "HS256")',
        'createHmac("sha256", secret)',
        "SECRET_KEY = os.environ['SHOP']",
        "snmp-server community public RO",
        "POSTGRES_PASSWORD=postgres",
        "MYSQL_ROOT_PASSWORD: example",
        "| sessions | `test_no_secret` |\n| CVE-2026-35030: sessions |",
        'for name, code in (("SECRET_KEY", "shop.E003"), ("API_KEY", "shop.E004")):',
        "email=mail,\nname=name,\npassword=stored,\n",
        "ssh-keygen -Y sign -f key -n shop-release file",
        "A login page and a password form are missing.",
        "The user name anja and the password are checked in this order.",
        f"acme_test_sk_{MIXED}",
        f"pk_live_{MIXED}",
        f"https://cdn.acme.io/shop-token-{HEX}.js",
        f"acme-live-{HEX}",
        "the_production_key_of_the_first_customer_in_line",
        "my-app-secret-management-for-kubernetes-clusters",
        "DB: ${DB_PASSWORD:-postgres}",
    ],
)
def test_what_only_looks_alike_passes(text: str) -> None:
    assert found_in(text) == []
