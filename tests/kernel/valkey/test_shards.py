"""Shards of a real Valkey Cluster: an organization's money lies in one of them, and primaries share them.

In processes of their own: into how many shards a store is divided is settled when the apps are loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from redis.crc import key_slot

from apps.kernel.store_urls import is_cluster_url
from apps.kernel.valkey.redis import _spread_tags, money_key, money_pattern
from gateway_project.configuration import env
from tests.stack.product import PROJECT
from tests.support.valkey_cluster import ValkeyCluster

FAULTS = {"lose_primary", "spend_while_a_slot_moves"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    made = ValkeyCluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> None:
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").flush()


def ask(cluster: ValkeyCluster, work: str, home: Path, **told: str) -> Any:
    """Return what a function of `shard_work.py` or `shard_faults.py` found in a process there."""
    done = run(cluster, work, home, **told)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def run(cluster: ValkeyCluster, work: str, home: Path, **told: str) -> subprocess.CompletedProcess[str]:
    """Run a function of these in a process of its own."""
    environment = {
        **os.environ,
        "REDIS_URL": cluster.url,
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
        "GATEWAY_HOME": str(home),
        "CLUSTER_PORTS": json.dumps(cluster.ports),
        "VALKEY_SHARDS": "16",
        **told,
    }
    command = [sys.executable, "-m", f"tests.kernel.valkey.{'shard_faults' if work in FAULTS else 'shard_work'}", work]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=110)


class TestNumber:
    def test_the_first_process_marks_the_cluster_and_one_that_divides_it_otherwise_is_refused(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        assert ask(cluster, "claim_shards", tmp_path) == [16, [], None]
        problem = "The cluster of REDIS_URL is divided into 16 shards, and VALKEY_SHARDS is 8."
        remedy = (
            "Set VALKEY_SHARDS to what the cluster has. To change it, stop every process once the outbox is empty "
            "(`gateway doctor` tells), empty the cluster, and start with the new number."
        )
        assert ask(cluster, "claim_shards", tmp_path, VALKEY_SHARDS="8") == [
            16,
            [["gateway.E014", problem]],
            f"{problem} {remedy}",
        ]

    def test_a_cluster_from_before_there_were_several_has_one(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        known, [[identifier, _]], refusal = ask(cluster, "begin_with_the_only_shard", tmp_path)
        assert (known, identifier, refusal is not None) == (1, "gateway.E014", True)
        assert ask(cluster, "claim_shards", tmp_path, VALKEY_SHARDS="1") == [1, [], None]

    def test_a_worker_that_divides_it_otherwise_ends_with_its_first_heartbeat(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        assert ask(cluster, "beat_once", tmp_path) is True
        # As the web server takes it: an application that cannot serve, which is not started again and again.
        ended = run(cluster, "beat_once", tmp_path, VALKEY_SHARDS="4")
        assert (ended.returncode, "worker.other_shards" in ended.stderr) == (4, True)

    def test_a_settler_that_divides_it_otherwise_does_not_start(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        assert ask(cluster, "claim_shards", tmp_path)[0] == 16
        told = {**os.environ, "REDIS_URL": cluster.url, "CELERY_BROKER_URL": "redis://127.0.0.1:1/0"}
        told.update(VALKEY_SHARDS="4", GATEWAY_HOME=str(tmp_path))
        command = [sys.executable, "manage.py", "settler"]
        done = subprocess.run(command, cwd=PROJECT, env=told, capture_output=True, text=True, timeout=110)
        assert done.returncode == 1
        assert "divided into 16 shards, and VALKEY_SHARDS is 4" in done.stderr


class TestMoney:
    def test_a_change_of_the_catalog_is_seen_in_every_shard(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        assert ask(cluster, "compare_generations", tmp_path) == {
            "outcomes": [{"held": 16}, {"stale": 16}, {"held": 15, "stale": 1}],
            "covered": [True],
            "stale": [False],
            "catalog_stands": True,
        }

    def test_another_epoch_of_the_ledger_is_told_to_every_shard(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        assert ask(cluster, "void_everywhere", tmp_path) == [[7], [[7, 15], [9, 1]]]

    def test_the_primaries_share_admission_and_settlement(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        # Sixteen shards on three primaries: five, five and six of them.
        assert ask(cluster, "spread_load", tmp_path) == {"organizations": 64, "scripts": [400, 400, 480]}


class TestOutbox:
    def test_a_shard_with_much_to_settle_holds_up_no_other(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        assert ask(cluster, "read_in_turn", tmp_path) == {
            "depth": 28,
            "batches": [[[2, 10]], [[2, 7], [9, 1], [14, 2]], [[2, 8]]],
            "distinct": 28,
            "left": 0,
        }

    def test_two_readers_never_get_the_same(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        assert ask(cluster, "share_streams", tmp_path) == {"counts": [12, 12, 12, 12], "distinct": 48}

    def test_what_a_dead_worker_held_is_swept_in_every_shard_and_goes_to_its_outbox(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        assert ask(cluster, "sweep_a_dead_worker", tmp_path) == {
            # Notes stay until their records are settled: a sweep that is repeated pushes them again.
            "swept": [3, 3],
            "shards": [1, 1, 7, 7, 13, 13],
            "workers": ["dead"],
            "requests": 3,
            "held": ["0", "5", "0"],
            "listed": [["alive", 16]],
        }


class TestFaults:
    def test_an_organization_whose_slot_moves_never_spends_what_it_has_not(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        found = ask(cluster, "spend_while_a_slot_moves", tmp_path)
        assert (found["moved"], found["held"], found["noted"]) == (True, 10, 10)
        assert found["let_have"] <= 10
        # A store that is away for a moment is the only other answer.
        assert set(found["others"]) <= {"ConnectionError"}

    def test_the_other_shards_are_served_meanwhile_and_its_records_are_read_afterwards(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        try:
            found = ask(cluster, "lose_primary", tmp_path)
        finally:
            for lost in set(cluster.ports) - set(cluster.living()):
                cluster.start(lost)
            cluster.wait_until_whole()
        living = found["living"]
        assert found == {
            "living": living,
            "read": [living] * 3,
            "beat": "ConnectionError",
            "depth": "ConnectionError",
            "heard": True,
            "reserved": "held",
            "not_reserved": "ConnectionError",
            "read_again": [0, 0],
            "failed_meanwhile": True,
            "heard_by_all": True,
        }


class TestNames:
    @pytest.mark.parametrize("count", [2, 3, 16, 64])
    def test_shards_are_spread_evenly_over_the_slots(self, count: int) -> None:
        slots = [key_slot(tag.encode()) for tag in _spread_tags(count)]
        assert [slot * count // 16_384 for slot in slots] == list(range(count))

    @pytest.mark.skipif(is_cluster_url(settings.REDIS_URL), reason="the suite runs over a cluster")
    def test_a_single_server_has_the_names_that_it_always_had(self) -> None:
        assert (money_key("outbox", 0), money_pattern("notes:")) == ("outbox", "notes:*")

    @pytest.mark.parametrize(
        ("url", "stated", "count", "problems"),
        [
            ("redis://one", 1, 1, []),
            ("redis+cluster://one", 1, 1, []),
            ("rediss+cluster://one", 3, 3, []),
            ("redis://one", 3, 1, ["VALKEY_SHARDS is 3, and REDIS_URL is not a cluster: leave it out"]),
            ("redis+sentinel://one", 16, 1, ["VALKEY_SHARDS is 16, and REDIS_URL is not a cluster: leave it out"]),
        ],
    )
    def test_only_a_cluster_has_several(self, url: str, stated: int, count: int, problems: list[str]) -> None:
        with env.collect_problems() as found:
            assert env.shard_count(stated, url) == count
        assert found == problems
