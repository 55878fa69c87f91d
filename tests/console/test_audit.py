"""The audit log by page: filters, pages, and who sees it."""

from __future__ import annotations

from apps.organizations.models import AuditEntry, Organization, Plan
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words


def upgrade(organization: Organization) -> None:
    Organization.objects.filter(pk=organization.pk).update(plan=Plan.ENTERPRISE)


def add(world: World, action: str, **fields: object) -> None:
    usual = {"actor_type": "session", "actor_email": "olivia@example.com", "resource_id": "1"}
    AuditEntry.objects.create(
        organization_id=world.acme.id, action=action, resource_type=action.partition(".")[0], **(usual | fields)
    )


def test_entries_are_filtered_and_told_in_words(world: World) -> None:
    upgrade(world.acme)
    add(world, "api_key.update", details={"changes": {"status": {"from": "active", "to": "inactive"}}})
    add(world, "member.create", details={"email": "<b>x</b>"}, actor_email=None)
    visitor, path = Visitor(world.adam), page(world.acme, "audit")
    shown = visitor.open(path, resourceType="api_key", actor="", startDate="")
    assert [one["row"].action for one in shown.context["entries"]] == ["api_key.update"]
    assert "api_key.update 1 olivia@example.com status: active → inactive" in words(shown)
    everything = visitor.open(path)
    assert "&lt;b&gt;x&lt;/b&gt;" in everything.content.decode()
    assert "the operator" in words(everything)
    # A user who does not know the names of actions filters by one that is listed.
    assert '<a href="?action=member.create"><code>member.create</code></a>' in everything.content.decode()
    assert '<a href="?actor=olivia%40example.com">olivia@example.com</a>' in everything.content.decode()


def test_pages_follow_each_other_under_the_same_filter(world: World) -> None:
    upgrade(world.acme)
    for _ in range(51):
        add(world, "key.test")
    visitor, path = Visitor(world.adam), page(world.acme, "audit")
    first = visitor.open(path, action="key.test")
    assert len(first.context["entries"]) == 50
    following = visitor.client.get(f"{path}?{first.context['next']}")
    assert len(following.context["entries"]) == 1
    assert following.context["next"] == ""
    assert following.context["first"] == "action=key.test"


def test_what_cannot_be_asked_is_said(world: World) -> None:
    upgrade(world.acme)
    response = Visitor(world.adam).open(page(world.acme, "audit"), startDate="yesterday")
    assert response.status_code == 400
    assert response.context["form"].errors == {"startDate": "Must be an ISO 8601 date or time"}
    assert "From (UTC) Must be an ISO 8601 date" in words(response)
    assert "Nothing matches" not in words(response)


def test_it_is_for_admins_of_a_plan_that_has_it(world: World) -> None:
    assert "part of the enterprise plan" in words(Visitor(world.adam).open(page(world.acme, "audit")))
    upgrade(world.acme)
    for user in (world.dana, world.sam):
        assert Visitor(user).open(page(world.acme, "audit")).status_code == 403
