"""Projects by page: made once, changed, archived, restored, deleted by typing their name."""

from __future__ import annotations

import pytest

from apps.organizations.models import Project
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words

FIELDS = {
    "name": "Search",
    "mode": "credits",
    "cachingEnabled": "true",
    "cacheDurationSeconds": "120",
    "hedgingEnabled": "false",
}


def test_an_admin_makes_one_however_often_the_form_is_sent(world: World) -> None:
    visitor = Visitor(world.adam)
    for _ in range(2):
        assert visitor.send(page(world.acme, "projects/new"), FIELDS, once="one form").status_code == 302
    made = Project.objects.get(name="Search")
    assert (made.organization, made.mode, made.caching_enabled, made.cache_duration_seconds, made.hedging_enabled) == (
        world.acme,
        "credits",
        True,
        120,
        False,
    )


def test_another_organization_cannot_be_named_in_the_form(world: World) -> None:
    Visitor(world.adam).send(page(world.acme, "projects/new"), {**FIELDS, "organizationId": str(world.elsewhere.id)})
    assert Project.objects.get(name="Search").organization == world.acme


def test_it_is_changed_archived_restored_and_deleted(world: World) -> None:
    visitor, path = Visitor(world.adam), page(world.acme, f"projects/{world.project.id}")
    make_key(world.dana, world.project)
    assert [one.key_count for one in visitor.open(page(world.acme, "projects")).context["projects"]] == [1]
    wrong = visitor.send(path, {**FIELDS, "action": "change", "cacheDurationSeconds": "1"})
    assert set(wrong.context["form"].errors) == {"cacheDurationSeconds"}
    assert visitor.send(path, {**FIELDS, "action": "change", "status": "archived"}).status_code == 302
    world.project.refresh_from_db()
    assert (world.project.name, world.project.status) == ("Search", "active")
    for action, status in (("archive", "archived"), ("restore", "active")):
        assert visitor.send(path, {"action": action}).status_code == 302
        world.project.refresh_from_db()
        assert world.project.status == status
    assert visitor.send(path, {"action": "delete", "confirmation": "Default"}).status_code == 400
    world.project.refresh_from_db()
    assert world.project.status == "active"
    assert visitor.send(path, {"action": "delete", "confirmation": "Search"}).status_code == 302
    world.project.refresh_from_db()
    assert world.project.status == "deleted"
    assert visitor.open(path).status_code == 404


def test_what_a_project_must_have_is_not_emptied(world: World) -> None:
    fields = {"action": "change", "name": " ", "cacheDurationSeconds": "", "mode": "credits"}
    answer = Visitor(world.adam).send(page(world.acme, f"projects/{world.project.id}"), fields)
    assert answer.context["form"].errors == {"name": "Required", "cacheDurationSeconds": "Required"}
    assert Project.objects.get(pk=world.project.id).name == world.project.name != ""


@pytest.mark.parametrize("action", ["change", "archive", "delete"])
def test_developers_look_and_strangers_do_not(world: World, action: str) -> None:
    path = page(world.acme, f"projects/{world.project.id}")
    assert "Only admins can change these settings" in words(Visitor(world.dana).open(path))
    assert Visitor(world.sam).open(path).status_code == 403
    fields = {**FIELDS, "action": action, "confirmation": "Default Project"}
    for user in (world.dana, world.sam):
        assert Visitor(user).send(path, fields).status_code == 403
        assert Visitor(user).send(page(world.acme, "projects/new"), FIELDS).status_code == 403
    # A project of another organization, under the user's own organization.
    assert Visitor(world.sam).send(page(world.elsewhere, f"projects/{world.project.id}"), fields).status_code == 403
    world.project.refresh_from_db()
    assert (world.project.name, world.project.status, Project.objects.count()) == ("Default Project", "active", 2)
