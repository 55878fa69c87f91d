"""`outagePolicy`: an organization's owners choose what becomes of its requests while credits cannot be checked."""

from __future__ import annotations

import pytest

from apps.gateway.access.policy import find_policy
from apps.organizations.models import AuditEntry, Organization
from tests.support.cast import World, make_key, signed_in


def test_an_owner_sets_it_and_policies_follow(world: World) -> None:
    token = make_key(world.olivia, world.project).token
    assert find_policy(token).outage_policy == "open"
    before = signed_in(world.olivia).get("/organization").json()["organizations"][0]["outagePolicy"]
    response = signed_in(world.olivia).send("PATCH", f"/organization/{world.acme.id}", {"outagePolicy": "closed"})
    assert (before, response.status_code, response.json()["organization"]["outagePolicy"]) == ("open", 200, "closed")
    (entry,) = AuditEntry.objects.filter(action="organization.update")
    assert entry.details == {"changes": {"outage_policy": {"from": "open", "to": "closed"}}}
    assert Organization.objects.get(pk=world.acme.id).outage_policy == "closed"


@pytest.mark.parametrize("who", ["adam", "dana", "sam"])
def test_nobody_else_does(world: World, who: str) -> None:
    response = signed_in(getattr(world, who)).send(
        "PATCH", f"/organization/{world.acme.id}", {"outagePolicy": "closed"}
    )
    assert response.status_code == 403
    assert Organization.objects.get(pk=world.acme.id).outage_policy == "open"
    assert not AuditEntry.objects.filter(action="organization.update").exists()


@pytest.mark.parametrize("value", ["ajar", "", None, 1, ["open"]])
def test_it_is_one_of_two_words(world: World, value: object) -> None:
    response = signed_in(world.olivia).send("PATCH", f"/organization/{world.acme.id}", {"outagePolicy": value})
    assert response.status_code == 400
    assert [issue["path"] for issue in response.json()["issues"]] == ["outagePolicy"]
    assert Organization.objects.get(pk=world.acme.id).outage_policy == "open"
