"""The keys of a member who is removed, or leaves."""

from __future__ import annotations

from typing import Any

from apps.kernel.valkey import generation
from apps.keys.models import ApiKey
from apps.organizations.models import AuditEntry, Membership
from tests.support.cast import World, make_key, signed_in


def remove(world: World, by: Any, whom: Any) -> Any:
    """Ask to remove a member of Acme."""
    row = Membership.objects.get(organization=world.acme, user=whom)
    return signed_in(by).send("DELETE", f"/organization/{world.acme.id}/members/{row.id}", {})


def test_the_keys_a_removed_member_created_end(world: World, django_capture_on_commit_callbacks: Any) -> None:
    made = [make_key(world.dana, world.project) for _ in range(2)]
    inactive = make_key(world.dana, world.project)
    ApiKey.objects.filter(pk=inactive.key.pk).update(status=ApiKey.Status.INACTIVE)
    ApiKey.objects.filter(pk=make_key(world.dana, world.project).key.pk).update(status=ApiKey.Status.DELETED)
    olivias, elsewhere = make_key(world.olivia, world.project), make_key(world.sam, world.elsewhere_project)
    ApiKey.objects.filter(pk=elsewhere.key.pk).update(created_by=world.dana)
    word = generation.read_generation_token(generation.organization_scope(world.acme.id))
    with django_capture_on_commit_callbacks(execute=True):
        response = remove(world, world.adam, world.dana)
    assert (response.status_code, response.json()) == (200, {"message": "Member removed", "revokedApiKeys": 3})
    status = {key.pk: key.status for key in ApiKey.objects.all()}
    assert {status[one.key.pk] for one in (*made, inactive)} == {"deleted"}
    assert {status[one.key.pk] for one in (olivias, elsewhere)} == {"active"}
    client = signed_in(world.olivia).client
    asked = [client.get("/logs", headers={"x-api-key": one.token}).status_code for one in (*made, olivias)]
    assert asked == [401, 401, 200]
    assert generation.read_generation_token(generation.organization_scope(world.acme.id)) != word
    actions = list(AuditEntry.objects.order_by("-id").values_list("action", "actor_email")[:4])
    assert actions == [("member.delete", "adam@example.com"), *[("api_key.delete", "adam@example.com")] * 3]


def test_so_do_those_of_one_who_leaves(world: World) -> None:
    make_key(world.dana, world.project)
    assert remove(world, world.dana, world.dana).json() == {"message": "Member removed", "revokedApiKeys": 1}
    assert ApiKey.objects.get().status == ApiKey.Status.DELETED


def test_a_removal_that_is_refused_ends_no_key(world: World) -> None:
    make_key(world.olivia, world.project)
    for by, status in ((world.adam, 403), (world.sam, 403), (world.olivia, 400)):
        assert remove(world, by, world.olivia).status_code == status
    assert ApiKey.objects.get().status == ApiKey.Status.ACTIVE
    assert Membership.objects.filter(organization=world.acme, user=world.olivia).exists()


def test_another_role_ends_no_key(world: World) -> None:
    make_key(world.dana, world.project)
    row = Membership.objects.get(organization=world.acme, user=world.dana)
    path = f"/organization/{world.acme.id}/members/{row.id}"
    assert signed_in(world.olivia).send("PATCH", path, {"role": "admin"}).status_code == 200
    assert ApiKey.objects.get().status == ApiKey.Status.ACTIVE
