"""A real Valkey Cluster: each script's keys lie in one slot, keys are followed wherever they go, and a primary may die.

A process of its own for the parts that load only once: names of keys are chosen when the apps are.
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

from apps.kernel.store_urls import MAX_HOSTS, is_cluster_url, read_hosts
from apps.kernel.valkey.redis_cluster import connect
from gateway_project.configuration import env
from gateway_project.diagnosis import registry, valkey
from tests.stack.product import PROJECT
from tests.support.valkey_cluster import ValkeyCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    made = ValkeyCluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


def ask(cluster: ValkeyCluster, work: str, tmp_path: Path) -> Any:
    """Return what a function of `tests/kernel/valkey/cluster_work.py` found in a process on the cluster."""
    told = {
        **os.environ,
        "REDIS_URL": cluster.url,
        "CACHE_URL": cluster.url,
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
    }
    told.update(GATEWAY_HOME=str(tmp_path), CLUSTER_PORTS=json.dumps(cluster.ports), VALKEY_SHARDS="16")
    command = [sys.executable, "-m", "tests.kernel.valkey.cluster_work", work]
    done = subprocess.run(command, cwd=PROJECT, env=told, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class TestOnTheCluster:
    def test_every_script_runs_and_its_keys_are_of_one_slot(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        found = ask(cluster, "run_every_script", tmp_path)
        assert found["never_run"] == []
        # The process has loaded the scripts of all modules, so that none is missed.
        # The cache's run in a store of their own, which is the cluster too here.
        sources = [path for path in (PROJECT / "apps").rglob("*.py") if path.name != "cache_store.py"]
        written = [path.read_text().count("= LuaScript(") for path in sources]
        assert found["scripts"] == sum(written)
        assert {name: calls for name, calls in found["calls"].items() if any(len(slots) != 1 for slots in calls)} == {}
        # A slot for the money of each shard, others for everything else.
        assert len(found["reserved_in"]) == 3
        assert len({tuple(slots) for calls in found["calls"].values() for slots in calls}) >= 3 + 3

    def test_what_is_read_of_several_slots_at_once_comes_back_in_order(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        assert ask(cluster, "read_several", tmp_path) == ["1", None, "3", "4"]

    def test_a_slot_that_has_moved_is_followed(self, cluster: ValkeyCluster, tmp_path: Path) -> None:
        assert ask(cluster, "move_slot", tmp_path) == ["before", "asked", "moved"]

    def test_a_primary_that_dies_is_an_error_at_once_until_its_replica_takes_over(
        self, cluster: ValkeyCluster, tmp_path: Path
    ) -> None:
        lost = cluster.primary_of("{gateway}:x")
        cluster.kill(lost)
        try:
            found = ask(cluster, "wait_for_failover", tmp_path)
        finally:
            cluster.start(lost)
            cluster.wait_until_whole()
        # No refusal of any other kind, and none that waited for longer than a node may take.
        assert set(found["errors"]) <= {"ConnectionError"}
        assert found["answer"] == "kept"
        assert found["nowait"] == "kept"

    def test_a_plain_url_that_leads_to_one_of_its_nodes_is_refused(
        self, cluster: ValkeyCluster, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        assert valkey.find_misplaced() == []
        # The suite's own store may be a cluster: its URL names it as one, and its nodes keep everything in memory.
        settings.REDIS_URL = f"redis://127.0.0.1:{cluster.ports[0]}"
        monkeypatch.setattr(valkey, "client", lambda: cluster.node(cluster.ports[0]))
        problems = {one.id: one.is_serious() for one in registry.check_stores()}
        assert problems.get("gateway.E013") is True


class TestUrls:
    def test_hosts_are_read(self) -> None:
        url = "rediss+cluster://user:pa,ss@one:7000,two,[::1]:7002/?ssl_cert_reqs=none"
        assert is_cluster_url(url)
        assert read_hosts(url) == [("one", 7000), ("two", 6379), ("::1", 7002)]

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("redis+cluster://:hunter2@one:7000/1", "a cluster has no databases: leave the path out"),
            ("redis+cluster://:hunter2@one:70000", "host 1 has no port from 1 to 65535"),
            ("redis+cluster://:hunter2@one:7000,:7001", "host 2 is not host:port"),
            ("redis+cluster://:hunter2@one:7000,", "host 2 is not host:port"),
            ("redis+cluster://one#x", "a URL of a cluster has no fragment"),
            ("redis+cluster://" + "a," * MAX_HOSTS + "a", "at most 64 hosts are allowed"),
        ],
    )
    def test_what_names_no_cluster_is_refused_without_its_password(
        self, monkeypatch: pytest.MonkeyPatch, url: str, words: str
    ) -> None:
        monkeypatch.setenv("REDIS_URL", url)
        with env.collect_problems() as problems:
            assert env.store_url("REDIS_URL", ("redis+cluster",)) == ""
        assert problems == [f"REDIS_URL does not name a cluster: {words}"]

    def test_a_cluster_needs_a_broker_of_celerys_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CELERY_BROKER_URL", raising=False)
        with env.collect_problems() as problems:
            env.celery_broker_url("redis+cluster://one", database=1)
        (problem,) = problems
        assert problem.startswith("CELERY_BROKER_URL must be set, for REDIS_URL is a cluster")
        monkeypatch.setenv("CELERY_BROKER_URL", "redis://queues:6379/3")
        assert env.celery_broker_url("redis+cluster://one", database=1) == "redis://queues:6379/3"

    def test_a_cluster_that_is_away_is_the_error_of_a_store_that_is(self) -> None:
        from redis.exceptions import ConnectionError as RedisConnectionError

        with pytest.raises(RedisConnectionError, match="No node of the cluster answers"):
            connect("redis+cluster://127.0.0.1:1", socket_timeout=0.2, socket_connect_timeout=0.2)
