"""Provider keys in the console: asked about before they are kept, masked ever after, and only for who may."""

from __future__ import annotations

from typing import Any

import pytest

from apps.keys.models import ProviderKey
from apps.organizations.models import Plan
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words
from tests.support.own_servers import OLLAMA, OwnServer, own_server
from tests.support.provider_keys import TOKEN, provider, with_catalog

__all__ = ["own_server", "provider", "with_catalog"]
PATH = "provider-keys"


@pytest.fixture
def fields(world: World, provider: Any, with_catalog: None) -> dict[str, Any]:
    """A form for a key of a provider that answers; Acme's plan allows it."""
    world.acme.plan = Plan.PRO
    world.acme.save()
    return {
        "provider": "custom",
        "providerName": "our-own",
        "baseUrl": f"http://127.0.0.1:{provider.server_port}/v1",
        "token": TOKEN,
        "test": ["false", "true"],
    }


def test_a_key_is_tested_then_kept_once_and_never_shown(world: World, fields: dict[str, Any], provider: Any) -> None:
    adam = Visitor(world.adam)
    for _ in range(2):
        answer = adam.send(page(world.acme, PATH), fields, once="one-click")
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, PATH))
    key = ProviderKey.objects.get()
    assert (key.organization, key.provider, key.provider_name, key.last_four) == (
        world.acme,
        "custom",
        "our-own",
        "acme",
    )
    assert provider.asked[0] == ("/v1/models", f"Bearer {TOKEN}")
    shown = adam.open(page(world.acme, PATH))
    assert "custom:our-own ...acme" in words(shown)
    assert TOKEN not in shown.content.decode()


def test_a_catalog_providers_key_is_added_without_scripts(world: World, fields: dict[str, Any]) -> None:
    # Without scripts, the fields of custom providers are sent for every provider.
    custom = {"providerName": "", "server": "", "baseUrl": ""}
    form = Visitor(world.adam).open(page(world.acme, PATH)).content.decode()
    assert '<option value="" selected>Any OpenAI-compatible server</option>' in form
    sent = {**fields, "provider": "openai", "test": "false", **custom}
    assert Visitor(world.adam).send(page(world.acme, PATH), sent).status_code == 303
    key = ProviderKey.objects.get()
    assert (key.provider, key.provider_name, key.base_url) == ("openai", "", "")


def test_a_refused_credential_is_told_and_not_shown_again(world: World, fields: dict[str, Any], provider: Any) -> None:
    provider.answer = (401, b'{"error": "<script>no such key</script>"}')
    answer = Visitor(world.adam).send(page(world.acme, PATH), fields)
    assert answer.status_code == 400
    assert "the provider answered 401: <script>no such key</script>" in words(answer)
    content = answer.content.decode()
    assert ("<script>no" in content, TOKEN in content, ProviderKey.objects.count()) == (False, False, 0)
    assert 'value="our-own"' in content


def test_an_untested_key_is_asked_about_by_nobody(world: World, fields: dict[str, Any], provider: Any) -> None:
    Visitor(world.adam).send(page(world.acme, PATH), {**fields, "test": "false"})
    assert (provider.asked, ProviderKey.objects.count()) == ([], 1)


def test_a_key_is_switched_and_removed(world: World, fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    adam.send(page(world.acme, PATH), fields)
    key = ProviderKey.objects.get()
    adam.send(page(world.acme, f"{PATH}/{key.id}/switch"), {"status": "inactive"})
    key.refresh_from_db()
    assert key.status == "inactive"
    assert adam.send(page(world.acme, f"{PATH}/{key.id}/switch"), {"status": "deleted"}).status_code == 400
    adam.send(page(world.acme, f"{PATH}/{key.id}/remove"))
    key.refresh_from_db()
    assert (key.status, bytes(key.encrypted_token)) == ("deleted", b"")


def test_a_plan_without_provider_keys_is_told_which_has_them(world: World, fields: dict[str, Any]) -> None:
    world.acme.plan = Plan.FREE
    world.acme.save()
    adam = Visitor(world.adam)
    assert "Provider keys need the pro or the enterprise plan." in words(adam.open(page(world.acme, PATH)))
    assert adam.send(page(world.acme, PATH), fields).status_code == 400
    assert ProviderKey.objects.count() == 0


def test_who_may_not_changes_nothing(world: World, fields: dict[str, Any], provider: Any) -> None:
    Visitor(world.adam).send(page(world.acme, PATH), fields)
    key, asked = ProviderKey.objects.get(), len(provider.asked)
    for user in (world.dana, world.sam):
        visitor = Visitor(user)
        assert visitor.open(page(world.acme, PATH)).status_code == 403
        for path in (PATH, f"{PATH}/{key.id}/switch", f"{PATH}/{key.id}/remove"):
            assert visitor.send(page(world.acme, path), {**fields, "status": "inactive"}).status_code == 403
    # Another organization's key does not exist on a page of the user's own organization.
    assert Visitor(world.sam).send(page(world.elsewhere, f"{PATH}/{key.id}/remove")).status_code == 403
    world.elsewhere.memberships.create(user=world.adam, role="admin")
    assert Visitor(world.adam).send(page(world.elsewhere, f"{PATH}/{key.id}/remove")).status_code == 404
    key.refresh_from_db()
    assert (key.status, ProviderKey.objects.count(), len(provider.asked)) == ("active", 1, asked)


def test_no_provider_is_chosen_for_who_names_none(world: World, fields: dict[str, Any]) -> None:
    adam = Visitor(world.adam)
    offered = adam.open(page(world.acme, PATH)).context["providers"]
    assert (offered[0], offered[-1][0]) == (("", "Choose a provider"), "custom")
    names = [name.casefold() for _, name in offered[1:-1]]
    assert names == sorted(names)
    answer = adam.send(page(world.acme, PATH), {"provider": "", "token": TOKEN, "test": "false"})
    assert (answer.status_code, answer.context["form"].errors) == (400, {"provider": "Required"})
    assert ProviderKey.objects.count() == 0


class TestModels:
    @pytest.fixture
    def key(self, world: World, with_catalog: None, own_server: OwnServer) -> ProviderKey:
        """A key of a server without credential, added in the console."""
        world.acme.plan = Plan.PRO
        world.acme.save()
        own_server.answers = dict(OLLAMA)
        given = {
            "provider": "custom",
            "providerName": "box",
            "server": "ollama",
            "baseUrl": own_server.url,
            "token": "",
        }
        answer = Visitor(world.adam).send(page(world.acme, PATH), {**given, "test": ["false", "true"]})
        assert answer.status_code == 303
        return ProviderKey.objects.get()

    def test_they_are_found_when_the_server_is_added(self, world: World, key: ProviderKey) -> None:
        assert "2 listed" in words(Visitor(world.adam).open(page(world.acme, PATH)))
        shown = words(Visitor(world.adam).open(page(world.acme, f"{PATH}/{key.id}/models")))
        assert "custom:box/llama3.2:latest 8,192 unknown unknown Tools" in shown

    def test_context_and_prices_are_set_and_shown(self, world: World, key: ProviderKey) -> None:
        adam, path = Visitor(world.adam), page(world.acme, f"{PATH}/{key.id}/models")
        fields = {"model": "llama3.2:latest", "contextLength": "4096", "inputPrice": "0.1", "outputPrice": "0"}
        answer = adam.send(path, fields)
        assert (answer.status_code, answer["Location"]) == (303, path)
        shown = adam.open(f"{path}?model=llama3.2:latest")
        assert "custom:box/llama3.2:latest 4,096 $0.10 $0.00 Tools" in words(shown)
        assert dict(shown.context["form"].values) == {**fields, "contextLength": 4096}
        # An empty field is unknown again.
        adam.send(path, {**fields, "contextLength": "", "inputPrice": "", "outputPrice": ""})
        key.refresh_from_db()
        assert key.model_settings == {}

    def test_a_refused_change_is_told_beside_its_field(self, world: World, key: ProviderKey) -> None:
        path = page(world.acme, f"{PATH}/{key.id}/models")
        answer = Visitor(world.adam).send(
            path, {"model": "a", "contextLength": "", "inputPrice": "1", "outputPrice": ""}
        )
        assert answer.status_code == 400
        assert answer.context["form"].errors == {"outputPrice": "Give both prices, or none; 0 is free"}
        key.refresh_from_db()
        assert key.model_settings == {}

    def test_they_are_refreshed(self, world: World, key: ProviderKey, own_server: OwnServer) -> None:
        path = page(world.acme, f"{PATH}/{key.id}/models")
        own_server.answers |= {"/v1/models": {"data": [{"id": "qwen3"}]}, "/api/tags": {}, "/api/show": {}}
        assert Visitor(world.adam).send(f"{path}/refresh").status_code == 303
        key.refresh_from_db()
        assert [one["name"] for one in key.found_models if "goneAt" not in one] == ["qwen3"]
        assert len(key.found_models) == 3
        own_server.answers["/v1/models"] = (401, b'{"error": "no"}')
        answer = Visitor(world.adam).send(f"{path}/refresh")
        assert (answer.status_code, "the provider answered 401: no" in words(answer)) == (400, True)

    def test_a_key_of_the_catalogs_providers_has_no_page_of_models(self, world: World, key: ProviderKey) -> None:
        other = ProviderKey.objects.create(organization=world.acme, provider="openai", encrypted_token=b"x")
        for path in (f"{PATH}/{other.id}/models", f"{PATH}/{other.id}/models/refresh"):
            assert Visitor(world.adam).send(page(world.acme, path), {"model": "a"}).status_code == 404
        assert Visitor(world.dana).open(page(world.acme, f"{PATH}/{key.id}/models")).status_code == 403

    def test_addresses_are_set_and_drained(self, world: World, key: ProviderKey, own_server: OwnServer) -> None:
        adam, path = Visitor(world.adam), page(world.acme, f"{PATH}/{key.id}/server")
        first = f"{own_server.url}/v1"
        assert f"replica-1 {first} unknown 0 unknown" in words(adam.open(path))
        second = first.replace("127.0.0.1", "localhost")
        answer = adam.send(path, {"addresses": f"{first}\n\n {second} ", "token": ""})
        assert (answer.status_code, answer["Location"]) == (303, path)
        answer = adam.send(f"{path}/drain", {"name": "replica-1", "draining": "true"})
        assert answer.status_code == 303
        shown = words(adam.open(path))
        assert f"replica-1 {first} draining 0 unknown Use again replica-1" in shown
        assert f"replica-2 {second} unknown 0 unknown Drain replica-2" in shown
        # Saved again, it is still drained.
        adam.send(path, {"addresses": f"{first}\n{second}", "token": ""})
        key.refresh_from_db()
        assert [one["draining"] for one in key.replicas] == [True, False]
        answer = adam.send(path, {"addresses": f"{first}\nnowhere", "token": ""})
        assert (answer.status_code, "Must be an http or https URL" in words(answer)) == (400, True)
        assert adam.send(path, {"addresses": " ", "token": ""}).status_code == 400
        key.refresh_from_db()
        assert len(key.replicas) == 2

    def test_a_model_is_probed_and_its_capabilities_set(
        self, world: World, key: ProviderKey, own_server: OwnServer
    ) -> None:
        adam, path = Visitor(world.adam), page(world.acme, f"{PATH}/{key.id}/server")
        own_server.answers["/v1/chat/completions"] = (400, b'{"error": {"message": "no <b>chat</b>"}}')
        own_server.answers["/v1/embeddings"] = {"data": [{"embedding": [1.0]}]}
        assert adam.send(f"{path}/probe", {"model": "llama3.2:latest"}).status_code == 303
        shown = adam.open(f"{path}?model=llama3.2:latest")
        assert "Chat: The server answered 400: no <b>chat</b>" in words(shown)
        assert "<b>chat" not in shown.content.decode()
        assert "llama3.2:latest Tools, Embeddings" in words(shown)
        fields = {"overrides.tools": "false", "overrides.vision": "true", "overrides.chat": ""}
        hour = {"hourlyPrice": "2.50", "tokensPerHour": "1000000"}
        answer = adam.send(f"{path}/set", {"model": "llama3.2:latest", **fields, **hour})
        assert answer.status_code == 303
        key.refresh_from_db()
        assert key.model_settings == {
            "llama3.2:latest": {
                "hourlyPrice": "2.5",
                "tokensPerHour": 1_000_000,
                "overrides": {"tools": False, "vision": True},
            }
        }
        assert "llama3.2:latest Vision, Embeddings" in words(adam.open(path))
        answer = adam.send(f"{path}/set", {"model": "llama3.2:latest", "hourlyPrice": "", "tokensPerHour": "5"})
        assert (answer.status_code, "Give the price of the hour that these tokens share" in words(answer)) == (
            400,
            True,
        )
        assert "Empty: as observed within seven days" in words(answer)
        ProviderKey.objects.update(observed_use={"llama3.2:latest": 1_234_567})
        shown = words(adam.open(f"{path}?model=llama3.2:latest"))
        assert "Empty: as observed within seven days, 1,234,567 in an hour" in shown

    def test_the_page_of_a_server_is_for_administrators(self, world: World, key: ProviderKey) -> None:
        other = ProviderKey.objects.create(organization=world.acme, provider="openai", encrypted_token=b"x")
        for end in ("server", "server/drain", "server/probe", "server/set"):
            assert Visitor(world.adam).send(page(world.acme, f"{PATH}/{other.id}/{end}")).status_code == 404
            assert Visitor(world.dana).send(page(world.acme, f"{PATH}/{key.id}/{end}")).status_code == 403
