"""Management bodies that hold more than any endpoint has a use for: refused before one object is made of them."""

from __future__ import annotations

import msgspec
import pytest
from django.test import Client

from apps.kernel import json_bounds
from apps.organizations.models import Project, User
from tests.support.cast import World, signed_in

TOO_MUCH = {
    "values": (b'{"email":[' + b"{}," * 9_999 + b"{}]}", "The request body holds more than 10000 values"),
    "depth": (
        b'{"email":' + b"[" * 32 + b"]" * 32 + b"}",
        "The request body is nested too deeply: more than 32 levels",
    ),
    "name": (b'{"' + b"n" * 1_025 + b'":1}', "The request body holds a name longer than 1024 bytes"),
    "digits": (b'{"email":1.' + b"1" * 1_024 + b"}", "The request body holds a number longer than 1024 characters"),
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", TOO_MUCH)
@pytest.mark.parametrize("path", ["/auth/sign-in/email", "/auth/sign-up/email"])
def test_an_anonymous_body_is_bounded_before_it_is_parsed(
    client: Client, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(json_bounds.msgspec.json, "decode", parsed.append)
    body, words = TOO_MUCH[name]
    answer = client.post(path, body, content_type="application/json")
    monkeypatch.undo()
    assert (answer.status_code, answer.json()) == (400, {"message": words})
    assert parsed == []
    assert not User.objects.exists()


@pytest.mark.django_db
def test_a_body_on_the_bound_is_read(client: Client) -> None:
    body = b'{"email":[' + b"1," * 9_996 + b"1]}"
    assert json_bounds.decode_within(body, json_bounds.Bounds(10_000, 32, 1_024, 1_024)) == msgspec.json.decode(body)
    answer = client.post("/auth/sign-in/email", body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()["issues"][0]["path"] == "email"


@pytest.mark.django_db
def test_nothing_is_made_of_a_body_that_is_too_much(world: World) -> None:
    body = {"name": "New", "organizationId": str(world.acme.id), "zz": [{}] * 10_000}
    answer = signed_in(world.olivia).post("/projects", body)
    assert (answer.status_code, answer.json()) == (400, {"message": TOO_MUCH["values"][1]})
    assert list(Project.objects.filter(organization=world.acme)) == [world.project]
