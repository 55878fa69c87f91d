"""Where passkeys are good, as the environment says: what browsers would refuse keeps the product from starting."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway_project.configuration.web_origins import PasskeyDomain


@pytest.mark.parametrize(
    ("public_url", "rp_id", "origins"),
    [
        ("http://127.0.0.1:8000", "localhost", ("http://localhost:8000",)),
        ("http://[::1]:8000", "localhost", ("http://localhost:8000",)),
        ("http://localhost:8000", "localhost", ("http://localhost:8000",)),
        ("https://llm.example.com", "llm.example.com", ("https://llm.example.com",)),
        ("https://llm.example.com:443", "llm.example.com", ("https://llm.example.com",)),
        ("https://llm.example.com:8443/path", "llm.example.com", ("https://llm.example.com:8443",)),
        ("http://llm.example.com", "", ()),
        ("https://93.184.215.14", "", ()),
    ],
)
def test_it_follows_the_public_url(public_url: str, rp_id: str, origins: tuple[str, ...]) -> None:
    assert PasskeyDomain.of_environment(public_url) == PasskeyDomain(rp_id, origins)


def test_a_console_beside_the_gateway_shares_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSKEY_RP_ID", "example.com")
    monkeypatch.setenv("PASSKEY_ORIGINS", "https://app.example.com, https://llm.example.com/")
    assert PasskeyDomain.of_environment("https://llm.example.com") == PasskeyDomain(
        "example.com", ("https://app.example.com", "https://llm.example.com")
    )


@pytest.mark.parametrize("rp_id", ["https://example.com", "example.com:443", "10.0.0.1", ".example.com", "a/b", "::1"])
def test_a_domain_that_is_none_names_its_variable(monkeypatch: pytest.MonkeyPatch, rp_id: str) -> None:
    monkeypatch.setenv("PASSKEY_RP_ID", rp_id)
    with pytest.raises(ImproperlyConfigured, match=r"^PASSKEY_RP_ID must be a domain"):
        PasskeyDomain.of_environment("https://llm.example.com")


@pytest.mark.parametrize(
    "origin",
    [
        *("http://llm.example.com", "https://example.org", "https://evilexample.com", "llm.example.com", "https://"),
        *("https://llm.example.com/path", "https://u:p@llm.example.com", "https://llm.example.com:x"),
    ],
)
def test_an_origin_that_no_browser_would_take_names_its_variable(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    monkeypatch.setenv("PASSKEY_RP_ID", "example.com")
    monkeypatch.setenv("PASSKEY_ORIGINS", f"https://example.com,{origin}")
    with pytest.raises(ImproperlyConfigured, match=r"^PASSKEY_ORIGINS must be origins"):
        PasskeyDomain.of_environment("https://llm.example.com")
