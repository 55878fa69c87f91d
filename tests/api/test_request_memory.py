"""A management request is gone with its answer: it does not wait for the garbage collector."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any
from weakref import ref

import pytest
from django.core.handlers.base import BaseHandler
from django.test import RequestFactory

from apps.organizations.credentials.sessions import start_session
from tests.support.cast import World


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/keys/api", None, 200),
        ("GET", "/logs", None, 200),
        ("PATCH", "/projects/{project}", {"name": "Another"}, 200),
        ("PATCH", "/projects/{project}", {"name": 5}, 400),
        ("PUT", "/projects/{project}", {}, 405),
    ],
)
def test_nothing_of_a_request_is_left(
    world: World, no_collector: None, method: str, path: str, body: Any, status: int
) -> None:
    handler = BaseHandler()
    handler.load_middleware()
    token = start_session(world.adam)
    request = RequestFactory().generic(
        method,
        path.format(project=world.project.id),
        "" if body is None else json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    left = ref(request)
    response = handler.get_response(request)
    assert response.status_code == status
    del request, response
    assert left() is None
