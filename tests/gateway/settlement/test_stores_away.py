"""Answers while a store is away, and the policies that stay in memory."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from apps.catalog import catalog_cache
from apps.gateway.access import policy
from tests.support.upstream import Caller, nothing_happened


def test_a_process_that_knows_no_catalog_yet_and_cannot_read_one_says_try_again(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise OperationalError("couldn't get a connection")

    monkeypatch.setattr(catalog_cache, "current", away)
    response = caller.chat()
    assert response.status_code == 503
    assert response.json()["error"] == {
        "message": "The gateway cannot reach its database right now; try again shortly",
        "type": "api_error",
        "param": None,
        "code": "overloaded",
    }
    assert nothing_happened(caller)


def test_a_policy_that_another_request_has_read_anew_is_not_forgotten(caller: Caller) -> None:
    old = policy.find_policy(caller.token)
    policy.invalidate(caller.token, old)
    new = policy.find_policy(caller.token)
    assert new is not old
    policy.invalidate(caller.token, old)
    assert policy.find_policy(caller.token) is new
    policy.invalidate(caller.token)
    assert policy.find_policy(caller.token) is not new
