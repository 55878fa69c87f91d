"""Embeddings in Cohere's format: `/v2/embed` with any embedding model, over real HTTP (section 4)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from apps.logs.models import RequestLog
from apps.sandbox.generated_media import in_base64, vector_of
from tests.api.test_embeddings import tagged
from tests.support.upstream import Caller, nothing_happened, settle_all

TEXTS = ["a cat", "a dog"]


def embed(caller: Caller, texts: Any = TEXTS, **fields: Any) -> Any:
    """Ask for vectors, of `embedder` unless `model` says otherwise; a field that is None is left out."""
    headers = {"Authorization": f"Bearer {caller.token}"}
    wire = {"model": "embedder", "texts": texts, **fields}
    body = json.dumps({name: one for name, one in wire.items() if one is not None})
    return caller.client.post("/v2/embed", body, content_type="application/json", headers=headers)


def test_the_answer_has_coheres_fields_and_is_charged_once(caller: Caller) -> None:
    tag = tagged()
    body = embed(caller, input_type="search_query", output_dimension=4, truncate="END").json()
    assert body["embeddings"] == {"float": [list(vector_of(text, 4)) for text in TEXTS]}
    assert (body["texts"], body["response_type"]) == (TEXTS, "embeddings_by_type")
    assert body["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 4}}
    # It is not sent on: nothing is ever cut in silence.
    assert [one["param"] for one in body["metadata"]["warnings"]] == ["truncate"]
    (sent,) = caller.sent(tag)
    assert (sent["body"]["input_type"], sent["body"]["dimensions"]) == ("query", 4)
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.cost, body["id"]) == ("embeddings", Decimal("0.000000148"), f"embd-{row.id.hex}")


def test_base64_is_its_own_type(caller: Caller) -> None:
    body = embed(caller, embedding_types=["base64"]).json()
    assert body["embeddings"] == {"base64": [in_base64(vector_of(text, 8)) for text in TEXTS]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"texts": None}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": "a"}, "texts"),
        ({"texts": ["a", ""]}, "texts[1]"),
        ({"texts": ["a", 1]}, "texts[1]"),
        ({"texts": ["a"] * 2049}, "texts"),
        ({"images": ["data:image/png;base64,AA=="]}, "images"),
        ({"inputs": [{"content": []}]}, "inputs"),
        ({"input_type": "image"}, "input_type"),
        ({"embedding_types": ["float", "base64"]}, "embedding_types"),
        ({"embedding_types": []}, "embedding_types"),
        ({"embedding_types": ["ubinary"]}, "embedding_types[0]"),
        ({"output_dimension": 0}, "output_dimension"),
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    refused = embed(caller, fields.pop("texts", TEXTS), **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)
