"""From a token to whom it stands for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.request import Request

from apps.kernel.errors import Unauthenticated
from apps.keys.authenticate import ApiKeyOrSession, find_api_key
from apps.keys.models import ApiKey
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Organization
from tests.support.cast import World, make_key


def recognized(**headers: str) -> tuple[Any, Any]:
    """Return user and credential of a request with these headers."""
    request = RequestFactory().get("/logs", headers={name.replace("_", "-"): value for name, value in headers.items()})
    return ApiKeyOrSession().authenticate(Request(request))


def test_a_key_is_found_with_project_and_organization_in_one_query(
    world: World, django_assert_num_queries: Any
) -> None:
    key, token = make_key(world.dana, world.project)
    with django_assert_num_queries(1):
        found = find_api_key(token)
        assert found == key
        assert found.project.organization == world.acme


@pytest.mark.parametrize("token", ["", "gw_dev_", "nonsense", "gw_dev_" + "x" * 40, "gw_live_é", "' OR 1=1 --"])
def test_an_unknown_token_is_nobody(world: World, token: str) -> None:
    make_key(world.dana, world.project)
    assert find_api_key(token) is None


def test_neither_another_case_nor_a_part_of_a_token_is_a_key(world: World) -> None:
    token = make_key(world.dana, world.project).token
    for other in (token.swapcase(), token[:-1], f"{token}x", token[:20]):
        assert find_api_key(other) is None


def test_an_api_key_is_recognized_by_either_header_and_is_no_user(world: World) -> None:
    key, token = make_key(world.dana, world.project)
    assert recognized(authorization=f"Bearer {token}") == (None, key)
    assert recognized(x_api_key=token) == (None, key)


def test_a_session_is_recognized_as_its_user(world: World) -> None:
    user, session = recognized(authorization=f"Bearer {start_session(world.dana)}")
    assert user == world.dana
    assert session.user == world.dana


def deactivate(key: ApiKey) -> None:
    key.status = ApiKey.Status.INACTIVE


def delete(key: ApiKey) -> None:
    key.status = ApiKey.Status.DELETED


def expire(key: ApiKey) -> None:
    key.expires_at = timezone.now() - timedelta(seconds=1)


def deactivate_organization(key: ApiKey) -> None:
    key.project.organization.status = Organization.Status.INACTIVE
    key.project.organization.save()


@pytest.mark.parametrize("end", [deactivate, delete, expire, deactivate_organization])
def test_a_key_that_no_longer_works_is_401(world: World, end: Callable[[ApiKey], None]) -> None:
    key, token = make_key(world.dana, world.project)
    end(key)
    key.save()
    with pytest.raises(Unauthenticated):
        recognized(x_api_key=token)
    assert find_api_key(token) == key


@pytest.mark.parametrize(
    "headers", [{}, {"x_api_key": "gw_dev_nothing"}, {"authorization": "Bearer nothing"}, {"authorization": "Basic x"}]
)
def test_nobody_is_401_and_never_an_empty_principal(world: World, headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        recognized(**headers)
