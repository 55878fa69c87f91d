"""Error pages for operators, where a page of the admin cannot be had."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from apps.organizations.actions import create_operator
from apps.organizations.models import User
from apps.organizations.operators import organization_admin
from tests.support.cast import PASSWORD, World
from tests.support.console_client import words


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which an operator has signed in."""
    client = Client(raise_request_exception=False)
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def leads_to_the_admin(response: Any) -> bool:
    return b'href="/admin/"' in response.content and b'href="/app/"' not in response.content


def test_a_path_that_leads_nowhere_is_told_in_our_words(operator: Client) -> None:
    response = operator.get("/admin/nothing/")
    assert response.status_code == 404
    assert "Page not found There is nothing at this path" in words(response)
    assert leads_to_the_admin(response)


def test_who_may_not_see_a_page_is_told_who_lets_them(operator: Client, world: World) -> None:
    User.objects.filter(email="op@example.com").update(is_superuser=False)
    response = operator.get("/admin/organizations/organization/")
    assert response.status_code == 403
    assert "Ask a superuser to add you to a group with the permission" in words(response)
    assert "Ask an owner" not in words(response)
    assert leads_to_the_admin(response)


def test_a_form_that_is_too_old_says_what_to_do(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    response = client.post(f"/admin/organizations/organization/{world.acme.pk}/change/", {"name": "Other"})
    assert response.status_code == 403
    assert "This page is out of date" in words(response)
    assert "Nothing was changed. Go back and send the form again" in words(response)
    world.acme.refresh_from_db()
    assert world.acme.name == "Acme"


def test_a_defect_is_logged_and_told_without_its_words(
    operator: Client, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("secret of the defect")

    monkeypatch.setattr(organization_admin.OrganizationAdmin, "get_queryset", fail)
    response = operator.get("/admin/organizations/organization/")
    assert response.status_code == 500
    assert "The log of this process has the traceback." in words(response)
    assert "secret of the defect" not in words(response)
    assert "secret of the defect" in caplog.text
    assert leads_to_the_admin(response)
