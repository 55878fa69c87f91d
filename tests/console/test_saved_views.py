"""Saved views of the log: who sees, saves and deletes them, what they keep, and their end with a membership."""

from __future__ import annotations

from typing import Any

import pytest

from apps.logs import hooks, saved_views
from apps.logs.models import SavedView
from apps.organizations.models import Membership
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words

QUERY = "model=gpt-5&range=24h"


def save(world: World, visitor: Visitor, name: str = "Slow", **fields: str) -> Any:
    return visitor.send(page(world.acme, "logs/views"), {"name": name, "query": QUERY, **fields})


def names(world: World, visitor: Visitor) -> list[str]:
    return [one.name for one in visitor.open(page(world.acme, "logs")).context["views"]]


def test_a_view_is_its_authors_unless_it_is_shared(world: World) -> None:
    dana, olivia = Visitor(world.dana), Visitor(world.olivia)
    answer = save(world, dana)
    assert (answer.status_code, answer["Location"]) == (303, f"{page(world.acme, 'logs')}?{QUERY}")
    save(world, dana, "Shared", shared="true")
    assert (names(world, dana), names(world, olivia)) == (["Shared", "Slow"], ["Shared"])
    text = olivia.open(page(world.acme, "logs")).content.decode()
    assert f'href="{page(world.acme, "logs")}?model=gpt-5&amp;range=24h">Shared</a>' in text


def test_a_view_keeps_filters_and_the_period_but_no_place_in_the_list(world: World) -> None:
    save(world, Visitor(world.dana), query=f"{QUERY}&cursor=abc&limit=5&orgId=x&id=y&provider=")
    assert SavedView.objects.get().query == QUERY


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "Enter a name of at most 80 characters"),
        ({"name": "x" * 81}, "Enter a name of at most 80 characters"),
        ({"name": "a\0b"}, "Enter a name of at most 80 characters"),
        ({"name": "Slow"}, "You already have a saved view with this name"),
        ({"query": ""}, "Choose at least one filter or a period before you save the view"),
        ({"query": f"model={'x' * 2_000}"}, "These filters are too long to save; shorten one"),
    ],
)
def test_a_refused_view_is_not_saved_and_the_list_stays(world: World, fields: dict[str, str], message: str) -> None:
    dana = Visitor(world.dana)
    save(world, dana)
    answer = save(world, dana, **{"name": "Other", **fields})
    assert answer.status_code == 400
    assert answer.context["view_form"].errors == {"name": message}
    assert message in words(answer)
    assert SavedView.objects.count() == 1
    if "query" not in fields:
        assert answer.context["form"].values["model"] == "gpt-5"


def test_a_member_has_so_many_views(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 1)
    dana = Visitor(world.dana)
    save(world, dana)
    assert save(world, dana, "Other").context["view_form"].errors == {
        "name": "You have 1 saved views; delete one first"
    }
    assert save(world, Visitor(world.olivia), "Other").status_code == 303


def test_the_author_and_admins_delete_a_view(world: World) -> None:
    dana, olivia, adam = (Visitor(user) for user in (world.dana, world.olivia, world.adam))
    save(world, dana, "Own")
    save(world, dana, "Shared", shared="true")
    save(world, olivia, "Owner's", shared="true")
    own, shared, owners = (SavedView.objects.get(name=name) for name in ("Own", "Shared", "Owner's"))
    path = page(world.acme, "logs/views")
    assert dana.send(path, {"delete": str(owners.id)}).status_code == 403
    assert adam.send(path, {"delete": str(own.id)}).status_code == 404
    assert Visitor(world.sam).send(path, {"delete": str(shared.id)}).status_code == 403
    assert Visitor(world.sam).send(page(world.elsewhere, "logs/views"), {"delete": str(shared.id)}).status_code == 404
    assert SavedView.objects.count() == 3
    assert adam.send(path, {"delete": str(shared.id)}).status_code == 302
    assert dana.send(path, {"delete": str(own.id)}).status_code == 302
    assert list(SavedView.objects.all()) == [owners]


def test_views_end_with_the_membership(world: World) -> None:
    save(world, Visitor(world.dana), shared="true")
    save(world, Visitor(world.olivia))
    member = Membership.objects.get(organization=world.acme, user=world.dana)
    Visitor(world.olivia).send(page(world.acme, "members"), {"action": "remove", "id": str(member.id)})
    assert [one.created_by_id for one in SavedView.objects.all()] == [world.olivia.id]


def test_links_of_a_refused_form_lead_to_the_list(world: World) -> None:
    answer = Visitor(world.dana).open(page(world.acme, "logs/views"), model="gpt-5")
    assert answer["Location"] == f"{page(world.acme, 'logs')}?model=gpt-5"


def test_views_are_erased_with_their_organization(world: World) -> None:
    save(world, Visitor(world.dana))
    hooks.erase(world.elsewhere.id)
    assert SavedView.objects.count() == 1
    hooks.erase(world.acme.id)
    assert SavedView.objects.count() == 0
