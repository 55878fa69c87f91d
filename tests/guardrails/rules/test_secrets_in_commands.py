"""Passwords of databases' programs, phrases, and literals that programs give to keys; and what looks alike."""

from __future__ import annotations

import pytest

from tests.guardrails.rules.test_chosen_passwords import found_in
from tests.guardrails.rules.test_secrets_as_stated import SIGNS

FOUND = (
    "mysql -u root -p'«regenschirm»' shop",
    'mysql -u root --password="«blauer elefant lacht»" shop',
    'run(["mysqladmin", "ping", "-uroot", "--password=«regenschirm»"])',
    'run(["mysql", "-p«regenschirm»", "shop"])',
    "mongosh --host db1 -u anja -p «regenschirm» shop",
    'mongodump --host db1 --password "«blauer elefant lacht»"',
    "docker run -e MYSQL_ROOT_PASSWORD=«regenschirm» -d mysql",
    'PG_PASSWORD="«blauer elefant lacht»"',
    "MYSQL_PASSWORD=«xq7»",
    "POSTGRES_PASSWORD=«blauer_elefant»",
    'ConvertTo-SecureString "«blauer elefant lacht»" -AsPlainText -Force',
    "Driver={SQL Server};Server=db1;Uid=anja;Pwd={«el3fant!»};",
    'SECRET_KEY = "«blauer elefant lacht»"',
    'SECRET_KEY_FALLBACKS = ["«blauer-elefant-7»"]',
    'SECRET_KEY = env("SECRET_KEY", default="«blauer-elefant»")',
    "DEBUG=1\nSECRET_KEY=«f#9k(2!m_x&7w)q$»\nALLOWED_HOSTS=*",
    "define( 'AUTH_KEY', '«blauer elefant lacht»' );",
    'password = "«blauer elefant lacht»";',
    'password = "«blauer-elefant»"',
    'var password = "«kle4»"',
    'password = "«supersecret»"',
    'jwt.sign(payload, "«super-geheim-secret»")',
    "session({ secret: '«keyboard cat»', resave: false })",
    "    secret: '«keyboard cat»',\n    resave: false,",
    "clientID: '123-456-789',\n    clientSecret: '«shhh-its-a-secret»',",
    "createPrivateKey({ key: pem, passphrase: '«top secret»' })",
    "jwt.sign({ foo: 'bar' }, '«shhhhh»');",
    'array("password" => "«regenschirm»")',
    "password=«regenschirm»",
    "<password>«regenschirm»</password>",
    '{"name": "RABBITMQ_PASSWORD", "value": "«regenschirm»"}',
    "db:\n  password: «regenschirm»",
    'const apiKey = "«elefant42»";',
    "config.api_key = '«sonnenblume»'",
    'const { sign } = require("jsonwebtoken");\nsign(payload, "«regenschirm»")',
    'await new jose.SignJWT(claims).setIssuedAt().sign("«regenschirm»")',
    'String secret = TextCodec.BASE64.encode("«regenschirm»");',
    'new PDO("sqlsrv:server = tcp:shop.database.windows.net,1433; Database = shop", "anja", "«regenschirm»");',
    'String cipherKey = "«Bar12345Bar67»";',
    "char[] password = {«'k', 'l', 'e', 'e'»};",
    'cred := "«q8Zt4LmW2xRb»"',
    'token := "«xK9#mQ2vL!tz»"',
    "API_KEY=«elefant42»",
    "https://api.acme.io/v1/netlify?netlifyToken=«b_4l=3ar9av0pr6w48lkwx=o-8q484q4r0k7oxc-958=»&page=2",
    "Authorization: Shop «q8Zt4LmW2xRbkF9Z»",
)
PASSES = (
    "mysql -u root -p shop",
    'mysql -u root -p"$DB_PASSWORD" shop',
    'run(["mysql", "-port", "3306"])',
    "mongosh --password --username anja",
    "MYSQL_PASSWORD=$(cat /run/secrets/db)",
    "PG_PASSWORD=`cat /run/secrets/db`",
    "PG_PASSWORD=os.environ['PG_PASSWORD']",
    "MYSQL_ROOT_PASSWORD=${ROOT_PASSWORD}",
    "Server=db1;Uid={user};Pwd={password};",
    'SECRET_KEY = os.environ["SECRET_KEY"]',
    "SECRET_KEY=${SECRET_KEY}",
    "define( 'AUTH_KEY', 'put your unique phrase here' );",
    'password = "enter your new password"',
    'password = "current-password"',
    'password = "userPassword"',
    'secret: "client-secret"',
    'PRICE, SECRET = "price_pro", name',
    'clientSecret: "client secret"',
    'clientSecret: "GOOGLE_CLIENT_SECRET"',
    "passphrase: 'enter the passphrase'",
    "SECRET_KEY=   # set me in production",
    "password: required",
    "password: string",
    "<password>string</password>",
    '{"name": "RABBITMQ_PASSWORD", "value": "${RABBIT}"}',
    "    password=passwort\n",
    'apiKey: "header"',
    'apiKey: "x-api-key"',
    'const apiKey = "v1beta1";',
    "sign(document, 'regenschirm')",
    'String cipherName = "AES/CBC/PKCS5Padding";',
    "char[] letters = {'a', 'b', 'c', 'd'};",
    'token := "identifier2"',
    "token = 'v1beta1alpha2'",
    "csrf-token=Mj2qykJO5rELyHgezQ69nzUX0i3OH67V7+V4eUrLfpuyOuxmiW9rhROG/Whikle15s==",
    "PUBLIC_API_KEY=fewc9LVRMbwMBBxdp36b1V48",
    "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    "Authorization: application/json;charset",
)


@pytest.mark.parametrize("text", FOUND)
def test_a_password_or_key_in_its_place_is_found_whole(text: str) -> None:
    """The span is what stands between the signs, and nothing else is found."""
    plain = text.replace(SIGNS[0], "").replace(SIGNS[1], "")
    assert found_in(plain) == [text[text.index(SIGNS[0]) + 1 : text.index(SIGNS[1])]]


@pytest.mark.parametrize("text", PASSES)
def test_commands_settings_and_programs_without_a_secret_pass(text: str) -> None:
    """Variables, substitutions, labels, names, methods and words that describe a password."""
    assert found_in(text) == []
