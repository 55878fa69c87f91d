"""Parts that all pages share: their policy, who is let in, the way back, and the frame."""

from __future__ import annotations

import re

import pytest

from apps.console.urls import PATTERNS
from apps.console.visit import POLICY
from apps.organizations.models import Project
from tests.support.cast import PASSWORD, World, make_key
from tests.support.console_client import Visitor, page, words

_ID = "01990000-0000-7000-8000-000000000000"


def paths() -> list[str]:
    """Return the path of every page of an organization, with Acme's place open."""
    routes = [str(one.pattern) for one in PATTERNS]
    return [route.replace("<str:organization_id>", "{}") for route in routes if route.startswith("o/")]


def filled(route: str, organization_id: object) -> str:
    return "/app/" + re.sub(r"<\w+:\w+>", _ID, route.format(organization_id).replace("<int:number>", "0"))


def test_pages_take_scripts_and_styles_from_our_files_alone(world: World) -> None:
    for visitor, path in ((Visitor(), "/app/sign-in"), (Visitor(world.olivia), page(world.acme))):
        response = visitor.open(path)
        assert response["Content-Security-Policy"] == POLICY
        assert "unsafe" not in POLICY
        assert response["Cache-Control"] == "private, no-store"
        text = response.content.decode()
        assert not re.search(r"<script(?![^>]*(src=|application/json))|<style|\sstyle=|\son\w+=|javascript:", text)
        assert not re.search(r"""(src|href)=["'](https?:)?//""", text)


@pytest.mark.parametrize("route", paths())
def test_no_page_of_an_organization_is_a_strangers(world: World, route: str) -> None:
    path = filled(route, world.acme.id)
    assert Visitor().open(path).status_code == 302
    for response in (Visitor(world.sam).open(path), Visitor(world.sam).send(path)):
        # A path that takes forms alone leads to the page above it, which is closed to strangers too.
        assert response.status_code in {302, 403, 405}
        assert b"Acme" not in response.content
    assert Visitor(world.sam).open(filled(route, _ID)).status_code in {302, 404}


@pytest.mark.parametrize("route", paths())
def test_no_form_is_taken_without_the_pages_token(world: World, route: str) -> None:
    response = Visitor(world.olivia, check_forgery=True).send(filled(route, world.acme.id), {"name": "Acme"})
    assert response.status_code in {403, 405}
    world.acme.refresh_from_db()
    assert world.acme.status == "active"
    assert Project.objects.filter(organization=world.acme).count() == 1


def test_a_part_of_a_page_leads_the_whole_page_to_the_sign_in(world: World) -> None:
    visitor = Visitor()
    response = visitor.client.get(page(world.acme, "first-request"), headers={"HX-Request": "true"})
    assert response.status_code == 401
    assert response["HX-Redirect"].startswith("/app/sign-in?next=")


def test_an_error_is_a_page_under_its_status(world: World) -> None:
    response = Visitor(world.sam).open(page(world.acme))
    assert (response.status_code, response["Content-Type"]) == (403, "text/html; charset=utf-8")
    assert "You are not a member of this organization" in words(response)


def test_the_navigation_has_what_the_role_may_open(world: World) -> None:
    admins, developers = (words(Visitor(user).open(page(world.acme))) for user in (world.adam, world.dana))
    assert "Audit log" in admins
    assert "Audit log" not in developers
    assert 'aria-current="page"' in Visitor(world.dana).open(page(world.acme, "keys")).content.decode()


def test_words_of_tenants_are_escaped_in_tables_and_forms(world: World) -> None:
    Project.objects.filter(pk=world.project.pk).update(name="<script>1</script>")
    key = make_key(world.dana, world.project, '"><img src=x onerror=1>').key
    for path in ("keys", f"keys/{key.id}", "projects", f"projects/{world.project.id}", "keys/new"):
        text = Visitor(world.olivia).open(page(world.acme, path)).content.decode()
        assert "<script>1" not in text
        assert "<img src=x" not in text


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("first-key", ""),
        ("billing/details", "billing"),
        (f"billing/cards/{_ID}/default", "billing"),
        (f"provider-keys/{_ID}/switch", "provider-keys"),
        ("guardrails/reset", "guardrails"),
    ],
)
def test_the_address_of_a_form_leads_to_the_page_above_it(world: World, path: str, above: str) -> None:
    response = Visitor(world.olivia).open(page(world.acme, path))
    assert (response.status_code, response["Location"]) == (302, page(world.acme, above))
    assert Visitor(world.olivia).open(response["Location"]).status_code in {200, 301}


def test_whose_session_ended_in_the_middle_of_a_form_is_told_and_comes_back_to_its_page(world: World) -> None:
    visitor = Visitor()
    answer = visitor.send(page(world.acme, "billing/details"), {"billingCompany": "Acme Ltd"})
    assert answer.status_code == 302
    said = words(visitor.open(answer["Location"]))
    assert "Your session has ended. Sign in, and send the form again: it was not saved." in said
    fields = {"email": world.olivia.email, "password": PASSWORD, "next": page(world.acme, "billing/details")}
    entered = visitor.send("/app/sign-in", fields)
    back = visitor.open(entered["Location"])
    assert back["Location"] == page(world.acme, "billing")
    assert "it was not saved" not in words(visitor.open(page(world.acme, "billing")))
    world.acme.refresh_from_db()
    assert world.acme.billing_company is None


def test_a_form_without_its_token_says_what_to_do(world: World) -> None:
    response = Visitor(world.olivia, check_forgery=True).send(page(world.acme, "projects/new"), {"name": "New"})
    said = words(response)
    assert response.status_code == 403
    assert "This page is out of date" in said
    assert "Go back and send the form again" in said
    assert "Ask an owner" not in said
