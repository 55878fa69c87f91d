"""AWS credentials: signatures are those of AWS's own SDK, an API key is sent as it is, anything else goes nowhere."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.access.schemes import SignableRequest, authorize, service_secrets
from apps.gateway.access.schemes.aws_sigv4 import authorize as sign
from apps.gateway.access.schemes.aws_sigv4 import authorize_storage, region_of, service_secret
from apps.gateway.failures import UpstreamFailure
from gateway_project.configuration.data_directory import PROJECT

ACCESS_KEY, SIGNING_KEY = "AKIDEXAMPLEEXAMPLE01", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY="
NOW = datetime(2026, 11, 20, 12, 30, 5, tzinfo=UTC)
URL = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/us.amazon.nova-micro-v1%3A0/converse"

keys = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", min_size=16, max_size=32)
secrets = st.text("abcXYZ0189/+=", min_size=1, max_size=40)
segments = st.text("aB0-_.~%:@!$&'()*+,;= é", max_size=12).map(lambda text: text.replace("%", "%3A"))
queries = st.lists(st.tuples(st.text("ab%c-", max_size=4), st.text("xyz09", max_size=4)), max_size=3)


@pytest.fixture(autouse=True)
def at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)


def expected(secret: str, request: SignableRequest, region: str) -> dict[str, str]:
    """Return the headers with which AWS's own SDK signs."""
    access_key, signing_key, *token = secret.split(":")
    made = AWSRequest(request.method, request.url, headers=dict(request.headers), data=request.body)
    credentials = Credentials(access_key, signing_key, *token)
    botocore.auth.SigV4Auth(credentials, "bedrock", region).add_auth(made)
    signed = {name.lower(): value for name, value in made.headers.items()}
    return {name: value for name, value in signed.items() if name.startswith(("x-amz", "authorization"))}


def lowered(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@given(
    key=keys,
    secret=secrets,
    token=st.none() | secrets,
    scheme=st.sampled_from(["https", "http"]),
    region=st.sampled_from(["us-east-1", "eu-central-2", "us-gov-west-1", "ap-southeast-4"]),
    port=st.sampled_from(["", ":80", ":443", ":8443"]),
    path=st.lists(segments, max_size=4).map("/".join),
    query=queries,
    body=st.binary(max_size=40),
    content_type=st.sampled_from(["application/json", "  application/json;   charset=utf-8 "]),
)
def test_a_signature_is_that_of_awss_own_sdk(
    key: str,
    secret: str,
    token: str | None,
    scheme: str,
    region: str,
    port: str,
    path: str,
    query: list[tuple[str, str]],
    body: bytes,
    content_type: str,
) -> None:
    joined = "&".join(f"{name}={value}" for name, value in query)
    url = f"{scheme}://bedrock-runtime.{region}.amazonaws.com{port}/{path}{'?' if joined else ''}{joined}"
    request = SignableRequest("POST", url, {"Content-Type": content_type}, body)
    whole = ":".join((key, secret, *(() if token is None else (token,))))
    assert lowered(sign(whole, request, NOW)) == expected(whole, request, region)


@pytest.mark.parametrize("token", [(), ("TOKEN",)])
def test_object_storage_has_a_signature_of_its_own(token: tuple[str, ...]) -> None:
    url = "https://s3.eu-west-1.amazonaws.com/acme-batches/lines/a.jsonl"
    request = SignableRequest("PUT", url, {"Content-Type": "application/jsonl", "Accept": "*/*"}, b"{}\n")
    made = AWSRequest("PUT", url, headers={"Content-Type": "application/jsonl"}, data=request.body)
    botocore.auth.S3SigV4Auth(Credentials(ACCESS_KEY, SIGNING_KEY, *token), "s3", "eu-west-1").add_auth(made)
    told = lowered(authorize_storage(":".join((ACCESS_KEY, SIGNING_KEY, *token)), request, "eu-west-1", NOW))
    assert told == {
        name: value for name, value in lowered(dict(made.headers.items())).items() if name != "content-type"
    }
    with pytest.raises(UpstreamFailure) as failure:
        authorize_storage("bedrock-api-key-ABC", request, "eu-west-1", NOW)
    assert failure.value.status == 401


def test_what_is_quoted_in_a_path_is_quoted_once_more() -> None:
    """The very string is pinned, in case both sides err alike."""
    request = SignableRequest("POST", URL, {"Content-Type": "application/json", "Accept": "application/json"}, b"{}")
    headers = sign(f"{ACCESS_KEY}:{SIGNING_KEY}", request, NOW)
    assert headers["X-Amz-Date"] == "20261120T123005Z"
    scope = f"Credential={ACCESS_KEY}/20261120/eu-west-1/bedrock/aws4_request"
    assert f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=content-type;host;x-amz-date, " in headers["Authorization"]
    plain = SignableRequest("POST", URL.replace("%3A", ":"), request.headers, b"{}")
    assert sign(f"{ACCESS_KEY}:{SIGNING_KEY}", plain, NOW)["Authorization"] != headers["Authorization"]


@pytest.mark.parametrize("secret", ["ABSKQmVkcm9ja0FQSUtleS0x+/==", "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t"])
def test_an_api_key_is_a_bearer_token(secret: str) -> None:
    assert authorize("aws-sigv4", secret, SignableRequest("POST", URL, {}, b"")) == {
        "Authorization": f"Bearer {secret}"
    }


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "two words",
        "line\r\nX-Evil: 1",
        f"{ACCESS_KEY}:",
        f":{SIGNING_KEY}",
        f"{ACCESS_KEY}:{SIGNING_KEY}:",
        f"{ACCESS_KEY}:{SIGNING_KEY}:token:more",
        f"short:{SIGNING_KEY}",
        f"AKID/EXAMPLE/EXAMPLE:{SIGNING_KEY}",
        "ünïcode",
    ],
)
def test_a_secret_that_is_neither_is_of_no_use_and_not_shown(secret: str) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        authorize("aws-sigv4", secret, SignableRequest("POST", URL, {}, b""))
    assert failure.value.status == 401
    assert SIGNING_KEY not in failure.value.message


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("bedrock-runtime.eu-central-1.amazonaws.com", "eu-central-1"),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("bedrock-runtime.us-east-2.api.aws", "us-east-2"),
        ("bedrock.us-west-2.amazonaws.com", "us-west-2"),
        ("vpce-1-2.bedrock-runtime.ap-south-1.vpce.amazonaws.com", "ap-south-1"),
        ("127.0.0.1", "sa-east-1"),
        ("proxy.example.com", "sa-east-1"),
    ],
)
def test_the_region_is_that_of_the_host_else_of_the_environment(
    host: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert region_of(host) == region


def test_a_region_that_nobody_names_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    assert region_of("localhost") == "eu-west-3"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert region_of("localhost") == "us-east-1"


@pytest.mark.parametrize(
    ("environ", "secret"),
    [
        ({}, None),
        ({"AWS_ACCESS_KEY_ID": "a"}, None),
        ({"AWS_SECRET_ACCESS_KEY": "s"}, None),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}, "a:s"),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": " s ", "AWS_SESSION_TOKEN": "t"}, "a:s:t"),
    ],
)
def test_the_usual_variables_make_up_a_secret(environ: dict[str, str], secret: str | None) -> None:
    assert service_secret(environ) == secret
    variable = "AWS_BEARER_TOKEN_BEDROCK"
    assert service_secrets("aws-sigv4", variable, environ) == ([] if secret is None else [secret])
    assert service_secrets("aws-sigv4", variable, {**environ, variable: "ABSK1, ABSK2"}) == ["ABSK1", "ABSK2"]


def test_other_schemes_have_no_usual_variables() -> None:
    environ: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
    assert service_secrets("bearer", "OPENAI_API_KEY", environ) == []


@pytest.mark.parametrize(
    ("secret", "names", "signature"),
    [
        (
            f"{ACCESS_KEY}:{SIGNING_KEY.removesuffix('=')}=",
            "content-type;host;x-amz-date",
            "2d698d97dd5229b3587127e3e01f0b9023465412eae23d768ba8075c076c7a1e",
        ),
        (
            f"{ACCESS_KEY}:secret:token",
            "content-type;host;x-amz-date;x-amz-security-token",
            "66feeb373a24f14da40a1b884836b010346bef4ff8dc11aba9e8abde31ffa29d",
        ),
    ],
)
def test_a_signature_is_the_known_one(secret: str, names: str, signature: str) -> None:
    """Known from an implementation of our own, whatever the SDK does."""
    headers = {"Content-Type": "application/json;   charset=utf-8", "User-Agent": "x"}
    request = SignableRequest("POST", f"{URL}?b=2&a=1", headers, b'{"messages":[]}')
    assert sign(secret, request, NOW)["Authorization"] == (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20261120/eu-west-1/bedrock/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


def test_a_sessions_token_never_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    request = SignableRequest("POST", URL, {"Content-Type": "application/json"}, b"{}")
    assert sign(f"{ACCESS_KEY}:{SIGNING_KEY}:a-token-of-a-session", request, NOW)["X-Amz-Security-Token"]
    assert "a-token-of-a-session" not in caplog.text


def test_only_who_signs_brings_the_sdk_in() -> None:
    code = "import sys, apps.gateway.access.schemes.aws_sigv4; print('botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
