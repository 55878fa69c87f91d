"""Names that other people read are one line and show themselves as they are stored."""

from __future__ import annotations

import pytest

from apps.organizations.models import Organization, Plan
from tests.api.test_permissions import state
from tests.support.cast import World, signed_in

REFUSED = "Must be one line without control characters and without marks that change the text direction"
# An override, an isolate, a new line, an escape, the end of a line in Unicode.
HOSTILE = ["key \u202eevil", "\u2066name", "two\nlines", "\x1b[31mred", "one\u2028two", "del\x7f"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_would_show_itself_otherwise_is_refused(world: World, name: str) -> None:
    caller = signed_in(world.olivia)
    Organization.objects.filter(id=world.acme.id).update(plan=Plan.ENTERPRISE)
    organization, project = world.acme.id, world.project.id
    before = state()
    for method, path, field, rest in (
        ("PATCH", f"/organization/{organization}", "name", {}),
        ("PATCH", f"/organization/{organization}", "billingCompany", {}),
        ("POST", "/organization", "name", {}),
        ("PATCH", f"/projects/{project}", "name", {}),
        ("POST", "/projects", "name", {"organizationId": str(organization)}),
        ("POST", "/keys/api", "description", {"projectId": str(project)}),
        ("POST", f"/guardrails/rules/{organization}", "name", {"type": "blocked_terms", "config": {}}),
    ):
        response = caller.send(method, path, {field: name, **rest})
        assert response.status_code == 400, (path, response.content)
        assert f"{field}: {REFUSED}" in response.json()["message"], path
    assert state() == before


@pytest.mark.parametrize("name", ["Büro Zürich", "مشروع ١", "פרויקט (בדיקה)", "می\u200cخواهم", "👩\u200d💻", "名前"])
def test_names_of_every_script_are_taken(world: World, name: str) -> None:
    made = signed_in(world.olivia).post("/keys/api", {"description": name, "projectId": str(world.project.id)})
    assert made.status_code == 200
    assert made.json()["apiKey"]["description"] == name
