"""API keys: creating and listing them (section 4.1)."""

from __future__ import annotations

import re
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from django.db import connection

from apps.kernel.ids import new_id
from apps.keys.authenticate import find_api_key
from apps.keys.models import ApiKey, IamRule
from apps.organizations.models import Organization, Plan, Project, Role, User
from tests.support.cast import Caller, World, default_project, join, make_key, make_organization, make_user, signed_in


def create(user: User, project: Project, **changes: Any) -> Any:
    """Ask for a key of the project; return the response."""
    body = {"description": "for tests", "projectId": str(project.id), **changes}
    return signed_in(user).post("/keys/api", {name: value for name, value in body.items() if value is not ...})


class TestCreating:
    def test_the_answer_is_the_whole_key_with_its_token(self, world: World) -> None:
        response = create(world.dana, world.project, usageLimit="12.50")
        assert response.status_code == 200
        answer = response.json()
        assert set(answer) == {"apiKey"}
        row = ApiKey.objects.get()
        token = answer["apiKey"].pop("token")
        assert re.fullmatch(r"gw_dev_[0-9A-Za-z]{40}", token)
        assert answer["apiKey"] == {
            "id": str(row.id),
            "description": "for tests",
            "status": "active",
            "usageLimit": "12.5",
            "usage": "0",
            "periodLimit": None,
            "requestsPerMinute": None,
            "allowedOrigins": [],
            "expiresAt": None,
            "projectId": str(world.project.id),
            "teamId": None,
            "createdBy": str(world.dana.id),
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
            "creator": {"id": str(world.dana.id), "name": "Dana", "email": "dana@example.com"},
            "iamRules": [],
        }
        assert row.usage_limit == Decimal("12.5")
        assert find_api_key(token) == row

    def test_the_token_is_not_stored(self, world: World) -> None:
        token = create(world.dana, world.project).json()["apiKey"]["token"]
        with connection.cursor() as cursor:
            cursor.execute("SELECT row_to_json(keys_apikey)::text FROM keys_apikey")
            [(row,)] = cursor.fetchall()
        assert token not in row
        assert token[len("gw_dev_") :][:8] not in row

    def test_in_production_keys_have_another_prefix(self, world: World, settings: Any) -> None:
        settings.DEVELOPMENT = False
        assert create(world.dana, world.project).json()["apiKey"]["token"].startswith("gw_live_")

    @pytest.mark.parametrize("limit", [None, "0", "0.000000000001", "999999999999.999999999999"])
    def test_a_usage_limit_is_kept_to_the_last_digit(self, world: World, limit: str | None) -> None:
        assert create(world.dana, world.project, usageLimit=limit).json()["apiKey"]["usageLimit"] == limit

    @pytest.mark.parametrize(
        "limit",
        [
            *("", "-1", "+1", "NaN", "Infinity", "1e3", " 1", "1_000", "1,5", "٣", "9" * 400),
            *("0.0000000000001", "1000000000000"),
            *(5, True, [], {}),
        ],
    )
    def test_a_usage_limit_that_is_no_amount_is_refused(self, world: World, limit: Any) -> None:
        response = create(world.dana, world.project, usageLimit=limit)
        assert response.status_code == 400
        assert response.json()["issues"] == [
            {"path": "usageLimit", "message": 'Must be an amount such as "12.50", at least 0'}
        ]
        assert not ApiKey.objects.exists()

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("description", ..., "Required"),
            ("description", "", "Must not be blank"),
            ("description", "x" * 256, "Must be at most 255 characters long"),
            ("description", 5, "Must be a string"),
            ("projectId", ..., "Required"),
            ("projectId", None, "Must not be null"),
        ],
    )
    def test_a_bad_field_is_named(self, world: World, field: str, value: Any, message: str) -> None:
        response = create(world.dana, world.project, **{field: value})
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": field, "message": message}]
        assert not ApiKey.objects.exists()

    def test_a_description_of_255_characters_is_kept(self, world: World) -> None:
        assert create(world.dana, world.project, description="é" * 255).json()["apiKey"]["description"] == "é" * 255

    def test_a_stranger_cannot_create_one(self, world: World) -> None:
        response = create(world.sam, world.project)
        assert response.status_code == 403
        assert response.json() == {"message": "You are not a member of this organization"}
        assert not ApiKey.objects.exists()

    @pytest.mark.parametrize("identifier", ["nonsense", str(new_id()), "1; DROP TABLE keys_apikey"])
    def test_an_unknown_project_is_404(self, world: World, identifier: str) -> None:
        response = create(world.olivia, world.project, projectId=identifier)
        assert (response.status_code, response.json()) == (404, {"message": "Project not found"})
        assert not ApiKey.objects.exists()

    def test_an_archived_project_is_410_and_a_deleted_one_404(self, world: World) -> None:
        for status, expected in [(Project.Status.ARCHIVED, 410), (Project.Status.DELETED, 404)]:
            world.project.status = status
            world.project.save()
            assert create(world.olivia, world.project).status_code == expected
        assert not ApiKey.objects.exists()

    def test_a_project_of_a_deleted_organization_is_404(self, world: World) -> None:
        world.acme.status = Organization.Status.DELETED
        world.acme.save()
        assert create(world.olivia, world.project).status_code == 404
        assert not ApiKey.objects.exists()

    def test_an_api_key_is_not_a_session(self, world: World) -> None:
        token = make_key(world.olivia, world.project).token
        response = Caller(token).post("/keys/api", {"description": "more", "projectId": str(world.project.id)})
        assert response.status_code == 401
        assert ApiKey.objects.count() == 1


class TestThePlansLimit:
    @pytest.mark.parametrize(("plan", "limit"), [(Plan.FREE, 5), (Plan.PRO, 20)])
    def test_past_it_creating_is_refused(self, db: None, plan: Plan, limit: int) -> None:
        owner = make_user("Olivia")
        project = default_project(make_organization(owner=owner, plan=plan))
        for _ in range(limit):
            make_key(owner, project)
        response = create(owner, project)
        assert (response.status_code, response.json()) == (400, {"message": f"Maximum {limit} API keys per project"})
        assert ApiKey.objects.count() == limit

    def test_enterprise_has_none(self, db: None) -> None:
        owner = make_user("Olivia")
        project = default_project(make_organization(owner=owner, plan=Plan.ENTERPRISE))
        for _ in range(21):
            make_key(owner, project)
        assert create(owner, project).status_code == 200

    def test_deleted_keys_and_other_projects_do_not_count(self, world: World) -> None:
        other = Project.objects.create(organization=world.acme, name="Other")
        for _ in range(4):
            make_key(world.olivia, world.project)
            make_key(world.olivia, other)
        gone = make_key(world.olivia, world.project).key
        gone.status = ApiKey.Status.DELETED
        gone.save()
        assert create(world.olivia, world.project).status_code == 200
        assert create(world.olivia, world.project).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_keys_created_at_once_never_pass_the_limit() -> None:
    owner = make_user("Olivia")
    project = default_project(make_organization(owner=owner))
    caller = signed_in(owner)
    body = {"description": "at once", "projectId": str(project.id)}
    statuses: list[int] = []

    def create_one() -> None:
        statuses.append(caller.post("/keys/api", body).status_code)
        connection.close()

    threads = [Thread(target=create_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 5 + [400] * 3
    assert ApiKey.objects.count() == 5


def listed(user: User, **query: str) -> list[str]:
    """Return the descriptions of the keys that the user is shown."""
    response = signed_in(user).get("/keys/api", **query)
    assert response.status_code == 200, response.content
    return [key["description"] for key in response.json()["apiKeys"]]


class TestListing:
    @pytest.fixture(autouse=True)
    def keys(self, world: World) -> None:
        make_key(world.olivia, world.project, "Olivia's")
        make_key(world.dana, world.project, "Dana's")
        make_key(world.sam, world.elsewhere_project, "Sam's")

    def test_a_key_is_shown_masked_with_creator_and_rules(self, world: World) -> None:
        row = ApiKey.objects.get(description="Dana's")
        rule = IamRule.objects.create(api_key=row, rule_type="allow_models", rule_value={"models": ["echo"]})
        response = signed_in(world.dana).get("/keys/api", projectId=str(world.project.id))
        assert response.json() == {
            "apiKeys": [
                {
                    "id": str(row.id),
                    "maskedToken": f"gw_dev_...{row.last_four}",
                    "description": "Dana's",
                    "status": "active",
                    "usageLimit": None,
                    "usage": "0",
                    "periodLimit": None,
                    "requestsPerMinute": None,
                    "allowedOrigins": [],
                    "expiresAt": None,
                    "projectId": str(world.project.id),
                    "teamId": None,
                    "createdBy": str(world.dana.id),
                    "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
                    "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
                    "creator": {"id": str(world.dana.id), "name": "Dana", "email": "dana@example.com"},
                    "iamRules": [
                        {
                            "id": str(rule.id),
                            "apiKeyId": str(row.id),
                            "ruleType": "allow_models",
                            "ruleValue": {"models": ["echo"]},
                            "status": "active",
                            "createdAt": rule.created_at.isoformat().replace("+00:00", "Z"),
                            "updatedAt": rule.updated_at.isoformat().replace("+00:00", "Z"),
                        }
                    ],
                }
            ],
            "planLimits": {"currentCount": 2, "maxKeys": 5, "plan": "free"},
            "userRole": "developer",
        }

    def test_filter_all_needs_an_admin_or_owner(self, world: World) -> None:
        project = str(world.project.id)
        for user, role in [(world.olivia, "owner"), (world.adam, "admin")]:
            assert listed(user, projectId=project, filter="all") == ["Olivia's", "Dana's"]
            assert signed_in(user).get("/keys/api", projectId=project).json()["userRole"] == role
        for query in ({"projectId": project}, {}):
            response = signed_in(world.dana).get("/keys/api", filter="all", **query)
            assert response.status_code == 403
            assert "apiKeys" not in response.json()

    def test_mine_is_what_is_listed_unless_all_is_asked_for(self, world: World) -> None:
        assert listed(world.olivia, projectId=str(world.project.id)) == ["Olivia's"]
        assert listed(world.olivia, projectId=str(world.project.id), filter="mine") == ["Olivia's"]
        assert listed(world.adam) == []

    def test_without_a_project_every_organization_of_the_user_is_listed(self, world: World) -> None:
        join(world.elsewhere, world.olivia, Role.DEVELOPER)
        make_key(world.olivia, world.elsewhere_project, "Olivia's elsewhere")
        assert listed(world.olivia) == ["Olivia's", "Olivia's elsewhere"]
        # She administers Acme alone.
        assert listed(world.olivia, filter="all") == ["Olivia's", "Dana's"]
        answer = signed_in(world.olivia).get("/keys/api").json()
        assert (answer["userRole"], "planLimits" in answer) == ("owner", False)

    def test_deleted_keys_projects_and_organizations_are_not_listed(self, world: World) -> None:
        ApiKey.objects.filter(description="Olivia's").update(status=ApiKey.Status.DELETED)
        assert listed(world.olivia, filter="all") == ["Dana's"]
        Project.objects.filter(pk=world.project.pk).update(status=Project.Status.DELETED)
        assert listed(world.dana) == []
        Organization.objects.filter(pk=world.elsewhere.pk).update(status=Organization.Status.DELETED)
        assert listed(world.sam) == []

    def test_a_member_who_left_sees_nothing_there(self, world: World) -> None:
        world.dana.memberships.all().delete()
        assert listed(world.dana) == []

    def test_an_enterprise_has_no_greatest_number_of_keys(self, world: World) -> None:
        world.acme.plan = Plan.ENTERPRISE
        world.acme.save()
        answer = signed_in(world.dana).get("/keys/api", projectId=str(world.project.id)).json()
        assert answer["planLimits"] == {"currentCount": 2, "maxKeys": None, "plan": "enterprise"}

    def test_a_strangers_project_is_403_and_an_unknown_one_404(self, world: World) -> None:
        caller, projects = signed_in(world.sam), (world.project.id, new_id())
        assert [caller.get("/keys/api", projectId=str(one)).status_code for one in projects] == [403, 404]

    def test_an_unknown_filter_is_400(self, world: World) -> None:
        response = signed_in(world.olivia).get("/keys/api", filter="everything")
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": "filter", "message": "Must be one of: mine, all"}]

    def test_a_longer_list_takes_no_more_queries(self, world: World, django_assert_num_queries: Any) -> None:
        caller = signed_in(world.olivia)
        for _ in range(3):
            make_key(world.dana, world.project)
        # Session; project; role; keys; rules; how many there are.
        with django_assert_num_queries(6):
            caller.get("/keys/api", projectId=str(world.project.id), filter="all")
