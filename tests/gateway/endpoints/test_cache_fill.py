"""One organization that has as much kept as it can: the store of reservations does not grow, and others keep theirs."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.access import policy
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import cache_client, client
from apps.organizations.models import Organization
from tests.support.upstream import Caller, settle_all

MIB = 1024 * 1024
# Seconds: the longest that a project may keep answers for.
MAX_SECONDS = 31_536_000
LARGE = "x" * 680_000


def used_memory(store: Any) -> int:
    return int(store.info("memory")["used_memory"])


def ask(caller: Caller, number: int) -> str:
    answer = caller.chat(f"{number} {LARGE}")
    assert answer.status_code == 200
    return str(answer["x-gateway-cache"])


@pytest.mark.single_server
def test_large_answers_stay_within_the_organizations_bytes_and_out_of_the_store_of_money(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(plan="pro")
    project = caller.key.project
    project.caching_enabled, project.cache_duration_seconds = True, MAX_SECONDS
    project.save()
    policy.forget_all()
    share, other = CacheShare.of(caller.organization_id, "pro"), CacheShare(uuid4(), MIB)
    assert share.max_bytes == 64 * MIB
    other.keep([("answer:theirs", b"theirs")], MAX_SECONDS)
    assert ask(caller, -1) == "miss"
    settle_all()
    money, cache = used_memory(client()), used_memory(cache_client())
    for number in range(120):
        assert ask(caller, number) == "miss"
    settle_all()
    settle_all()
    assert used_memory(client()) - money < 2 * MIB
    assert [key for key in client().keys("*") if "answer" in key or "cache" in key] == []
    assert 60 * MIB < share.used_bytes <= 64 * MIB
    assert used_memory(cache_client()) - cache < 80 * MIB
    assert [ask(caller, number) for number in (119, 118, 80)] == ["hit"] * 3
    assert [ask(caller, number) for number in (-1, 0, 20)] == ["miss"] * 3
    assert share.used_bytes <= 64 * MIB
    assert other.read("answer:theirs") == "theirs"
