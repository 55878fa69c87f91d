"""An organization's own credentials at providers (section 4.1)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import TestCase

from apps.keys.models import ProviderKey
from apps.keys.secrets import decrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Plan, User
from tests.support.cast import Caller, World, signed_in
from tests.support.provider_keys import TOKEN, UNASKED, create
from tests.support.upstream import Caller as ModelCaller
from tests.support.upstream import settle_all

PLATFORM = "Must not lead to an address that clouds keep for their platform and its metadata"
STORES_PORT = "Must have port 80 or 443, or one from 1024 on that is not known as a store's"


class TestCreating:
    def test_it_is_answered_masked_and_stored_encrypted(self, world: World, administrator: Caller) -> None:
        response = create(administrator, world, UNASKED)
        assert response.status_code == 200
        row = ProviderKey.objects.get()
        shown = {
            "id": str(row.id),
            "provider": "custom",
            "providerName": "our-own",
            "baseUrl": "https://93.184.215.14/v1",
            "server": "openai",
            "replicas": None,
            "status": "active",
            "organizationId": str(world.acme.id),
            "maskedToken": "...acme",
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
        }
        assert response.json() == {"providerKey": shown}
        assert administrator.get("/keys/provider", organizationId=str(world.acme.id)).json() == {
            "providerKeys": [shown]
        }
        assert decrypt_credential(bytes(row.encrypted_token)) == TOKEN
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT row_to_json(keys_providerkey)::text, encode(encrypted_token, 'escape') FROM keys_providerkey"
            )
            assert TOKEN not in str(cursor.fetchall())

    def test_a_short_credential_shows_nothing_of_itself(self, world: World, administrator: Caller) -> None:
        assert create(administrator, world, UNASKED, token="short").json()["providerKey"]["maskedToken"] == "..."

    @pytest.mark.parametrize(
        ("changes", "path", "message"),
        [
            ({"provider": ...}, "provider", "Required"),
            ({"token": "a\nb"}, "token", "Must be printable ASCII characters"),
            ({"token": "clé"}, "token", "Must be printable ASCII characters"),
            ({"organizationId": ...}, "organizationId", "Required"),
            ({"baseUrl": ...}, "baseUrl", "Required"),
            ({"providerName": ...}, "providerName", "Required"),
            *(
                ({"providerName": name}, "providerName", "Must be 1 to 40 of a-z, 0-9 and -")
                for name in ("Our", "our_own", "a/b", "ö", "a b")
            ),
            ({"providerName": "x" * 41}, "providerName", "Must be at most 40 characters long"),
            *(
                ({"baseUrl": f"https://93.184.215.14{end}"}, "baseUrl", "Must be a URL without query or fragment")
                for end in ("/?key=1", "/#a")
            ),
            ({"baseUrl": "ftp://93.184.215.14"}, "baseUrl", "Must be an http or https URL"),
            *(
                ({"baseUrl": url}, "baseUrl", "Must not lead to a private, loopback or link-local address")
                for url in ("http://127.0.0.1:8000", "http://localhost/v1", "http://10.0.0.1/", "http://[::1]/")
            ),
            *(
                ({"baseUrl": f"http://{host}/"}, "baseUrl", PLATFORM)
                for host in ("169.254.169.254", "168.63.129.16", "100.100.100.200", "[fd00:ec2::254]")
            ),
            ({"baseUrl": "http://93.184.215.14:6379"}, "baseUrl", STORES_PORT),
            ({"provider": "openai", "providerName": ...}, "baseUrl", "Only for the provider custom"),
            ({"provider": "openai", "baseUrl": ...}, "providerName", "Only for the provider custom"),
        ],
    )
    def test_a_bad_field_is_named(
        self, world: World, administrator: Caller, changes: dict[str, Any], path: str, message: str
    ) -> None:
        response = create(administrator, world, UNASKED, **changes)
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": path, "message": message}]
        assert TOKEN not in response.content.decode()
        assert not ProviderKey.objects.exists()

    def test_a_provider_that_the_catalog_does_not_know_is_400(
        self, world: World, with_catalog: None, administrator: Caller
    ) -> None:
        response = create(administrator, world, UNASKED, provider="nobody", providerName=..., baseUrl=...)
        assert (response.status_code, response.json()["issues"]) == (
            400,
            [{"path": "provider", "message": "There is no such provider"}],
        )
        assert not ProviderKey.objects.exists()

    def test_a_name_is_unique_in_the_organization(self, world: World, administrator: Caller) -> None:
        first = create(administrator, world, UNASKED).json()["providerKey"]["id"]
        response = create(administrator, world, UNASKED)
        assert (response.status_code, response.json()["issues"]) == (
            400,
            [{"path": "providerName", "message": "Another provider key has this name"}],
        )
        assert ProviderKey.objects.count() == 1
        administrator.send("DELETE", f"/keys/provider/{first}", {})
        assert create(administrator, world, UNASKED).status_code == 200
        Organization.objects.filter(pk=world.elsewhere.pk).update(plan=Plan.PRO)
        elsewhere = create(signed_in(world.sam), world, UNASKED, organizationId=str(world.elsewhere.id))
        assert elsewhere.status_code == 200

    def test_a_provider_of_the_catalog_may_have_several(
        self, world: World, with_catalog: None, administrator: Caller
    ) -> None:
        for _ in range(2):
            response = create(administrator, world, UNASKED, provider="bedrock", providerName=..., baseUrl=...)
            assert response.status_code == 200
            key = response.json()["providerKey"]
            assert (key["provider"], key["providerName"], key["baseUrl"]) == ("bedrock", None, None)
        assert ProviderKey.objects.count() == 2

    def test_the_plan_free_has_none(self, world: World) -> None:
        response = create(signed_in(world.olivia), world, UNASKED)
        assert (response.status_code, response.json()) == (
            403,
            {"message": "Provider keys require a pro or enterprise plan"},
        )
        assert not ProviderKey.objects.exists()

    def test_an_organization_has_at_most_a_hundred(self, world: World, administrator: Caller) -> None:
        ProviderKey.objects.bulk_create(
            ProviderKey(organization=world.acme, provider="bedrock", encrypted_token=b"x") for _ in range(100)
        )
        response = create(administrator, world, UNASKED)
        assert (response.status_code, response.json()) == (
            400,
            {"message": "Maximum 100 provider keys per organization"},
        )
        assert ProviderKey.objects.count() == 100


class TestChanging:
    @pytest.fixture
    def path(self, world: World, administrator: Caller) -> str:
        """The path of a key."""
        return f"/keys/provider/{create(administrator, world, UNASKED).json()['providerKey']['id']}"

    def test_it_is_switched_off_and_on(self, administrator: Caller, path: str) -> None:
        for status in ("inactive", "active"):
            answer = administrator.send("PATCH", path, {"status": status}).json()
            assert (answer["message"], answer["providerKey"]["status"]) == (
                f"Provider key status updated to {status}",
                status,
            )
        for body in ({}, {"status": "deleted"}):
            assert administrator.send("PATCH", path, body).json()["issues"][0]["path"] == "status"
        assert ProviderKey.objects.get().status == "active"

    def test_on_the_plan_free_it_can_only_be_switched_off(self, world: World, administrator: Caller, path: str) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(plan=Plan.FREE)
        assert administrator.send("PATCH", path, {"status": "inactive"}).status_code == 200
        assert administrator.send("PATCH", path, {"status": "active"}).status_code == 403
        assert ProviderKey.objects.get().status == "inactive"

    def test_a_deleted_one_is_gone_and_its_credential_erased(
        self, world: World, administrator: Caller, path: str
    ) -> None:
        assert administrator.send("DELETE", path, {}).json() == {"message": "Provider key deleted"}
        row = ProviderKey.objects.get()
        assert (row.status, bytes(row.encrypted_token)) == ("deleted", b"")
        for method in ("PATCH", "DELETE"):
            assert administrator.send(method, path, {"status": "active"}).status_code == 404
        assert administrator.get("/keys/provider", organizationId=str(world.acme.id)).json() == {"providerKeys": []}


def test_it_serves_the_next_request_of_a_warm_worker(caller: ModelCaller) -> None:
    owner = signed_in(User.objects.get(email="olivia@example.com"))
    body = {"provider": "sandbox", "token": TOKEN, "organizationId": str(caller.organization_id)}
    assert caller.chat().status_code == 200
    with TestCase.captureOnCommitCallbacks(execute=True):
        key = owner.post("/keys/provider", body).json()["providerKey"]
    assert caller.chat().status_code == 200
    with TestCase.captureOnCommitCallbacks(execute=True):
        owner.send("PATCH", f"/keys/provider/{key['id']}", {"status": "inactive"})
    assert caller.chat().status_code == 200
    settle_all()
    rows = RequestLog.objects.order_by("id").values_list("used_mode", "provider_key_id")
    assert [(mode, str(used)) for mode, used in rows] == [
        ("credits", "None"),
        ("api-keys", key["id"]),
        ("credits", "None"),
    ]
