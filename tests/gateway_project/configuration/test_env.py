"""Amounts of money and folders in the environment: exact, bounded, and named when they are wrong."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway_project.configuration import env


@pytest.mark.parametrize(("text", "amount"), [("0", "0"), ("1.00", "1"), ("0.000001", "0.000001"), ("10000", "10000")])
def test_an_amount_is_exact(monkeypatch: pytest.MonkeyPatch, text: str, amount: str) -> None:
    monkeypatch.setenv("OFFLINE_ALLOWANCE_USD", text)
    assert env.usd("OFFLINE_ALLOWANCE_USD", "1.00", high=10_000) == Decimal(amount)


@pytest.mark.parametrize("text", ["-0.01", "10000.01", "a dollar", "NaN", "Infinity", "", "1,5"])
def test_a_bad_amount_names_its_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OFFLINE_ALLOWANCE_USD", text)
    with pytest.raises(ImproperlyConfigured, match=r"^OFFLINE_ALLOWANCE_USD must be "):
        env.usd("OFFLINE_ALLOWANCE_USD", "1.00", high=10_000)


def test_a_directory_exists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert env.directory("CATALOG_DIR") is None
    monkeypatch.setenv("CATALOG_DIR", str(tmp_path))
    assert env.directory("CATALOG_DIR") == tmp_path
    monkeypatch.setenv("CATALOG_DIR", str(tmp_path / "away"))
    with pytest.raises(ImproperlyConfigured) as caught:
        env.directory("CATALOG_DIR")
    assert str(caught.value) == f"CATALOG_DIR must name a folder; there is none at {tmp_path / 'away'}"
