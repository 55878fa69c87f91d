"""Models of an organization's own servers: found when a key is added, refreshed, and given a context and prices."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.keys import provider_keys
from apps.keys.models import ProviderKey
from apps.keys.own_models import MAX_MODELS
from apps.keys.tasks import refresh_models
from apps.organizations.models import AuditEntry, Organization
from tests.support import own_servers
from tests.support.cast import Caller, World
from tests.support.own_servers import OwnServer, own_server
from tests.support.provider_keys import UNASKED, create

__all__ = ["own_server"]


@pytest.fixture
def ollama(own_server: OwnServer) -> OwnServer:
    """A server that answers as Ollama does."""
    own_server.answers = dict(own_servers.OLLAMA)
    return own_server


@pytest.fixture
def path(world: World, administrator: Caller, ollama: OwnServer) -> str:
    """The path of the models of a key for Ollama."""
    answer = create(administrator, world, baseUrl=ollama.url, server="ollama", token=...)
    return f"/keys/provider/{answer.json()['providerKey']['id']}/models"


LLAMA = {
    "model": "llama3.2:latest",
    "alias": None,
    "contextLength": 8192,
    "inputPrice": None,
    "outputPrice": None,
    "hourlyPrice": None,
    "tokensPerHour": None,
    "observedTokensPerHour": None,
    "capabilities": ["tools"],
    "overrides": None,
    "probe": None,
    "listed": True,
    "goneAt": None,
}
EMBEDDER = {**LLAMA, "model": "nomic-embed-text:latest", "contextLength": 1024, "capabilities": ["embedding"]}


class TestAdding:
    def test_an_endpoint_is_added_in_one_step(self, administrator: Caller, path: str, ollama: OwnServer) -> None:
        row = ProviderKey.objects.get()
        assert (row.base_url, row.server, row.last_four) == (f"{ollama.url}/v1", "ollama", "")
        answer = administrator.get(path).json()
        assert answer["models"] == [LLAMA, EMBEDDER]
        assert answer["problem"] is None
        assert answer["askedAt"] == row.models_asked_at.isoformat().replace("+00:00", "Z")
        assert {one.authorization for one in ollama.asked} == {None}

    def test_an_untested_endpoint_is_asked_nothing(
        self, world: World, administrator: Caller, ollama: OwnServer
    ) -> None:
        key = create(administrator, world, UNASKED, baseUrl=ollama.url, server="ollama").json()["providerKey"]
        assert administrator.get(f"/keys/provider/{key['id']}/models").json() == {
            "models": [],
            "askedAt": None,
            "problem": None,
        }
        assert ollama.asked == []
        ProviderKey.objects.update(created_at=timezone.now() - timedelta(days=9))
        assert provider_keys.find_due() == []

    def test_the_operator_may_allow_it_on_the_plan_free(
        self, world: World, administrator: Caller, settings: Any
    ) -> None:
        world.acme.plan = "free"
        world.acme.save()
        assert create(administrator, world, UNASKED).status_code == 403
        settings.OWN_SERVERS_ON_FREE_PLAN = True
        openai = {"provider": "openai", "providerName": ..., "baseUrl": ...}
        assert create(administrator, world, UNASKED, **openai).status_code == 403
        assert not ProviderKey.objects.exists()
        assert create(administrator, world, UNASKED).status_code == 200

    def test_a_server_that_lists_nothing_is_kept_and_told(
        self, world: World, administrator: Caller, own_server: OwnServer
    ) -> None:
        key = create(administrator, world, baseUrl=own_server.url, server="vllm").json()["providerKey"]
        answer = administrator.get(f"/keys/provider/{key['id']}/models").json()
        assert (answer["models"], answer["problem"]) == ([], "The server answered 404 instead of a list of models")

    @pytest.mark.parametrize(
        ("changes", "path", "message"),
        [
            ({"server": "gpt"}, "server", "Must be one of: openai, vllm, sglang, ollama, llamacpp, lmstudio, tgi"),
            ({"server": 7}, "server", "Must be one of: openai, vllm, sglang, ollama, llamacpp, lmstudio, tgi"),
            (
                {"provider": "openai", "providerName": ..., "baseUrl": ..., "server": "vllm"},
                "server",
                "Only for the provider custom",
            ),
            ({"provider": "openai", "providerName": ..., "baseUrl": ..., "token": ...}, "token", "Required"),
            ({"provider": "openai", "providerName": ..., "baseUrl": ..., "token": ""}, "token", "Required"),
        ],
    )
    def test_a_bad_field_is_named(
        self, world: World, administrator: Caller, changes: dict[str, Any], path: str, message: str
    ) -> None:
        response = create(administrator, world, UNASKED, **changes)
        assert (response.status_code, response.json()["issues"]) == (400, [{"path": path, "message": message}])
        assert not ProviderKey.objects.exists()

    def test_an_organization_has_a_number_of_models_at_most(
        self, world: World, administrator: Caller, ollama: OwnServer
    ) -> None:
        found = [{"name": f"model-{number}"} for number in range(MAX_MODELS - 1)]
        other = {"organization": world.acme, "provider": "custom", "encrypted_token": b"x", "found_models": found}
        ProviderKey.objects.create(provider_name="other", **other)
        key = create(administrator, world, baseUrl=ollama.url, server="ollama").json()["providerKey"]
        answer = administrator.get(f"/keys/provider/{key['id']}/models").json()
        assert answer["models"] == [LLAMA]
        assert answer["problem"] == "1 of its 2 models are kept: an organization has at most 2000"


class TestRefreshing:
    def test_models_come_and_go_and_settings_stay(self, administrator: Caller, path: str, ollama: OwnServer) -> None:
        administrator.send("PATCH", path, {"model": "llama3.2:latest", "contextLength": 1024})
        ollama.answers = {"/v1/models": {"data": [{"id": "qwen3"}]}, "/api/tags": {}, "/api/show": {}, "/api/ps": {}}
        answer = administrator.send("POST", path, {}).json()
        since = answer["models"][1]["goneAt"]
        assert abs(datetime.fromisoformat(since) - timezone.now()) < timedelta(minutes=1)
        gone = [{**one, "listed": False, "goneAt": since} for one in ({**LLAMA, "contextLength": 1024}, EMBEDDER)]
        qwen = {**LLAMA, "model": "qwen3", "contextLength": None, "capabilities": None}
        assert answer["models"] == [qwen, *gone]
        assert administrator.get(path).json() == answer
        # It stays marked with its moment, and is as before when it comes back.
        ProviderKey.objects.update(
            found_models=[
                {**one, "goneAt": "2026-01-01T00:00:00+00:00"} if one.get("goneAt") else one
                for one in ProviderKey.objects.get().found_models
            ]
        )
        again = administrator.send("POST", path, {}).json()["models"]
        assert [one["goneAt"] for one in again] == [None, *["2026-01-01T00:00:00+00:00"] * 2]
        ollama.answers = dict(own_servers.OLLAMA)
        back = administrator.send("POST", path, {}).json()["models"]
        assert [(one["model"], one["listed"]) for one in back] == [
            ("llama3.2:latest", True),
            ("nomic-embed-text:latest", True),
            ("qwen3", False),
        ]

    def test_a_server_that_refuses_changes_nothing(self, administrator: Caller, path: str, ollama: OwnServer) -> None:
        before = administrator.get(path).json()
        ollama.answers = {"/v1/models": (401, b'{"error": "no"}')}
        answer = administrator.send("POST", path, {})
        assert (answer.status_code, answer.json()) == (
            400,
            {"message": "The provider key was not accepted: the provider answered 401: no"},
        )
        assert administrator.get(path).json() == before

    def test_an_answer_that_is_no_list_leaves_the_models(
        self, administrator: Caller, path: str, ollama: OwnServer
    ) -> None:
        ollama.answers = {"/v1/models": (429, b"{}"), "/api/tags": (429, b"{}")}
        answer = administrator.send("POST", path, {}).json()
        assert (answer["models"], answer["problem"]) == (
            [LLAMA, EMBEDDER],
            "The server answered 429 instead of a list of models",
        )

    def test_the_schedule_refreshes_what_is_due_and_notes_errors(
        self, world: World, administrator: Caller, path: str, ollama: OwnServer
    ) -> None:
        key = ProviderKey.objects.get()
        assert provider_keys.find_due() == []
        ProviderKey.objects.update(models_asked_at=timezone.now() - timedelta(hours=7))
        assert [key_id for key_id, _ in provider_keys.find_due()] == [key.id]
        ollama.answers = {"/v1/models": (503, b"")}
        refresh_models()
        answer = administrator.get(path).json()
        assert answer["models"] == [LLAMA, EMBEDDER]
        assert answer["problem"] == "The provider key was not accepted: the provider answered 503"
        assert provider_keys.find_due() == []
        ollama.answers = dict(own_servers.OLLAMA)
        ProviderKey.objects.update(models_asked_at=timezone.now() - timedelta(hours=7))
        refresh_models()
        assert administrator.get(path).json()["problem"] is None
        ProviderKey.objects.update(models_asked_at=timezone.now() - timedelta(hours=7), status="inactive")
        assert provider_keys.find_due() == []
        ProviderKey.objects.update(status="active")
        Organization.objects.filter(pk=world.acme.pk).update(status="inactive")
        assert provider_keys.find_due() == []

    def test_organizations_take_turns(self, world: World) -> None:
        now, ids = timezone.now(), []
        for organization, hours in ((world.acme, 9), (world.acme, 8), (world.elsewhere, 7)):
            asked = {"models_asked_at": now - timedelta(hours=hours), "encrypted_token": b"x", "provider": "custom"}
            ids.append(ProviderKey.objects.create(organization=organization, provider_name=f"at-{hours}", **asked).id)
        assert [key_id for key_id, _ in provider_keys.find_due()] == [ids[0], ids[2], ids[1]]

    def test_a_refresh_that_finds_the_same_leaves_policies_alone(self, path: str) -> None:
        before = ProviderKey.objects.get()
        assert provider_keys.refresh_models(key=before).found_models == before.found_models
        after = ProviderKey.objects.get()
        assert (after.updated_at, after.models_asked_at > before.models_asked_at) == (before.updated_at, True)


class TestSetting:
    def test_context_and_prices_are_set_kept_and_taken_back(self, administrator: Caller, path: str) -> None:
        body = {"model": "llama3.2:latest", "contextLength": 4096, "inputPrice": "0.10", "outputPrice": "0"}
        shown = {**LLAMA, "contextLength": 4096, "inputPrice": "0.1", "outputPrice": "0"}
        assert administrator.send("PATCH", path, body).json() == {"model": shown}
        # An absent field keeps its value, null takes it back.
        body = {"model": "llama3.2:latest", "contextLength": None}
        shown["contextLength"] = 8192
        assert administrator.send("PATCH", path, body).json() == {"model": shown}
        body = {"model": "llama3.2:latest", "inputPrice": None, "outputPrice": None}
        assert administrator.send("PATCH", path, body).json() == {"model": LLAMA}
        assert ProviderKey.objects.get().model_settings == {}
        noted = AuditEntry.objects.filter(action="provider_key.update").order_by("id").first()
        assert noted is not None
        assert noted.details == {
            "model": "llama3.2:latest",
            "contextLength": 4096,
            "inputPrice": "0.1",
            "outputPrice": "0",
        }

    def test_an_alias_is_of_one_model_of_the_organization(self, world: World, administrator: Caller, path: str) -> None:
        answer = administrator.send("PATCH", path, {"model": "llama3.2:latest", "alias": "our-llama"})
        assert answer.json()["model"]["alias"] == "our-llama"
        other = {"organization": world.acme, "provider": "custom", "encrypted_token": b"x", "provider_name": "other"}
        second = ProviderKey.objects.create(**other)
        for at, model in ((path, "another"), (f"/keys/provider/{second.id}/models", "llama3.2:latest")):
            answer = administrator.send("PATCH", at, {"model": model, "alias": "our-llama"})
            assert (answer.status_code, answer.json()["issues"]) == (
                400,
                [{"path": "alias", "message": "Another model has this alias"}],
            )
        second.refresh_from_db()
        assert second.model_settings == {}
        assert administrator.send("PATCH", path, {"model": "llama3.2:latest", "alias": "our-llama"}).status_code == 200

    def test_a_model_that_the_server_does_not_list_can_be_set(self, administrator: Caller, path: str) -> None:
        answer = administrator.send("PATCH", path, {"model": "hidden", "contextLength": 100}).json()
        hidden = {**LLAMA, "model": "hidden", "contextLength": 100, "capabilities": None, "listed": False}
        assert answer == {"model": hidden}
        assert administrator.get(path).json()["models"] == [LLAMA, EMBEDDER, hidden]

    @pytest.mark.parametrize(
        ("body", "field", "message"),
        [
            ({}, "model", "Required"),
            ({"model": ""}, "model", "Must not be blank"),
            ({"model": "x" * 201}, "model", "Must be at most 200 characters long"),
            ({"model": "a", "contextLength": 0}, "contextLength", "Must be at least 1"),
            ({"model": "a", "contextLength": 10**9}, "contextLength", "Must be at most 100000000"),
            ({"model": "a", "inputPrice": 1}, "inputPrice", 'Must be an amount such as "12.50", at least 0'),
            ({"model": "a", "inputPrice": "1"}, "outputPrice", "Give both prices, or none; 0 is free"),
            (
                {"model": "a", "tokensPerHour": 5},
                "hourlyPrice",
                "Give the price of the hour that these tokens share",
            ),
            (
                {"model": "a", "inputPrice": "1", "outputPrice": "1", "hourlyPrice": "1", "tokensPerHour": 5},
                "hourlyPrice",
                "Give prices per token or per hour, not both",
            ),
            (
                {"model": "a", "alias": "our/llama"},
                "alias",
                "Must begin with a letter or digit, and have a-z, A-Z, 0-9, . _ - only",
            ),
            (
                {"model": "a", "hourlyPrice": "1000001", "tokensPerHour": 5},
                "hourlyPrice",
                "Must be at most 1000000 USD",
            ),
            (
                {"model": "a", "overrides": {"flying": True}},
                "overrides",
                "flying is no capability; these are: chat, embedding, json_schema, parallel_tools, streaming, "
                "thinking, tools, vision",
            ),
            (
                {"model": "a", "inputPrice": "1", "outputPrice": "1000000.1"},
                "outputPrice",
                "Must be at most 1000000 USD per million tokens",
            ),
        ],
    )
    def test_a_bad_field_is_named_and_changes_nothing(
        self, administrator: Caller, path: str, body: dict[str, Any], field: str, message: str
    ) -> None:
        answer = administrator.send("PATCH", path, body)
        assert (answer.status_code, answer.json()["issues"]) == (400, [{"path": field, "message": message}])
        assert ProviderKey.objects.get().model_settings == {}

    def test_a_key_of_the_catalogs_providers_has_no_models(self, world: World, administrator: Caller) -> None:
        row = ProviderKey.objects.create(organization=world.acme, provider="openai", encrypted_token=b"x")
        path = f"/keys/provider/{row.id}/models"
        for answer in (administrator.send("PATCH", path, {"model": "a"}), administrator.send("POST", path, {})):
            assert (answer.status_code, answer.json()) == (
                404,
                {"message": "Only a custom provider has models of its own"},
            )
