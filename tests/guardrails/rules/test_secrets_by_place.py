"""Secrets by the place where they stand, cut off keys, keys inside base64, further issuers; and what looks alike.

Values are made up, and put together here from pieces, so that no scanner of repositories takes them for real.
"""

from __future__ import annotations

import base64
import json

import pytest

from tests.guardrails.rules.test_chosen_passwords import found_in

HEX = "9f3e1b7c5d2a80647e93bc15fa20d846"
MIXED = "k7Wq2zR9mX4vB6nLp3sYg8Tf"
LETTERS = "XqLrTzWbKPmVhGdNsJcRfYkT"
SIXTY_FOUR = base64.b64encode(bytes((number * 83 + number * number * 7) % 251 for number in range(64))).decode()
HEAD = "-----BEGIN RSA " + "PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('#define SMTP_PASSWORD "karo4sieben"', "karo4sieben"),
        ('SET password "karo4sieben";', "karo4sieben"),
        ('key = os.environ.get("SMTP_PASSWORD") or "karo4sieben"', "karo4sieben"),
        ('secret := getenv("SHOP", "karo4sieben")', "karo4sieben"),
        ('variable "smtp_password" {\n  type = string\n  default = "karo4sieben"\n}', "karo4sieben"),
        ("PSWD:=karo4sieben", "karo4sieben"),
        ("MYSQLPASS: karo4sieben", "karo4sieben"),
        ("# SHOP_MAIL_PASSWORD=regenschirm   # for the shop", "regenschirm"),
        ("username: anja\npassword: regenschirm", "regenschirm"),
        ("password: regenschirm, user: anja", "regenschirm"),
        ("username 'anja' password 'regenschirm'", "regenschirm"),
        ("username/password: anja/regenschirm", "regenschirm"),
        ("SHOP_USER=anja\nSHOP_PASS=regenschirm", "regenschirm"),
        ("spring.datasource.username=anja\nspring.datasource.password=regenschirm", "regenschirm"),
        ("jdbc:mysql://db/x?user=anja&password=regenschirm", "regenschirm"),
        ("jdbc:oracle:thin:anja/regenschirm@db:1521:orcl", "regenschirm"),
        ('sql.Open("mysql", "anja:regenschirm@tcp(db:3306)/shop")', "regenschirm"),
        ("PGPASSWORD=regenschirm psql", "regenschirm"),
        ("sshpass -p regenschirm ssh anja@acme.io", "regenschirm"),
        ("mysql -u anja -pregenschirm shop", "regenschirm"),
        ("docker login -u anja -p regenschirm", "regenschirm"),
        ("htpasswd -bc users anja regenschirm", "regenschirm"),
        ("echo regenschirm | sudo -S reboot", "regenschirm"),
        ("wget --user=anja --password=regenschirm https://acme.io/", "regenschirm"),
        ("net use z: \\\\srv\\x regenschirm /user:anja", "regenschirm"),
        (r"$user = \"anja\"; $password = \"regenschirm\";", "regenschirm"),
        ('jwtsecret: "7`D\'}/vYR)T;W]5EB&k>qX?G&3CF"', "7`D'}/vYR)T;W]5EB&k>qX?G&3CF"),
        ("gpg --decrypt --passphrase karo4sieben a.gpg", "karo4sieben"),
        (r"ConvertTo-SecureString \"karo4sieben\"", "karo4sieben"),
        ("CREATE ROLE shop WITH LOGIN PASSWORD karo4sieben;", "karo4sieben"),
        (r"psexec \\10.1.2.3 -u anja -p regen_schirm cmd", "regen_schirm"),
        ('easy_setopt(curl, CURLOPT_PASSWORD, ")d!~ORq8ed72x3eg@w8(z)");', ")d!~ORq8ed72x3eg@w8(z)"),
        ("token = 'k7wq2zr9mx4v'", "k7wq2zr9mx4v"),
        (f'apiKey: "{LETTERS}"', LETTERS),
        (f"shop-token-{HEX}", HEX),
        (f"https://acme.io/a?next=%2Fb%3Ftoken%3D{MIXED}%26x%3D1", MIXED),
        ("secret_id: 2a6e3f00-2050-4253-1c6e-577a748fa5cc", "2a6e3f00-2050-4253-1c6e-577a748fa5cc"),
        (f"-storagekey {SIXTY_FOUR} -container shop", SIXTY_FOUR),
        ("smtps://anja@acme.io:Fn83JZqs@smtp.acme.io:465", "Fn83JZqs"),
        (f"Authorization: NTLM TlRM{MIXED}", f"TlRM{MIXED}"),
    ],
)
def test_a_value_that_stands_where_a_password_does_is_found(text: str, secret: str) -> None:
    assert found_in(text) == [secret]


@pytest.mark.parametrize(
    "text",
    [
        '#define PASSWORD "password"',
        '#define PASSWORD_LENGTH "twelve"',
        'os.environ.get("SMTP_PASSWORD") or "changeme"',
        'os.environ.get("SMTP_PASSWORD", "")',
        'variable "smtp_password" {\n  type = string\n}',
        "PSWD:=$PSWD",
        "SHOP_MAIL_PASSWORD=mail_password  # your password",
        "username: anja\npassword: <password>",
        "The username is required, the password is optional.",
        "The login is broken and the password is expired.",
        "username: anja\npassword: $PASSWORD",
        "user: anja, password: changeme",
        "mysql -u anja -p shop",
        "PGPASSWORD=$PASSWORD psql",
        "docker login -u anja --password-stdin",
        "wget --user=USER --password=PASSWORD",
        "gpg --decrypt --passphrase $PASSPHRASE a.gpg",
        r"psexec \\10.1.2.3 -u anja -p %PASSWORD% cmd",
        'password_regex: "^[A-Z]+[0-9]{4,9}[!?&]$"',
        'SECRET_NAME = "NEXUS-GPT4-API-KEY"',
        "token = 'utf8mb4general'",
        'apiKey: "getUserAccessTokenFromRequest"',
        f"dist/shop-token-{HEX}.js",
        f'"integrity": "sha512-{SIXTY_FOUR}"',
        "def connect(stream=True, password=None): ...",
        f'if text.startswith("{HEAD}"):\n    return parse(text)',
    ],
)
def test_what_only_looks_like_one_passes(text: str) -> None:
    assert found_in(text) == []


def basic(said: str) -> str:
    """Return what a header of basic authentication carries."""
    return base64.b64encode(said.encode()).decode()


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("Authorization: Basic ", basic("anja:karo4"), ""),
        ('{"auths": {"hub.acme.io": {"auth": "', basic('_json_key:{\n  "type": "service_account"\n}'), '"}}}'),
        ("curl -u ", MIXED, ": https://acme.io/"),
        ("curl --user '", MIXED, "' https://acme.io/"),
        ("Cookie: lang=de; session_id=", MIXED, "; x=1"),
        ("Set-Cookie: sid=", HEX, "; Path=/"),
        ("anja:", "{SHA}" + SIXTY_FOUR[:27] + "=", ""),
        ("`", MIXED, "` is the API token"),
        ("data: ", basic(f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmphIn0.{MIXED}{MIXED}"), ""),
    ],
)
def test_what_headers_cookies_and_files_of_logins_carry_is_found(before: str, value: str, after: str) -> None:
    assert found_in(before + value + after) == [value]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Basic " + basic("user:password"),
        "Cookie: lang=de; theme=dark-and-quiet-colours-12",
        "curl -u anja https://acme.io/",
        "`get_user_by_session_id` is the key function",
    ],
)
def test_headers_cookies_and_commands_without_a_secret_pass(text: str) -> None:
    assert found_in(text) == []


@pytest.mark.parametrize("end", ["", "\n", '\\n"', "`"])
def test_the_head_of_a_private_key_counts_where_the_text_ends(end: str) -> None:
    assert found_in(f"key = {HEAD}{end}") == [HEAD]


def test_a_key_of_putty_is_found_to_its_sum_and_without_it_to_its_last_line() -> None:
    block = (
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: anja\nPublic-Lines: 1\n"
        f"AAAAC3Nza{MIXED}\nPrivate-Lines: 1\n{SIXTY_FOUR[:60]}\n"
    )
    assert found_in(block + f"Private-MAC: {HEX}{HEX}\nmore") == [block + f"Private-MAC: {HEX}{HEX}"]
    assert found_in(block) == [block]
    assert found_in("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n") == []


def test_json_with_a_private_key_is_found_inside_base64() -> None:
    def encoded(said: dict[str, object]) -> str:
        return base64.b64encode(json.dumps(said).encode()).decode()

    account = {"type": "service_account", "project_id": "shop", "private_key": f"-----BEGIN {SIXTY_FOUR}"}
    text = encoded(account)
    assert found_in(f"data: {text}") == [text.rstrip("=")]
    assert found_in(f"data: {encoded({'type': 'authorized_user', 'project_id': 'shop', 'quota': 'a' * 80})}") == []


def test_a_token_inside_base64_is_found() -> None:
    text = base64.b64encode(b"ghp_" + (MIXED + HEX)[:36].encode()).decode()
    assert found_in(f"data: {text}") == [text]


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("", "lin_oauth_" + HEX * 2, ""),
        ("", "key_" + HEX * 2, ""),
        ("", "essu_" + MIXED * 3, ""),
        ("", "GOOG1E" + "K7WQ2ZR9MX4VB6NLP3SYG8TF" * 2 + "K7WQ2ZR", ""),
        ("", "packagist_out_" + HEX * 2 + "9f3e", ""),
        ("", "CCIPRJ_" + MIXED[:22] + "_" + HEX + "9f3e1b7c", ""),
        ("", "mlsn." + HEX * 2, ""),
        ("", "sk-or-" + MIXED * 2, ""),
        (f"vapid: B{LETTERS[9]}{MIXED * 3}{HEX[:13]}, ", MIXED + MIXED[:19], ""),
        ("user." + "2a6e3f00-2050-4253-1c6e-577a748fa5cc ", MIXED + MIXED[:6], ""),
        ("3MVG9" + MIXED * 3 + " ", "3177400336910047215", ""),
        ("http://api.softlayer.com/soap/v3/", HEX * 2, ""),
        ("", "v2.local." + MIXED * 4, ""),
        ("-D", HEX + "9f3e1b7c", ""),
        ("git clone https://", HEX + "9f3e1b7c", "@git.acme.io/a/b"),
        ("<encrypted>{", "AQAAABAAAAAQ" + MIXED * 2, "}</encrypted>"),
    ],
)
def test_keys_of_further_issuers_are_found(before: str, value: str, after: str) -> None:
    before = "-Dsonar.login=" if before == "-D" else before
    assert found_in(before + value + after) == [value]


def test_a_token_with_a_beginning_of_its_own_counts_whatever_is_written_right_behind_it() -> None:
    token = "npm_" + (MIXED + HEX)[:36]
    assert found_in(f"{token}ANDMORE") == [token]
    assert found_in(f"xx{token}") == []


def test_keys_of_tink_are_found_and_public_ones_are_not() -> None:
    def keyset(kind: str) -> str:
        return json.dumps({"status": "ENABLED", "row": {"value": MIXED, "material": kind}})

    assert found_in(keyset("SYMMETRIC")) == [MIXED]
    assert found_in(keyset("ASYMMETRIC_PRIVATE")) == [MIXED]
    assert found_in(keyset("ASYMMETRIC_PUBLIC")) == []
