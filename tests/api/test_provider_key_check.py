"""The check of a new provider key: one call, and a refusal in the provider's words (section 4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from apps.catalog import catalog_cache
from apps.catalog.models import Provider as ProviderRow
from apps.kernel.valkey import generation
from apps.keys.models import ProviderKey
from tests.support.cast import Caller, World
from tests.support.provider_keys import TOKEN, UNASKED, create


class TestAskingTheProvider:
    def test_a_custom_one_is_asked_once(self, world: World, administrator: Caller, provider: Any) -> None:
        url = f"http://127.0.0.1:{provider.server_port}/v1"
        assert create(administrator, world, baseUrl=url).status_code == 200
        assert provider.asked == [("/v1/models", f"Bearer {TOKEN}")]
        assert create(administrator, world, UNASKED, baseUrl=url, providerName="second").status_code == 200
        assert len(provider.asked) == 1

    @pytest.mark.parametrize("status", [404, 405, 429])
    def test_what_says_nothing_about_the_key_is_no_refusal(
        self, world: World, administrator: Caller, provider: Any, status: int
    ) -> None:
        provider.answer = (status, b"")
        assert create(administrator, world, baseUrl=f"http://127.0.0.1:{provider.server_port}").status_code == 200

    @pytest.mark.parametrize(
        ("status", "body", "words"),
        [
            (401, b'{"error": {"message": "Wrong key"}}', "the provider answered 401: Wrong key"),
            (403, b'{"message": "No  access"}', "the provider answered 403: No access"),
            (400, b"plain words", "the provider answered 400: plain words"),
            (401, f'{{"error": "bad key {TOKEN}"}}'.encode(), "the provider answered 401: bad key ..."),
            (401, b"x" * 9000, f"the provider answered 401: {'x' * 300}"),
            (302, b"", "the provider answered 302"),
            (500, b"", "the provider answered 500"),
        ],
    )
    def test_a_refusal_is_400_with_its_words(
        self, world: World, administrator: Caller, provider: Any, status: int, body: bytes, words: str
    ) -> None:
        provider.answer = (status, body)
        response = create(administrator, world, baseUrl=f"http://127.0.0.1:{provider.server_port}")
        assert (response.status_code, response.json()) == (
            400,
            {"message": f"The provider key was not accepted: {words}"},
        )
        # A redirect is not followed.
        assert [path for path, *_ in provider.asked] == ["/models"]
        assert not ProviderKey.objects.exists()

    def test_one_that_cannot_be_reached_is_400(self, world: World, administrator: Caller, settings: Any) -> None:
        settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
        response = create(administrator, world, baseUrl="http://127.0.0.1:1999")
        assert response.json() == {"message": "The provider key was not accepted: the provider could not be reached"}
        assert not ProviderKey.objects.exists()

    def test_one_of_the_catalog_is_asked_where_and_as_the_catalog_says(
        self, world: World, with_catalog: None, administrator: Caller, provider: Any, settings: Any
    ) -> None:
        # Where providers are is the operator's word, which the guard does not question.
        settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = False
        ProviderRow.objects.filter(id="anthropic").update(base_url=f"http://127.0.0.1:{provider.server_port}/v1")
        generation.bump(generation.CATALOG)
        catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))
        named = {"provider": "anthropic", "providerName": ..., "baseUrl": ...}
        provider.answer = (401, b'{"error": {"message": "invalid x-api-key"}}')
        response = create(administrator, world, **named)
        assert (response.status_code, response.json()) == (
            400,
            {"message": "The provider key was not accepted: the provider answered 401: invalid x-api-key"},
        )
        assert not ProviderKey.objects.exists()
        provider.answer = (200, b"{}")
        assert create(administrator, world, **named).status_code == 200
        assert provider.asked == [("/v1/models", TOKEN, "2023-06-01")] * 2

    def test_one_that_cannot_be_asked_is_kept(self, world: World, with_catalog: None, administrator: Caller) -> None:
        response = create(administrator, world, provider="bedrock", providerName=..., baseUrl=...)
        assert response.status_code == 200
        assert ProviderKey.objects.get().provider == "bedrock"
