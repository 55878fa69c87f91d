"""`GET /v1/models` is public without a key; with one, the key has to work (section 5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.catalog import catalog_cache
from apps.kernel.valkey import generation
from apps.keys.actions import CreatedKey, change_api_key
from tests.support.cast import World, make_key
from tests.support.shipped_catalog import stock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _listed(db: None) -> None:
    stock()
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


@pytest.fixture
def created(world: World) -> CreatedKey:
    """A key that works."""
    return make_key(world.olivia, world.project)


PATHS = ["/v1/models", "/v1/models/echo"]
NEITHER: list[dict[str, str]] = [{}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"x-api-key": " "}]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", NEITHER, ids=str)
def test_models_are_public_without_a_key(client: Client, path: str, headers: dict[str, str]) -> None:
    assert client.get(path, headers=headers).status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_a_key_that_works_reads_the_same(client: Client, created: CreatedKey, path: str) -> None:
    public = client.get(path).content
    for headers in ({"Authorization": f"Bearer {created.token}"}, {"x-api-key": created.token}):
        answer = client.get(path, headers=headers)
        assert (answer.status_code, answer.content) == (200, public)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer gw_live_wrong"},
        {"x-api-key": "gw_live_" + "a" * 40},
        {"Authorization": "Bearer sk-someone-elses"},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Authorization": "Bearer " + "a" * 600},
        {"Authorization": "Bearer gw_live_one", "x-api-key": "gw_live_two"},
    ],
    ids=str,
)
def test_a_wrong_key_is_never_taken_for_none(client: Client, path: str, headers: dict[str, str]) -> None:
    for method in (client.get, client.head):
        answer = method(path, headers=headers)
        assert answer.status_code == 401
        assert b"pricing" not in answer.content


def test_a_key_that_was_revoked_is_refused_at_once(
    client: Client, created: CreatedKey, django_capture_on_commit_callbacks: Any
) -> None:
    headers = {"x-api-key": created.token}
    assert client.get("/v1/models", headers=headers).status_code == 200
    with django_capture_on_commit_callbacks(execute=True):
        change_api_key(key=created.key, changes={"status": "inactive"})
    assert client.get("/v1/models", headers=headers).status_code == 401
