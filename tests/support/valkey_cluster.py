"""A Valkey Cluster of this machine: three primaries with a replica each, made of the embedded program."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway_project.embedded.child_process import spawn
from gateway_project.embedded.programs import find_valkey
from tests.stack.product import eventually
from tests.support.valkey_tls import Tls

# The variable that has the suite's own stores include a cluster.
ON_CLUSTER = "GATEWAY_TESTS_ON_CLUSTER"
PRIMARIES = 3
_SLOTS = 16_384
# Milliseconds after which the others take a silent node for dead, and elect its replica.
NODE_TIMEOUT = 1_000


class ValkeyCluster:
    """The nodes; the first half are primaries when it is made. `url` names two of them. With `tls` all speak it."""

    def __init__(self, folder: Path, *, durable: bool = False, tls: Tls | None = None) -> None:
        self._folder, self._durable, self._tls = folder, durable, tls
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ports = _free_ports(2 * PRIMARIES)
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports[:2])
        self.url = f"{'rediss' if tls else 'redis'}+cluster://{hosts}"
        try:
            for port in self.ports:
                self._start(port)
            self._join()
        except BaseException:
            self.close()
            raise

    def node(self, port: int) -> Any:
        """Return a client of one node."""
        tls = self._tls.client if self._tls else {}
        return Redis(port=port, socket_timeout=5, decode_responses=True, **tls)

    def primary_of(self, key: str) -> int:
        """Return the port of the primary that has a key, as a living node tells."""
        slot = key_slot(key.encode())
        for port in self.living():
            with suppress(RedisError), self.node(port) as node:
                for first, last, primary, *_ in node.execute_command("CLUSTER SLOTS"):
                    if first <= slot <= last and int(primary[1]) in self.living():
                        return int(primary[1])
        raise LookupError("no primary has the key")

    def busiest_by(self, pattern: str) -> str:
        """Return a key of the living primary that has most of those that match."""
        found: list[list[str]] = [[]]
        for port in self.living():
            with suppress(RedisError), self.node(port) as node:
                if node.role()[0] == "master":
                    found.append(sorted(node.keys(pattern)))
        most = max(found, key=len)
        if not most:
            raise LookupError(f"no primary has {pattern}")
        return most[0]

    def has_successor(self, key: str, lost: int) -> bool:
        """Tell whether another living primary has a key than the one on a port."""
        with suppress(LookupError):
            return self.primary_of(key) != lost
        return False

    def living(self) -> list[int]:
        """Return the ports of the nodes that run."""
        return [port for port, process in self._processes.items() if process.poll() is None]

    def kill(self, port: int) -> None:
        """Kill a node (SIGKILL)."""
        self._processes[port].kill()
        self._processes[port].wait(60)

    def start(self, port: int) -> None:
        """Start a node that was killed, on its files."""
        self._start(port)

    def wait_until_whole(self, nodes: int = 2 * PRIMARIES) -> None:
        """Wait until every living node knows of so many, all slots are served, and each replica follows."""
        eventually(lambda: all(self._is_content(port, nodes) for port in self.living()))

    def close(self) -> None:
        """End all nodes."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(60)

    def flush(self) -> None:
        """Empty the cluster, and give each primary the third of the slots that it had at first."""
        primaries = []
        for port in self.living():
            with self.node(port) as node:
                if node.role()[0] == "master":
                    node.flushall()
                    primaries.append(port)
        self._return_slots(primaries)

    def _return_slots(self, primaries: list[int]) -> None:
        """Move every slot that left its third to the primary that has most of it; the cluster is empty."""
        with self.node(primaries[0]) as node:
            told = node.execute_command("CLUSTER SLOTS")
        owners = {slot: int(one[2][1]) for one in told for slot in range(one[0], one[1] + 1)}
        for place in range(PRIMARIES):
            third = [slot for slot in _slots_of(place) if slot in owners]
            home = Counter(owners[slot] for slot in third).most_common(1)[0][0] if third else 0
            for slot in (slot for slot in third if owners[slot] != home):
                self._give_slot(slot, home, primaries)

    def _give_slot(self, slot: int, home: int, primaries: list[int]) -> None:
        """Tell all primaries, the new owner first, that an empty slot is its."""
        with self.node(home) as node:
            name = node.execute_command("CLUSTER", "MYID")
        for port in (home, *(port for port in primaries if port != home)):
            with self.node(port) as node:
                node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", name)

    def _start(self, port: int) -> None:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        words = {
            "bind": "127.0.0.1",
            "dir": str(folder),
            "save": "",
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(NODE_TIMEOUT),
            "cluster-require-full-coverage": "no",
            "cluster-replica-validity-factor": "0",
            "repl-ping-replica-period": "1",
            # A replica that begins asks its primary at once.
            "repl-diskless-sync-delay": "0",
        }
        where = [*self._tls.words(port), "--tls-cluster", "yes"] if self._tls else ["--port", str(port)]
        program = self._tls.program if self._tls else find_valkey()
        command = [str(program), *where, *(word for name, value in words.items() for word in (f"--{name}", value))]
        self._processes[port] = spawn(command, output=subprocess.DEVNULL, env={}, orphan_signal=signal.SIGKILL)
        eventually(lambda: self._answers(port))

    def _join(self) -> None:
        first, *others = (self.node(port) for port in self.ports)
        for place, node in enumerate([first, *others][:PRIMARIES]):
            slots = _slots_of(place)
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", slots[0], slots[-1])
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for port in self.ports[1:]:
            first.execute_command("CLUSTER", "MEET", "127.0.0.1", port)
        eventually(lambda: all(self._knows(port) == 2 * PRIMARIES for port in self.ports))
        for place, node in enumerate(others[PRIMARIES - 1 :]):
            primary = self.node(self.ports[place]).execute_command("CLUSTER", "MYID")
            eventually(partial(_follows, node, primary))
        self.wait_until_whole()

    def _knows(self, port: int) -> int:
        with self.node(port) as node:
            return sum("handshake" not in one["flags"] for one in node.cluster("NODES").values())

    def _is_content(self, port: int, nodes: int) -> bool:
        with suppress(RedisError), self.node(port) as node:
            told = node.cluster("INFO")
            role = node.role()
            follows = role[0] == "master" or role[3] == "connected"
            return (
                told["cluster_state"] == "ok"
                and int(told["cluster_slots_ok"]) == _SLOTS
                and int(told["cluster_known_nodes"]) >= nodes
                and follows
            )
        return False

    def _answers(self, port: int) -> bool:
        with suppress(RedisError), self.node(port) as node:
            return bool(node.ping())
        return False


def _slots_of(place: int) -> range:
    """Return the slots that a primary has at first."""
    return range(place * _SLOTS // PRIMARIES, (place + 1) * _SLOTS // PRIMARIES)


def _follows(node: Any, primary: str) -> bool:
    with suppress(RedisError):
        return bool(node.execute_command("CLUSTER", "REPLICATE", primary))
    return False


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, as is the one of the cluster's bus 10,000 above each."""
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        # Both below those that are given to connections, which take one at any moment.
        for port in range(10_500 + time.monotonic_ns() % 11_000, 22_700):
            pair = [socket.socket(), socket.socket()]
            held += pair
            try:
                pair[0].bind(("127.0.0.1", port))
                pair[1].bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    finally:
        for one in held:
            one.close()
    raise LookupError("no free ports")
