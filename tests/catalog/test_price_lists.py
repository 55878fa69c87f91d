"""Public price lists: each kind in our units, and hostile ones refused with the reason."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import requests
import responses

from apps.catalog import price_lists
from apps.catalog.price_lists import Abilities, InvalidList, Listed, fetch_list, read_list

NO_JSON = "litellm: not JSON; it begins with"
NO_LIST = "litellm: no model has a price; the document is not a list of this kind"
FOLDER = Path(__file__).parent
PRICES = {"input": Decimal("0.15"), "output": Decimal("0.6"), "cached_input": Decimal("0.075")}


def litellm(**fields: Any) -> bytes:
    """A list of LiteLLM's with one model."""
    usual = {"litellm_provider": "openai", "input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07}
    return json.dumps({"gpt-4o-mini": usual | fields}).encode()


def test_litellms_list_is_read_with_its_tiers_and_ends() -> None:
    found = {entry.name: entry for entry in fetch_list("litellm", str(FOLDER / "litellm_1_105_0.json")).entries}
    assert set(found) == {
        *("claude-sonnet-5-5", "claude-sonnet-4-5", "google/gemma-4-31B-it", "gpt-4o", "gpt-4o-mini"),
    }
    assert found["claude-sonnet-4-5"] == Listed(
        "anthropic",
        "claude-sonnet-4-5",
        {
            "input": Decimal(3),
            "output": Decimal(15),
            "cached_input": Decimal("0.3"),
            "cache_write": Decimal("3.75"),
            "cache_write_1h": Decimal(6),
        },
        (
            {
                "above_input_tokens": 200_000,
                "input": Decimal(6),
                "output": Decimal("22.5"),
                "cached_input": Decimal("0.6"),
                "cache_write": Decimal("7.5"),
                "cache_write_1h": Decimal(12),
            },
        ),
        date(2026, 11, 30),
        # The file has only its prices.
        abilities=Abilities(None, None, (), ("text",)),
    )
    assert (found["google/gemma-4-31B-it"].provider, found["gpt-4o-mini"].prices) == ("deepinfra", PRICES)


@pytest.mark.parametrize(
    ("fields", "abilities"),
    [
        ({}, None),
        ({"mode": "embedding", "max_input_tokens": 8192}, None),
        (
            {
                "mode": "chat",
                "max_input_tokens": 131072,
                "max_output_tokens": 8192,
                "supports_vision": True,
                "supports_pdf_input": True,
                "supports_function_calling": True,
                "supports_response_schema": True,
                "supports_reasoning": "yes",
            },
            Abilities(
                131072,
                8192,
                ("vision", "tools", "structured_outputs", "json_output"),
                ("text", "image", "pdf"),
            ),
        ),
        ({"mode": "chat", "max_input_tokens": 1.5, "max_output_tokens": -1}, Abilities(None, None, (), ("text",))),
        ({"mode": "chat", "max_input_tokens": 1e308, "max_output_tokens": "8k"}, Abilities(None, None, (), ("text",))),
    ],
)
def test_abilities_of_chat_models_are_read(fields: dict[str, Any], abilities: Abilities | None) -> None:
    [entry] = read_list("litellm", litellm(**fields)).entries
    assert (entry.abilities, entry.fault) == (abilities, "")


CHAT = {"modalities": {"input": ["text", "image", "smell"], "output": ["text"]}, "limit": {"context": 400_000}}


@pytest.mark.parametrize(
    ("fields", "abilities"),
    [
        ({}, None),
        ({"modalities": {"input": "text", "output": ["text"]}}, None),
        ({"modalities": {"input": ["text"], "output": ["image"]}}, None),
        (CHAT | {"status": "deprecated"}, None),
        (
            CHAT | {"tool_call": True, "reasoning": 1, "structured_output": True},
            Abilities(400_000, None, ("tools", "structured_outputs", "json_output", "vision"), ("text", "image")),
        ),
    ],
)
def test_abilities_in_models_devs_list_are_read(fields: dict[str, Any], abilities: Abilities | None) -> None:
    document = {"openai": {"models": {"gpt-7": {"cost": {"input": 1, "output": 2}} | fields}}}
    [entry] = read_list("modelsdev", json.dumps(document).encode()).entries
    assert (entry.abilities, entry.fault) == (abilities, "")


@pytest.mark.parametrize(
    ("kind", "document", "listed"),
    [
        (
            "litellm",
            {"vertex_ai/x": {"litellm_provider": "vertex_ai-llama_models", "input_cost_per_token": 1.5e-07}},
            Listed("vertex_ai", "x", {"input": Decimal("0.15")}, ()),
        ),
        (
            "modelsdev",
            {"openai": {"models": {"gpt-4o-mini": {"cost": {"input": 0.15, "output": 0.6, "cache_read": 0.075}}}}},
            Listed("openai", "gpt-4o-mini", PRICES),
        ),
        (
            "openrouter",
            {
                "data": [
                    {
                        "id": "openai/gpt-4o-mini",
                        "pricing": {"prompt": "0.00000015", "completion": "6e-7", "input_cache_read": "0.000000075"},
                    }
                ]
            },
            Listed("openrouter", "openai/gpt-4o-mini", PRICES),
        ),
        (
            "llmgateway",
            {
                "data": [
                    {
                        "id": "gpt-4o-mini",
                        "providers": [
                            {
                                "providerId": "azure",
                                "modelName": "gpt-4o-mini",
                                "pricing": {
                                    "prompt": "0.15e-6",
                                    "completion": "0.6e-6",
                                    "input_cache_read": "0.075e-6",
                                },
                            }
                        ],
                    }
                ]
            },
            Listed("azure", "gpt-4o-mini", PRICES),
        ),
    ],
)
def test_each_kind_is_read_in_our_units(kind: str, document: Any, listed: Listed) -> None:
    assert read_list(kind, json.dumps(document).encode()).entries == [listed]


@pytest.mark.parametrize(
    ("price", "shown"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-1e-07, "-1E-7"),
        (1e308, "1E+308"),
        (0.15, "0.15"),  # Per million, in a list of prices per token.
        ("cheap", "cheap"),
        (True, "True"),
        ([], "[]"),
    ],
)
def test_a_price_that_cannot_be_meant_makes_its_entry_invalid(price: Any, shown: str) -> None:
    [entry] = read_list("litellm", litellm(output_cost_per_token=price)).entries
    assert (entry.name, entry.prices) == ("gpt-4o-mini", {})
    assert entry.fault == f"output_cost_per_token is {shown}, not between 0 and 10000 USD per million tokens"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"<!doctype html><title>Sign in</title>",
            "litellm: not JSON; it begins with '<!doctype html><title>Sign in</title>'",
        ),
        (b"", f"{NO_JSON} ''"),
        (b"[" * 100_000, f"{NO_JSON} '{'[' * 40}'"),
        (b"\xff\xfe", f"{NO_JSON} '\ufffd\ufffd'"),
        (b"[]", NO_LIST),
        (
            b'{"a": 5, "b": {"litellm_provider": 5, "input_cost_per_token": 1}}',
            NO_LIST,
        ),
    ],
)
def test_another_document_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidList) as caught:
        read_list("litellm", content)
    assert str(caught.value) == problem


@pytest.mark.parametrize("kind", ["modelsdev", "openrouter", "llmgateway"])
@pytest.mark.parametrize(
    "document",
    [
        5,
        {"data": 5},
        {"data": [5, {"id": 5, "pricing": {"prompt": "1"}}, {"providers": 5}, {"providers": [5, {}]}]},
        {"openai": {"models": 5}, "groq": {"models": {"x": {"cost": 5}, "y": 5}}},
    ],
)
def test_parts_of_other_types_are_passed_over(kind: str, document: Any) -> None:
    with pytest.raises(InvalidList, match="no model has a price"):
        read_list(kind, json.dumps(document).encode())


def test_a_list_of_ten_megabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_bytes(b" " * 10_000_000)
    with pytest.raises(InvalidList) as caught:
        fetch_list("litellm", str(tmp_path / "list.json"))
    assert str(caught.value) == "more than 8,000,000 bytes"


@responses.activate
def test_a_list_is_fetched_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "https://lists.example/prices.json"
    responses.get(address, body=litellm())
    assert [entry.name for entry in fetch_list("litellm", address).entries] == ["gpt-4o-mini"]
    monkeypatch.setattr(price_lists, "MAX_BYTES", 20)
    with pytest.raises(InvalidList, match="more than 20 bytes"):
        fetch_list("litellm", address)
    monkeypatch.setattr(price_lists, "MAX_BYTES", 1000)
    monkeypatch.setattr(price_lists, "MAX_SECONDS", -1)
    with pytest.raises(InvalidList, match="took more than -1 seconds"):
        fetch_list("litellm", address)


@responses.activate
def test_a_redirect_and_a_refused_connection_are_named() -> None:
    responses.get("https://lists.example/a", status=302, headers={"Location": "http://169.254.169.254/"})
    responses.get("https://lists.example/b", body=requests.ConnectionError("token=secret"))
    for path, problem in (
        ("a", "https://lists.example/a: HTTP status 302; redirects are not followed"),
        ("b", "litellm: ConnectionError while reading https://lists.example/b"),
    ):
        with pytest.raises(InvalidList) as caught:
            fetch_list("litellm", f"https://lists.example/{path}")
        assert str(caught.value) == problem
    with pytest.raises(InvalidList, match="litellm: FileNotFoundError while reading /no/list"):
        fetch_list("litellm", "/no/list")
    with pytest.raises(InvalidList, match="prices is not a kind of price list; the kinds are litellm, modelsdev, "):
        fetch_list("prices", "/no/list")
