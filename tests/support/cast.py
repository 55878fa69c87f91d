"""The cast: Olivia owns Acme, Adam administers it, Dana develops there, Sam is a stranger with a home of his own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.test import Client

from apps.keys.actions import CreatedKey, create_api_key
from apps.organizations.actions import DEFAULT_PROJECT, create_organization
from apps.organizations.credentials.management_keys import CreatedManagementKey, create_management_key
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Membership, Organization, Plan, Project, Role, User

PASSWORD = "a long walk by the sea"


@dataclass(frozen=True)
class World:
    """Everyone and everything there is when a test begins."""

    olivia: User
    adam: User
    dana: User
    sam: User
    acme: Organization
    # Acme's `Default Project`.
    project: Project
    # Sam's own organization and project, without other members.
    elsewhere: Organization
    elsewhere_project: Project


@pytest.fixture
def world(db: None) -> World:
    """The cast in its places."""
    olivia, adam, dana, sam = (make_user(name) for name in ("Olivia", "Adam", "Dana", "Sam"))
    acme = make_organization(owner=olivia, name="Acme")
    join(acme, adam, Role.ADMIN)
    join(acme, dana, Role.DEVELOPER)
    elsewhere = make_organization(owner=sam, name="Elsewhere")
    return World(olivia, adam, dana, sam, acme, default_project(acme), elsewhere, default_project(elsewhere))


def make_user(name: str) -> User:
    """Create a user `<name>@example.com` who signs in with PASSWORD."""
    return User.objects.create(name=name, email=f"{name.lower()}@example.com", password=_stored_password())


def make_organization(*, owner: User, name: str = "Acme", plan: Plan = Plan.FREE) -> Organization:
    """Create an organization with its default project."""
    organization = create_organization(owner=owner, name=name)
    if plan != Plan.FREE:
        organization.plan = plan
        organization.save()
    return organization


def default_project(organization: Organization) -> Project:
    """Return the project an organization begins with."""
    return organization.projects.get(name=DEFAULT_PROJECT)


def join(organization: Organization, user: User, role: Role) -> Membership:
    """Make a user a member."""
    return Membership.objects.create(organization=organization, user=user, role=role)


def make_key(
    user: User, project: Project, description: str = "a key", usage_limit: Decimal | None = None
) -> CreatedKey:
    """Create an API key of the project in the user's name."""
    return create_api_key(user=user, project_id=project.id, description=description, usage_limit=usage_limit)


def make_management_key(user: User, organization: Organization, *scopes: str) -> CreatedManagementKey:
    """Create a management key in the user's name."""
    return create_management_key(user=user, organization=organization, name="Terraform", scopes=scopes)


class Caller:
    """A client of the HTTP interface, with or without a token; answers are Django's test responses."""

    def __init__(self, token: str | None = None) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, **query: str) -> Any:
        """GET."""
        return self.client.get(path, query, headers=self.headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """POST a JSON body; bytes are sent as they are."""
        return self.send("POST", path, {} if body is None else body, **headers)

    def send(self, method: str, path: str, body: Any, **headers: str) -> Any:
        """Send a JSON body; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body)
        return self.client.generic(
            method, path, data, content_type="application/json", headers={**self.headers, **headers}
        )


def signed_in(user: User) -> Caller:
    """Return a caller with a session of the user's."""
    return Caller(start_session(user))


@cache
def _stored_password() -> str:
    return make_password(PASSWORD)
