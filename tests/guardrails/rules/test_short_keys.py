"""Short made values beside the names of keys, and words, versions and identifiers that look alike."""

from __future__ import annotations

import pytest

from tests.guardrails.rules.test_chosen_passwords import found_in

# What is to be found stands between these signs.
SIGNS = "«»"
FOUND = (
    "shop_token = '«mlk9iqkm»'",
    'masterKey := "«HE7D6@Wj»"',
    'client.set_authToken("«kd72!mQ9»")',
    'if (token == "«m7x2kq9w»") {',
    'otp_seed = "«Kx82mQ0w»"',
    'licenseKey.equals("«W8x2Kq7m»")',
    '<add key="accountKey" value="«q8xK7w2Z»"/>',
    'let apiToken: string = "«JK7Y+*4GF»";',
    "deploy --api-key «b4Dq7xW2» --region eu",
    "signing_secret -> «b4Dq7xW2»",
    'api_key.equals("«Walross!482»")',
    '<add key="ApiKey" value="«karolina4821»"/>',
    "deploy --app-key karolina-set --client-secret «karolina4821»",
    "JWT_SECRET=«regenschirm»",
    'setProperty("shop.client.secret", "x"); setProperty("client_secret", "«regenschirm»")',
    '<add key="ClientSecret" value="«regenschirm»"/>',
)
PASS = (
    'token = "x86_64-linux"',
    'token = "v1beta1-rc2"',
    'apiToken.equals("bfloat16")',
    'authToken("0x1f4a2b9c")',
    'csrfToken("q8xK7w2Z-user")',
    'client.set_authToken("test-key-1234")',
    'token == "user1234"',
    'token = "page-2-of-9"',
    'next_token = "base64url1"',
    'secret: "shop-tls-2"',
    'secretKey = "secretKey1"',
    'cache.get(token, "q8xK7w2Z")',
    "deploy --token-type oauth2-v1",
    "deploy --api-key $API_KEY1",
    "export DEPLOY_TOKEN=${TOKEN_V1}",
    "token: string | 0",
    "Token: sha256-v1",
    "session_key: session_2024_01",
    'apiKey("page2024")',
    'secret.equals("bfloat161")',
    "CLIENT_SECRET=required",
    "CLIENT_SECRET=clientsecret",
    "JWT_SECRET=Regenschirm.of(config)",
    '<add key="ClientSecret" value="optional"/>',
    "secret=regenschirm",
    "primary_key: user_id_2",
)


@pytest.mark.parametrize("marked", FOUND)
def test_a_short_made_value_is_found_beside_the_name_of_a_key(marked: str) -> None:
    before, secret, after = marked.replace(SIGNS[1], SIGNS[0]).split(SIGNS[0])
    assert found_in(before + secret + after) == [secret]


@pytest.mark.parametrize("text", PASS)
def test_words_versions_and_identifiers_pass(text: str) -> None:
    assert found_in(text) == []
