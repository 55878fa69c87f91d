"""Keys in the formats that issuers state, in addresses and in DER; and what looks alike and passes."""

from __future__ import annotations

import pytest

from tests.guardrails.rules.test_passwords import found_in

# The secret to find is between these signs.
SIGNS = "«»"
HEX = "9f3b2c7d1e8a40b6c5d2e7f1a8b3c4d9"
BODY = "q8Zt4LmW2xRbkF9Zq2LmW8tRbYs4Vn7Hc1Jd6PgA"
DER = "q8Zt4LmW2xRbkF9Zq2LmW8tRbYs4Vn7Hc1Jd6PgA3kT"
FOUND = (
    f"«live_{BODY}»",
    f"«csa_{HEX[:30]}q8Zt4L»",
    "«AstraCS:q8Zt4LmW2xRbkF9Zq2LmW8tR»",
    "«dvc_server_q8Zt4LmW2xRbkF9Z»",
    f"«vtwn_{BODY}»",
    f"«polar_oat_{BODY}»",
    f"«sqco_{BODY}q8Zt4LmW2xRbkF9Zq2L»",
    f"«sbp_{BODY.lower()}»",
    "«BBFF-q8Zt4LmW2xRbkF9Zq2LmW8tRbYs4Vn»",
    f"«apikey_{HEX}{HEX[::-1]}»",
    f"«1000.{HEX}.{HEX[::-1]}»",
    f"«VF.DM.{HEX[:24]}.q8Zt4LmW2xRbkF9Z»",
    f"«sk_{HEX[:8]}-1e8a-40b6-c5d2-e7f1a8b3c4d9»",
    "«Mid-server-q8Zt4LmW2xRbkF9Z»",
    "«xoxr-2-q8Zt4LmW2xRb7»",
    "«SG.q8Zt4LmW2xRbkF9Zq2Lm.q8Zt4LmW2xRbkF9Zq2LmW8tR»",
    "«key-q8zt4lmw2xrbkf9zq2lmw8trbys4vn7h»",
    f"«123456789012345678-{BODY}»",
    f"https://mainnet.infura.io/v3/«{HEX}»",
    f"wss://mainnet.infura.io/ws/v3/«{HEX}»",
    f"https://eth-mainnet.g.alchemy.com/v2/«{BODY[:32]}»",
    f"https://outlook.office.com/webhook/«{HEX[:8]}-1e8a-40b6-c5d2-e7f1a8b3c4d9»",
    f"https://eFt.tines.com/webhook/«{HEX}/{HEX[::-1]}»",
    f"aws_anything = «{BODY}»",
    f'bluemix_iam: "«{BODY}q8Zt»"',
    f'123456789012-{HEX}.apps.googleusercontent.com"\n"«{BODY[:24]}»"',
    f"twilio sid AC1 auth «{HEX}»",
    f'asaas = "«$aact_prod_{BODY}»"',
    f'Cloudant("anja", "«{BODY}q8Zt4LmW2xRbkF9Zq2LmW8tR»", url="https://shop.cloudant.com")',
    "«q8zt4lmw2xrbkf9zq2lmw8trbys4vn7h-q8zt4lmw-k3zt4lmx»",
    "«EAACEdEose0cBAq8Zt4LmW»",
    f"«BwIAAACkAABSU0Ey{BODY * 6}»",
    "<password>{«COQLCE6DU6GtcS5P=»}</password>",
    'request.header("Authorization", "Basic «YW5qYTpyZWdlbnNjaGlybQ==»")',
    f"<master>{{«{BODY}=»}}</master>",
    f'{{"auths": {{"reg.acme.io": {{"auth": "«{BODY[:20]}/+{BODY}==»"}}}}}}',
    f'key = "«MHQCAQEEI{DER}»"',
    f'key = "«MDECAQEEI{DER}»"',
    f'key = "«MIHcAgEBBE{DER}»"',
    f"<RSAKeyValue><Modulus>{BODY}</Modulus><Exponent>AQAB</Exponent><D>«{BODY}=»</D></RSAKeyValue>",
    f"«eyJhbGciOieeiIsInR5cCI6Ikpx.eyJzdWIiOiI3NzEyIiwicm9sZSI6ImFkbSJ9.{BODY}»",
    "_auth = «YW5qYTpyZWdlbnNjaGlybQ==»",
    "ftp://anja:«kA9!x@m/z7»@files.acme.io/x",
    "redis://:«xq7»@cache:6379/0",
)
PASSES = (
    "csa_regenschirm_settings_for_the_shop",
    f"sk_test_{HEX}",
    f"https://mainnet.infura.io/v3/{'0' * 32}",
    "https://mainnet.infura.io/v3/YOUR-PROJECT-ID-OF-32-CHARACTERS",
    "https://outlook.office.com/webhook/00000000-0000-0000-0000-000000000000",
    "https://shop.webhook.office.com/webhookb2/setting-up-hooks-of-chats-step-by-step",
    "aws_arn = arn:aws:iam::123456789012:role/shop-deploy-role-for-stacks",
    f"123456789012-{HEX}.apps.googleusercontent.com",
    "twilio auth token",
    f'asaas = "$aact_hmlg_{"x" * 40}"',
    'Cloudant("anja", password, url="https://shop.cloudant.com")',
    f"BgIAAACkAABSU0Ex{BODY * 6}",
    "<password>{password}</password>",
    "-----BEGIN OPENSSH PRIVATE KEY----------END OPENSSH PRIVATE KEY-----",
    "<master>{see the manual of your build}</master>",
    "<RSAKeyValue><Modulus>q8Zt4LmW2xRbkF9Z</Modulus><Exponent>AQAB</Exponent></RSAKeyValue>",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.q8Zt4LmW2xRbkF9Zq2LmW8tR",
    "anja:regenschirmen",
    "_auth = authenticate",
    'npm: "10.2.4"',
    "redis://:abc@cache:6379/0",
    "see http://localhost:8000/users@acme.io",
)


@pytest.mark.parametrize("text", FOUND)
def test_formats_that_issuers_state_are_found_alone(text: str) -> None:
    """The span is what stands between the signs, and nothing else is found."""
    plain = text.replace(SIGNS[0], "").replace(SIGNS[1], "")
    assert found_in(plain) == [text[text.index(SIGNS[0]) + 1 : text.index(SIGNS[1])]]


@pytest.mark.parametrize("text", PASSES)
def test_what_only_looks_like_a_stated_format_passes(text: str) -> None:
    """Names, test keys, placeholders, public halves, the token of every introduction."""
    assert found_in(text) == []
