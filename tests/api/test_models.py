"""The models API and its public listing (sections 2.14, 4.11 and 5)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from openai import AuthenticationError, NotFoundError, OpenAI
from pytest_django.live_server_helper import LiveServer

from apps.catalog import catalog_cache
from apps.catalog.model_listing import build_listing
from apps.catalog.models import Model, ModelProvider
from apps.kernel.valkey import generation
from apps.keys.actions import CreatedKey
from tests.catalog import stated
from tests.support.cast import World, make_key
from tests.support.model_routes import error_of
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db

DAY = date(2026, 11, 21)


@pytest.fixture
def listed(db: None) -> None:
    """The shipped catalog, in the tables and in this process."""
    stock()
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


def changed() -> None:
    """Let the process see the changes in the tables."""
    generation.bump(generation.CATALOG)
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


def shipped(day: date = DAY, **flags: bool) -> dict[str, dict[str, Any]]:
    """Return the listing's entries on a given day, by id."""
    flags = {"include_deactivated": False, "exclude_deprecated": False} | flags
    return {entry["id"]: entry for entry in build_listing(catalog_cache.current(), day, **flags)["data"]}


def own_model(name: str, **dates: date | None) -> None:
    """A model at the sandbox, with dates that do not depend on the day of the test."""
    model = Model.objects.create(id=name, name=name, family="own", mode="chat")
    ModelProvider.objects.create(model=model, provider_id="sandbox", model_name=name, **dates)


def ids(client: Client, query: str = "") -> set[str]:
    """The ids that the endpoint lists."""
    answer = client.get(f"/v1/models{query}")
    assert answer.status_code == 200
    return {entry["id"] for entry in answer.json()["data"]}


@pytest.mark.usefixtures("listed")
def test_the_model_object_of_a_chat_model(client: Client) -> None:
    [entry] = [entry for entry in client.get("/v1/models").json()["data"] if entry["id"] == "glm-4.5-flash"]
    assert entry == {
        "id": "glm-4.5-flash",
        "object": "model",
        "type": "model",
        "name": "GLM-4.5-Flash",
        "display_name": "GLM-4.5-Flash",
        "description": "Chat model of the glm-flash family: reads text, writes text, with a context of 131,072 tokens. "
        "It reasons and calls tools.",
        "family": "glm-flash",
        "owned_by": "zai",
        "aliases": [],
        "created": 1753660800,
        "created_at": "2025-07-28T00:00:00Z",
        "canonical_slug": "glm-4.5-flash",
        "architecture": {
            "modality": "text->text",
            "input_modalities": ["text"],
            "output_modalities": ["text"],
            "tokenizer": "Other",
            "instruct_type": None,
        },
        "top_provider": {"is_moderated": False, "context_length": 131072, "max_completion_tokens": 32000},
        "providers": [
            {
                "providerId": "zai",
                "modelName": "glm-4.5-flash",
                "pricing": {"prompt": "0", "completion": "0", "image": "0"},
                "streaming": True,
                "vision": False,
                "cancellation": True,
                "tools": True,
                "parallelToolCalls": False,
                "reasoning": True,
                "stability": "stable",
            }
        ],
        "pricing": {
            "prompt": "0",
            "completion": "0",
            "image": "0",
            "request": "0",
            "input_cache_read": "0",
            "input_cache_write": "0",
            "web_search": "0",
            "internal_reasoning": "0",
        },
        "context_length": 131072,
        "supported_parameters": [
            *("frequency_penalty", "max_tokens", "presence_penalty", "reasoning", "reasoning_effort"),
            *("response_format", "stop", "temperature", "tools", "top_p"),
        ],
        "default_parameters": None,
        "per_request_limits": None,
        "supported_voices": None,
        "links": {"details": "/v1/models/glm-4.5-flash"},
        "json_output": True,
        "structured_outputs": False,
        "free": True,
        "stability": "stable",
        "deprecated_at": None,
        "deactivated_at": None,
    }


@pytest.mark.usefixtures("listed")
def test_prices_are_decimal_strings_in_usd_per_token() -> None:
    listing = shipped()
    assert listing["claude-opus-4-5"]["pricing"] == {
        "prompt": "0.000005",
        "completion": "0.000025",
        "image": "0",
        "request": "0",
        "input_cache_read": "0.0000005",
        "input_cache_write": "0.00000625",
        "input_cache_write_1h": "0.00001",
        "web_search": "0.01",
        "internal_reasoning": "0",
    }
    assert listing["priced-request"]["pricing"]["request"] == "0.001"
    assert listing["flux-pro-1.1"]["pricing"]["image"] == "0.04"
    assert listing["tts-1"]["pricing"]["character"] == "0.000015"
    assert listing["whisper-1"]["pricing"]["audio_minute"] == "0.006"
    assert listing["gpt-4o-transcribe"]["pricing"]["audio"] == "0.0000025"
    texts = [price for entry in listing.values() for price in entry["pricing"].values()]
    assert all(price == format(Decimal(price), "f") for price in texts)


@pytest.mark.usefixtures("listed")
def test_prices_are_those_of_the_cheapest_live_offer() -> None:
    entry = shipped()["gpt-oss-20b"]
    prices = {one["providerId"]: one["pricing"] for one in entry["providers"]}
    assert prices["darkbloom"] == {"prompt": "0.0000000145", "completion": "0.00000007", "image": "0"}
    assert prices["groq"] == {"prompt": "0.000000075", "completion": "0.0000003", "image": "0"}
    assert {name: entry["pricing"][name] for name in prices["darkbloom"]} == prices["darkbloom"]


@pytest.mark.usefixtures("listed")
def test_a_provider_is_shown_until_the_day_on_which_it_shuts_the_model_off() -> None:
    days = {day: shipped(day)["gpt-oss-20b"]["providers"] for day in (date(2026, 9, 14), date(2026, 9, 15))}
    assert [sum(one["providerId"] == "together" for one in shown) for shown in days.values()] == [1, 0]


@pytest.mark.usefixtures("listed")
def test_every_model_of_every_mode_is_listed(client: Client) -> None:
    answer = client.get("/v1/models")
    assert answer["Content-Type"] == "application/json"
    assert int(answer["Content-Length"]) == len(answer.content)
    body = answer.json()
    assert (body["object"], body["has_more"]) == ("list", False)
    assert (body["first_id"], body["last_id"]) == (body["data"][0]["id"], body["data"][-1]["id"])
    assert {"gpt-5.4", "flux-pro-1.1", "text-embedding-3-small", "echo"} <= {entry["id"] for entry in body["data"]}
    assert set(shipped(include_deactivated=True)) == stated.served_models()


@pytest.mark.usefixtures("listed")
def test_models_that_everyone_deactivated_are_left_out_unless_asked_for() -> None:
    gone = shipped(include_deactivated=True).keys() - shipped().keys()
    assert gone == {"deepseek-reasoner", "gpt-image-1", "grok-imagine-image-quality", "nova-canvas"}
    assert shipped(include_deactivated=True)["gpt-image-1"]["deactivated_at"] == date(2026, 10, 23)


@pytest.mark.usefixtures("listed")
def test_deprecated_models_are_left_out_when_asked_for() -> None:
    left_out = shipped().keys() - shipped(exclude_deprecated=True).keys()
    assert left_out >= {"chatgpt-image-latest", "devstral-2", "gemini-2.0-flash", "palmyra-x4", "text-embedding-005"}
    kept = shipped(exclude_deprecated=True)["claude-opus-4-5"]
    assert [one["providerId"] for one in kept["providers"]] == ["anthropic", "bedrock", "databricks", "openrouter"]


@pytest.mark.usefixtures("listed")
def test_the_query_decides_what_the_endpoint_lists(client: Client) -> None:
    today = datetime.now(UTC).date()
    own_model("own-live")
    own_model("own-gone", deactivated_at=today)
    own_model("own-going", deprecated_at=today, deactivated_at=today + timedelta(days=1))
    changed()
    own = {"own-live", "own-gone", "own-going"}
    assert ids(client) & own == {"own-live", "own-going"}
    assert ids(client, "?include_deactivated=true") & own == own
    assert ids(client, "?include_deactivated=0&exclude_deprecated=1") & own == {"own-live"}
    assert ids(client, "?include_deactivated=True&exclude_deprecated=FALSE") & own == own
    assert ids(client, "?limit=1&include_deactivated=false") & own == {"own-live", "own-going"}


@pytest.mark.parametrize("name", ["include_deactivated", "exclude_deprecated"])
@pytest.mark.parametrize("value", ["yes", "", "2"])
@pytest.mark.usefixtures("listed")
def test_a_value_that_is_not_a_boolean_is_refused(client: Client, name: str, value: str) -> None:
    answer = client.get(f"/v1/models?{name}={value}")
    assert answer.status_code == 400
    message = f"{name} must be true or false"
    assert answer.json() == error_of("chat", 400, "invalid_request_error", "invalid_parameters", message, name)


@pytest.mark.usefixtures("listed")
def test_only_reading_is_allowed(client: Client) -> None:
    for path in ("/v1/models", "/v1/models/echo"):
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head["Content-Length"] == client.get(path)["Content-Length"]
        answer = client.post(path, {}, content_type="application/json")
        assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
        message = "This path does not take this method"
        assert answer.json() == error_of("chat", 405, "invalid_request_error", "method_not_allowed", message)


@pytest.mark.usefixtures("listed")
def test_one_model_by_any_of_its_names(client: Client) -> None:
    [listed] = [entry for entry in client.get("/v1/models").json()["data"] if entry["id"] == "claude-opus-4-5"]
    for name in ("claude-opus-4-5", "claude-opus-4-5-20251101", "anthropic/claude-opus-4-5"):
        assert client.get(f"/v1/models/{name}").json() == listed


@pytest.mark.usefixtures("listed")
def test_a_model_that_does_not_exist_is_not_found(client: Client) -> None:
    answer = client.get("/v1/models/claude-opus-4-55")
    assert answer.status_code == 404
    message = "The model `claude-opus-4-55` does not exist; did you mean `claude-opus-4-5`?"
    assert answer.json() == error_of("chat", 404, "invalid_request_error", "not_found", message)


@pytest.mark.usefixtures("listed")
def test_a_model_that_everyone_deactivated_is_gone(client: Client) -> None:
    own_model("own-gone", deactivated_at=datetime.now(UTC).date())
    changed()
    answer = client.get("/v1/models/own-gone")
    assert answer.status_code == 410
    message = "own-gone is no longer served by any provider"
    assert answer.json() == error_of("chat", 410, "invalid_request_error", "gone", message, "model")


@pytest.fixture
def created(world: World) -> CreatedKey:
    """A key that works."""
    return make_key(world.olivia, world.project)


@pytest.mark.django_db(transaction=True)
def test_the_openai_client_reads_the_listing_and_one_model(live_server: LiveServer, created: CreatedKey) -> None:
    stock()
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))
    openai = OpenAI(base_url=f"{live_server.url}/v1", api_key=created.token, max_retries=0)
    models = {model.id: model for model in openai.models.list()}
    assert len(models) == len(shipped(datetime.now(UTC).date()))
    assert (models["gpt-5.4"].object, models["gpt-5.4"].owned_by, models["gpt-5.4"].created) == (
        "model",
        "openai",
        1772668800,
    )
    assert openai.models.retrieve("groq/openai/gpt-oss-20b").id == "gpt-oss-20b"
    with pytest.raises(NotFoundError):
        openai.models.retrieve("no-such-model")
    with pytest.raises(AuthenticationError):
        openai.copy(api_key="not a key").models.list()
