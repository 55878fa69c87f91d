"""Words and phrases for keys by their place: constants, comparisons, private keys, sessions; and what looks alike."""

from __future__ import annotations

import pytest

from apps.guardrails.findings.scan_types import RuleSettings
from apps.guardrails.rules import secrets
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails.rules.test_chosen_passwords import found_in

# What is to be found stands between these signs.
SIGNS = "«»"
FOUND = (
    'String cipherKey = "«regenschirm»";',
    'private static final char[] cipherKey = "«offene-tuer»".toCharArray();',
    'signing_key = "«karo4sieben»"',
    '$encryption_key = "«regenschirm»";',
    'hmacKey := "«regenschirm»"',
    'aes_key = "«blauer wal taucht tief»"',
    'secret = "«blauer wal taucht tief»"',
    "api_key = '«blauer wal taucht tief»'",
    '"api_key" => "«regenschirm7»"',
    "define('API_KEY', '«regenschirm»');",
    "define( 'DB_PASSWORD', '«$k8e$74rdf9d3w6d89}»' );",
    'crypto.privateDecrypt("«regenschirm»", data)',
    'return "«regenschirm»".equals(secret);',
    'if ("«q8Rm!2xW7»".equals(request.apiKey())) {',
    'crypto.createPrivateKey("«regenschirm»")',
    'crypto.createPrivateKey({ key: "«regenschirm»", format: "pem" })',
    'const s = crypto.createSign("SHA256"); s.update(x); sign.sign("«regenschirm»", "hex")',
    'set :session_secret, "«regenschirm»"',
    'connect(host: "db1", password: "«offene-tuer»")',
    'login("anja", "password" => "«offene-tuer»")',
    '<add key="ClearTextPassword" value="«regenschirm»" />',
    'jwt.sign({ id: 7 }, "«blauer wal taucht tief»", { expiresIn: "1h" })',
    "crypto.createHmac('sha256', '«blauer wal taucht tief»')",
    'crypto.createSecretKey("«blauer wal taucht tief»", "utf-8")',
    "curl -H 'Authorization: Bearer «9ea198f8:141248c5»' https://api.acme.io",
    "django-insecure-«%g4(k2!x9$w7m^q3&t8z*r5-v6_y1=p0+b)c@d#f2h3j4k5l6n»",
    "SECRET_KEY: django-insecure-«g4(k2!x9$w7m^q3&t8z*r5-v6_y1=p0+b)c@d#f2h3j4k5l6n7»",
    "<server><password>«offene-tuer»</password></server>",
    "Server=db1;Database=shop;Uid=anja;Pwd=«offene-tuer»",
    'connect("user", "anja", "password", "«regenschirm»")',
    "x['dict_key'] = \"«2Tm6cdsRVBTL9hRCmR6MRDTpMLFS4I»\"",
)
PASS = (
    'String cipherKey = "primary";',
    'signing_key = "optional"',
    'signingKey = "RS256"',
    'encryption_key = "customer-managed"',
    'encryption_key = os.environ["KEY"]',
    'aes_key = "your key goes here"',
    'secret = "Enter the secret of the shop"',
    'secret = "no such secret"',
    'api_key = "the key that you were given"',
    'apiKey: "apiKey1"',
    'api_key = "v2"',
    'api_key: "123456789012345"',
    "define('API_KEY', 'your-api-key');",
    "define('AUTH_TOKEN', getenv('AUTH_TOKEN'));",
    "define( 'DB_PASSWORD', 'database_password_here' );",
    'return "regenschirm".equals(name);',
    'return "clientSecret".equals(secret);',
    "crypto.createPrivateKey(pem)",
    'crypto.createPrivateKey("-----BEGIN PRIVATE KEY-----")',
    'crypto.createPrivateKey({ key: pem, format: "pem" })',
    'sign.sign("regenschirm", "hex")',
    "set :session_secret, ENV.fetch('SESSION_SECRET')",
    'render(password: "forgot-password")',
    'label("password" => "required")',
    '<add key="ClearTextPassword" value="%PASSWORD%" />',
    'jwt.sign(payload, privateKey, { algorithm: "RS256" })',
    'hmac.digest(secret.encode(), b"a request of this shop", "sha256")',
    "crypto.createHash('sha256', 'blauer wal taucht tief')",
    "curl -H 'Authorization: Bearer ${TOKEN}:${USER}' https://api.acme.io",
    "<password>db-password</password>",
    "Server=db1;Uid=anja;Pwd=db-password",
    "django-insecure-development-key-that-is-not-a-secret-at-all-here",
    'for setting in ["NAME", "USER", "PASSWORD", "ENGINE"]:',
    'BasicAuth = namedtuple("BasicAuth", ["login", "password", "encoding"])',
    'provided that such works are identified as "derived from the algorithm"',
    "what goes wrong if users pass `dtype=` and no type",
    "def load(private_key: Ed25519PrivateKey) -> None:",
    "anthropic-beta: mcp-tunnels-2026-06-22",
    "x['dict_key'] = \"name_of_the_dictionary\"",
)


@pytest.mark.parametrize("marked", FOUND)
def test_a_word_for_a_key_is_found_by_its_place(marked: str) -> None:
    before, secret, after = marked.replace(SIGNS[1], SIGNS[0]).split(SIGNS[0])
    assert found_in(before + secret + after) == [secret]


@pytest.mark.parametrize("text", PASS)
def test_kinds_of_keys_labels_and_variables_pass(text: str) -> None:
    assert found_in(text) == []


def test_a_token_is_found_in_what_a_terminal_coloured() -> None:
    text = "größe \x1b[1;93msk-615ef152bf865a131f88b23571dc4ee6\x1b[0m ok"
    spans = secrets.find(ScannedText(text), RuleSettings())
    assert [text[span.start : span.end] for span in spans] == ["sk-615ef152bf865a131f88b23571dc4ee6"]
    assert found_in("\x1b[93mgrün\x1b[0m") == []
