"""`Idempotency-Key`: a repeated request is done once, and gets the first answer (section 4)."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
import responses
from django.db import connection, connections
from django.utils import timezone

from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.journal import idempotency
from apps.organizations.models import IdempotentAnswer, Membership, Organization, Plan, Project
from apps.organizations.tasks import sweep_idempotent_answers
from tests.support.cast import Caller, World, make_key, make_organization, make_user, signed_in

KEY = {"Idempotency-Key": "4d5f2c"}


def new_key(world: World, description: str = "mine") -> dict[str, Any]:
    """Return the body that asks for an API key."""
    return {"description": description, "projectId": str(world.project.id)}


class TestTheSameRequest:
    def test_is_done_once_and_answered_alike(self, world: World) -> None:
        dana = signed_in(world.dana)
        first = dana.post("/keys/api", new_key(world), **KEY)
        again = dana.post("/keys/api", new_key(world), **KEY)
        assert (first.status_code, again.status_code) == (200, 200)
        assert again.json() == first.json()
        assert again.json()["apiKey"]["token"].startswith("gw_dev_")
        assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
        assert again.headers["x-request-id"] != first.headers["x-request-id"]
        assert ApiKey.objects.count() == 1

    def test_written_otherwise_is_the_same(self, world: World) -> None:
        dana = signed_in(world.dana)
        first = dana.post("/keys/api", new_key(world), **KEY)
        reordered = f'{{ "projectId": "{world.project.id}",  "description":"mine" }}'.encode()
        assert dana.post("/keys/api", reordered, **KEY).json() == first.json()
        assert ApiKey.objects.count() == 1

    def test_is_stored_without_a_word_in_clear(self, world: World) -> None:
        token = (
            signed_in(world.dana).post("/keys/api", new_key(world, "a secret plan"), **KEY).json()["apiKey"]["token"]
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT row_to_json(a)::text FROM organizations_idempotentanswer a")
            [(stored,)] = cursor.fetchall()
        assert token not in stored
        assert "a secret plan" not in stored
        assert token.encode().hex() not in stored

    def test_without_a_key_is_done_again(self, world: World) -> None:
        dana = signed_in(world.dana)
        for _ in range(2):
            assert dana.post("/keys/api", new_key(world)).status_code == 200
        assert ApiKey.objects.count() == 2
        assert IdempotentAnswer.objects.count() == 0

    def test_of_another_user_is_another(self, world: World) -> None:
        ids = {
            signed_in(user).post("/keys/api", new_key(world), **KEY).json()["apiKey"]["id"] for user in people(world)
        }
        assert len(ids) == 3

    def test_at_another_endpoint_is_another(self, world: World) -> None:
        olivia = signed_in(world.olivia)
        assert olivia.post("/keys/api", new_key(world), **KEY).status_code == 200
        assert olivia.post("/organization", {"name": "More"}, **KEY).status_code == 200

    def test_is_forgotten_after_a_day(self, world: World) -> None:
        dana = signed_in(world.dana)
        dana.post("/keys/api", new_key(world), **KEY)
        IdempotentAnswer.objects.update(created_at=timezone.now() - timedelta(hours=24))
        again = dana.post("/keys/api", new_key(world, "another"), **KEY)
        assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)
        assert ApiKey.objects.count() == 2
        assert dana.post("/keys/api", new_key(world, "another"), **KEY).json() == again.json()

    def test_whose_answer_nobody_can_read_any_more_is_not_done_again(self, world: World, settings: Any) -> None:
        dana = signed_in(world.dana)
        dana.post("/keys/api", new_key(world), **KEY)
        settings.ENCRYPTION_KEYS = ["Zm9yIHRlc3RzIGFsb25lOiBhIGtleSBvZiAzMiBieXQ="]
        response = dana.post("/keys/api", new_key(world), **KEY)
        assert (response.status_code, response.json()) == (
            409,
            {"message": "This request was already done, and its answer can no longer be read"},
        )
        assert ApiKey.objects.count() == 1


def people(world: World) -> list[Any]:
    """Return those who may create keys in Acme."""
    return [world.olivia, world.adam, world.dana]


class TestEveryEndpointThatCreates:
    @pytest.mark.parametrize("kind", ["organization", "project", "member", "key", "rule", "provider key"])
    def test_creates_once(self, world: World, kind: str) -> None:
        make_user("Nora")
        world.acme.plan = Plan.PRO
        world.acme.save()
        key = make_key(world.olivia, world.project).key
        table, path, body = {
            "organization": (Organization, "/organization", {"name": "Another"}),
            "project": (Project, "/projects", {"name": "Another", "organizationId": str(world.acme.id)}),
            "member": (
                Membership,
                f"/organization/{world.acme.id}/members",
                {"email": "nora@example.com", "role": "developer"},
            ),
            "key": (ApiKey, "/keys/api", new_key(world)),
            "rule": (
                IamRule,
                f"/keys/api/{key.id}/iam",
                {"ruleType": "deny_models", "ruleValue": {"models": ["echo"]}},
            ),
            "provider key": (
                ProviderKey,
                "/keys/provider?validate=false",
                {
                    "provider": "custom",
                    "providerName": "ours",
                    "baseUrl": "https://93.184.215.14/v1",
                    "token": "a credential of ours",
                    "organizationId": str(world.acme.id),
                },
            ),
        }[kind]
        before = table.objects.count()
        olivia = signed_in(world.olivia)
        first, again = (olivia.post(path, body, **KEY) for _ in range(2))
        assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
        assert table.objects.count() == before + 1

    @responses.activate
    def test_the_provider_is_asked_about_a_credential_once_and_outside_of_any_transaction(
        self, transactional_db: None
    ) -> None:
        seen: list[bool] = []

        def answer(request: Any) -> tuple[int, dict[str, str], str]:
            seen.append(connection.in_atomic_block)
            return 200, {}, "{}"

        responses.add_callback(responses.GET, "https://93.184.215.14/v1/models", callback=answer)
        organization = make_organization(owner=make_user("Olivia"), plan=Plan.PRO)
        olivia = signed_in(organization.memberships.get().user)
        body = {
            "provider": "custom",
            "providerName": "ours",
            "baseUrl": "https://93.184.215.14/v1",
            "token": "a credential of ours",
            "organizationId": str(organization.id),
        }
        first, again = (olivia.post("/keys/provider", body, **KEY) for _ in range(2))
        assert (first.status_code, again.json()) == (200, first.json())
        assert seen == [False]


class TestAnotherRequest:
    @pytest.mark.parametrize("change", ["body", "path"])
    def test_under_the_same_key_is_422_and_does_nothing(self, world: World, change: str) -> None:
        olivia = signed_in(world.olivia)
        keys = [make_key(world.olivia, world.project).key for _ in range(2)]
        rule = {"ruleType": "deny_models", "ruleValue": {"models": ["echo"]}}
        assert olivia.post(f"/keys/api/{keys[0].id}/iam", rule, **KEY).status_code == 200
        path = f"/keys/api/{keys[change == 'path'].id}/iam"
        body = {**rule, "status": "inactive"} if change == "body" else rule
        response = olivia.post(path, body, **KEY)
        assert (response.status_code, response.json()) == (
            422,
            {"message": "This Idempotency-Key was used for another request; use a new one"},
        )
        assert IamRule.objects.count() == 1


class TestARefusal:
    def test_is_not_kept_for_nothing_was_done(self, world: World) -> None:
        dana = signed_in(world.dana)
        assert dana.post("/keys/api", {"projectId": str(world.project.id)}, **KEY).status_code == 400
        assert IdempotentAnswer.objects.count() == 0
        assert dana.post("/keys/api", new_key(world), **KEY).status_code == 200

    @pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "a\tb"])
    def test_of_a_key_that_cannot_be_one(self, world: World, key: str) -> None:
        response = signed_in(world.dana).post("/keys/api", new_key(world), **{"Idempotency-Key": key})
        assert (response.status_code, response.json()["issues"]) == (
            400,
            [{"path": "Idempotency-Key", "message": "Must be 1 to 255 printable ASCII characters"}],
        )
        assert ApiKey.objects.count() == 0

    def test_the_longest_key_is_taken(self, world: World) -> None:
        key = {"Idempotency-Key": "~" * 255}
        dana = signed_in(world.dana)
        assert dana.post("/keys/api", new_key(world), **key).status_code == 200
        assert dana.post("/keys/api", new_key(world), **key).headers["idempotent-replayed"] == "true"

    def test_a_stored_answer_is_nobodys_who_is_not_signed_in(self, world: World) -> None:
        signed_in(world.dana).post("/keys/api", new_key(world), **KEY)
        assert Caller().post("/keys/api", new_key(world), **KEY).status_code == 401

    def test_other_methods_do_not_look_at_the_key(self, world: World) -> None:
        key = make_key(world.dana, world.project).key
        response = signed_in(world.dana).send("PATCH", f"/keys/api/{key.id}", {"status": "inactive"}, **KEY)
        assert response.status_code == 200
        assert IdempotentAnswer.objects.count() == 0


class TestTogether:
    def test_a_twin_is_409_and_told_when_to_come_back(self, transactional_db: None) -> None:
        organization = make_organization(owner=make_user("Olivia"))
        olivia, project = organization.memberships.get().user, organization.projects.get()
        began, over = Barrier(2, timeout=10), Barrier(2, timeout=10)
        body = {"description": "one", "projectId": str(project.id)}
        claimed: list[Any] = []

        def work_slowly() -> None:
            claim = idempotency.Claim(olivia.id, "keys/api", KEY["Idempotency-Key"], b"")

            def work() -> Any:
                began.wait()
                over.wait()
                return idempotency.HttpResponse()

            claimed.append(idempotency.answer_once(claim, work))
            connections.close_all()

        first = Thread(target=work_slowly)
        first.start()
        began.wait()
        twin = signed_in(olivia).post("/keys/api", body, **KEY)
        over.wait()
        first.join()
        assert (twin.status_code, twin.headers["Retry-After"], twin.json()) == (
            409,
            "1",
            {"message": "A request with this Idempotency-Key is in progress"},
        )
        assert ApiKey.objects.count() == 0
        assert signed_in(olivia).post("/keys/api", body, **KEY).status_code == 200

    def test_of_many_at_once_one_creates(self, transactional_db: None) -> None:
        organization = make_organization(owner=make_user("Olivia"))
        olivia, project = organization.memberships.get().user, organization.projects.get()
        statuses: list[int] = []
        start = Barrier(6, timeout=10)

        def create() -> None:
            caller = signed_in(olivia)
            start.wait()
            body = {"description": "one", "projectId": str(project.id)}
            statuses.append(caller.post("/keys/api", body, **KEY).status_code)
            connections.close_all()

        threads = [Thread(target=create) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 409}
        assert 200 in statuses
        assert ApiKey.objects.count() == 1

    def test_a_crash_in_between_undoes_both_and_the_request_can_be_repeated(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dana = signed_in(world.dana)

        def die(*_: Any) -> None:
            raise RuntimeError

        with monkeypatch.context() as patched:
            patched.setattr(idempotency, "encrypt", die)
            assert dana.post("/keys/api", new_key(world), **KEY).status_code == 500
        assert (ApiKey.objects.count(), IdempotentAnswer.objects.count()) == (0, 0)
        assert dana.post("/keys/api", new_key(world), **KEY).status_code == 200
        assert ApiKey.objects.count() == 1


@pytest.fixture
def answers(world: World) -> Caller:
    """A caller with two stored answers, one of which is a day old."""
    olivia = signed_in(world.olivia)
    for key in ("old", "new"):
        olivia.post("/keys/api", new_key(world, key), **{"Idempotency-Key": key})
    IdempotentAnswer.objects.filter(key="old").update(created_at=timezone.now() - timedelta(hours=24))
    return olivia


def test_the_sweep_removes_what_is_a_day_old(answers: Caller) -> None:
    sweep_idempotent_answers()
    assert list(IdempotentAnswer.objects.values_list("key", flat=True)) == ["new"]
