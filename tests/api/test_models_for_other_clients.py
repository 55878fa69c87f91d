"""4.11 Models for clients of other APIs: Anthropic's pages, OpenRouter's fields; packed, and kept by an entity tag."""

from __future__ import annotations

import gzip
from urllib.parse import quote

import pytest
from django.test import Client

from tests.api.test_models import changed, own_model
from tests.api.test_models import listed as listed
from tests.support.model_routes import error_of

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("listed")
def test_every_model_has_what_openrouters_sdk_requires(client: Client) -> None:
    """As the schemas of `@openrouter/sdk` 1.3 require: nullable fields must be present as null."""
    listing = client.get("/v1/models").json()
    assert (listing["total_count"], listing["links"]) == (len(listing["data"]), {"next": None})
    for entry in listing["data"]:
        read, write = entry["architecture"]["input_modalities"], entry["architecture"]["output_modalities"]
        assert entry["architecture"]["modality"] == f"{'+'.join(read)}->{'+'.join(write)}"
        assert entry["canonical_slug"] == entry["id"]
        assert entry["links"] == {"details": f"/v1/models/{quote(entry['id'])}"}
        assert [entry[name] for name in ("default_parameters", "per_request_limits", "supported_voices")] == [None] * 3
        for name in ("context_length", "max_completion_tokens"):
            assert isinstance(entry["top_provider"][name], int | None), entry["id"]


@pytest.mark.usefixtures("listed")
def test_a_listing_that_is_kept_is_confirmed_and_one_that_changed_is_sent(client: Client) -> None:
    first = client.get("/v1/models")
    assert first["Cache-Control"] == "private, no-cache"
    assert first["Vary"] == "Accept-Encoding, Origin, anthropic-version"
    for tag in (first["ETag"], f"W/{first['ETag']}", f'"other", {first["ETag"]}', "*"):
        again = client.get("/v1/models", headers={"if-none-match": tag})
        assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
        assert not again.has_header("Content-Length")
    own_model("own-new")
    changed()
    after = client.get("/v1/models", headers={"if-none-match": first["ETag"]})
    assert after.status_code == 200
    assert after["ETag"] != first["ETag"]


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("identity, *;q=0.1", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*;q=0", False),
    ],
)
@pytest.mark.usefixtures("listed")
def test_a_listing_is_packed_for_who_accepts_that(client: Client, accepted: str, packed: bool) -> None:
    plain = client.get("/v1/models")
    answer = client.get("/v1/models", headers={"accept-encoding": accepted})
    assert answer.has_header("Content-Encoding") == packed
    assert (gzip.decompress(answer.content) if packed else answer.content) == plain.content
    assert int(answer["Content-Length"]) == len(answer.content)


CLAUDE = {"anthropic-version": "2023-06-01"}


@pytest.mark.usefixtures("listed")
def test_anthropics_clients_get_anthropics_list(client: Client) -> None:
    every = [entry["id"] for entry in client.get("/v1/models").json()["data"]]
    whole = client.get("/v1/models", headers=CLAUDE).json()
    assert [entry["id"] for entry in whole["data"]] == every
    assert (whole["has_more"], whole["first_id"], whole["last_id"]) == (False, every[0], every[-1])
    [opus] = [entry for entry in whole["data"] if entry["id"] == "claude-opus-4-5"]
    assert opus == {
        "type": "model",
        "id": "claude-opus-4-5",
        "display_name": "Claude Opus 4.5",
        "created_at": "2025-11-24T00:00:00Z",
        "max_input_tokens": 200_000,
        "max_tokens": 64_000,
        "lifecycle": "active",
    }
    assert client.get("/v1/models/claude-opus-4-5", headers=CLAUDE).json() == opus
    last = len(every)
    for query, start, end, more in (
        ("limit=3", 0, 3, True),
        (f"limit=3&after_id={every[2]}", 3, 6, True),
        (f"limit=1000&after_id={every[2]}", 3, last, False),
        (f"after_id={every[-1]}", last, last, False),
        (f"limit=2&before_id={every[9]}", 7, 9, True),
        (f"limit=20&before_id={every[9]}", 0, 9, False),
        (f"limit=9&before_id={every[9]}", 0, 9, False),
        (f"before_id={every[0]}", 0, 0, False),
    ):
        page = client.get(f"/v1/models?{query}", headers=CLAUDE).json()
        assert [entry["id"] for entry in page["data"]] == every[start:end], query
        assert page["has_more"] == more, query
        ends = (every[start], every[end - 1]) if start < end else (None, None)
        assert (page["first_id"], page["last_id"]) == ends, query


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit must be a whole number from 1 to 1000"),
        ("limit=1001", "limit must be a whole number from 1 to 1000"),
        ("limit=-1", "limit must be a whole number from 1 to 1000"),
        ("limit=", "limit must be a whole number from 1 to 1000"),
        ("limit=99999999999999999999", "limit must be a whole number from 1 to 1000"),
        ("after_id=unlisted", "after_id must be the id of a listed model"),
        ("before_id=", "before_id must be the id of a listed model"),
        ("after_id=echo&before_id=echo", "after_id and before_id cannot be given together"),
    ],
)
@pytest.mark.usefixtures("listed")
def test_a_page_that_there_is_not_is_refused_in_anthropics_words(client: Client, query: str, message: str) -> None:
    answer = client.get(f"/v1/models?{query}", headers=CLAUDE)
    assert (answer.status_code, answer.json()) == (
        400,
        error_of("messages", 400, "invalid_request_error", "invalid_parameters", message),
    )
    assert client.get(f"/v1/models?{query}").status_code == 200


@pytest.mark.usefixtures("listed")
def test_models_of_every_kind_say_what_they_make_and_what_a_unit_costs(client: Client) -> None:
    listed = {entry["id"]: entry for entry in client.get("/v1/models").json()["data"]}
    ranks, judges = listed["rerank-v3.5"], listed["omni-moderation"]
    assert (ranks["architecture"]["modality"], judges["architecture"]["modality"]) == (
        "text->rerank",
        "text+image->moderation",
    )
    assert (ranks["pricing"]["search_unit"], ranks["free"], judges["free"]) == ("0.002", False, True)
    assert "search_unit" not in listed["jina-reranker-v3"]["pricing"]
    infos = {one["litellm_params"]["model"]: one["model_info"] for one in client.get("/model/info").json()["data"]}
    told = [infos[name]["mode"] for name in ("cohere/rerank-v3.5", "openai/omni-moderation")]
    assert (told, infos["cohere/rerank-v3.5"]["input_cost_per_query"]) == (["rerank", "moderation"], 0.002)
