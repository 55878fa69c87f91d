"""Reading a policy while a store hangs: what one request waits for must not keep others waiting."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from apps.gateway.access import policy
from apps.kernel.valkey import generation
from tests.support.upstream import Caller

pytestmark = pytest.mark.django_db(transaction=True)


def test_while_redis_is_asked_no_database_connection_is_held(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    ask = generation.read_generation_token

    def slow(scope: str) -> str:
        asked.append(connection.connection)
        return ask(scope)

    monkeypatch.setattr(generation, "read_generation_token", slow)
    assert policy.find_policy(caller.token).organization_id == caller.organization_id
    assert asked == [None]
    assert connection.connection is None
