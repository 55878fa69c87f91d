"""Callers of organizations that keep content, and official clients that talk to the gateway in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx2
import pytest
from openai import OpenAI

from apps.gateway.access import policy
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of, new_token
from apps.organizations.models import Organization, Project, RetentionLevel
from gateway_project.wsgi import application
from tests.support.upstream import Caller, caller, sandbox_url

__all__ = ["caller", "sandbox_url"]

Clients = Callable[[str], OpenAI]


@pytest.fixture
def clients() -> Iterator[Clients]:
    """A way to make clients, each with the token of a key."""
    with ExitStack() as stack:

        def client_of(token: str) -> OpenAI:
            http = stack.enter_context(httpx2.Client(transport=httpx2.WSGITransport(app=application)))
            return OpenAI(api_key=token, base_url="http://testserver/v1", http_client=http, max_retries=0)

        yield client_of


@pytest.fixture
def keeper(caller: Caller) -> Caller:
    """The caller, of an organization that keeps content."""
    keep(caller, RetentionLevel.RETAIN)
    return caller


@pytest.fixture
def openai(keeper: Caller, clients: Clients) -> OpenAI:
    """The official client, with the keeper's key."""
    return clients(keeper.token)


def keep(caller: Caller, level: str) -> None:
    """Set the retention of the caller's organization."""
    organization = Organization.objects.get(pk=caller.organization_id)
    organization.retention_level = level
    organization.save()
    policy.forget_all()


def neighbour(caller: Caller) -> str:
    """Return the token of a key in another project of the same organization."""
    return token_in(Project.objects.create(organization_id=caller.organization_id, name="Next door"), caller)


def stranger(caller: Caller) -> str:
    """Return the token of a key of another organization that keeps content too."""
    other = Organization.objects.create(
        name="Elsewhere", credits=100, plan="enterprise", retention_level=RetentionLevel.RETAIN
    )
    return token_in(Project.objects.create(organization=other, name="Default Project"), caller)


def token_in(project: Project, caller: Caller) -> str:
    """Return the token of a new key of the project."""
    token = new_token()
    ApiKey.objects.create(
        project=project,
        created_by=caller.key.created_by,
        description="another",
        digest=digest_of(token),
        prefix=token[:7],
        last_four=token[-4:],
    )
    return token
