"""Order of several PostgreSQL hosts: the one that accepted the last connection comes first.

Otherwise each new connection would wait for a host that is down before it tries the next.
"""

from __future__ import annotations

from typing import Any

# By list of hosts: the host and port that accepted the last connection. A process has at most one list.
_taken: dict[tuple[str, str], tuple[str, str]] = {}


def in_order(words: dict[str, Any]) -> dict[str, Any]:
    """Return connection parameters with the last successful host first; unchanged for a single host."""
    listed = _listed(words)
    if listed is None:
        return words
    hosts = list(zip(listed[0].split(","), listed[1].split(","), strict=True))
    first = _taken.get(listed)
    # A stable sort keeps the order of the others.
    hosts.sort(key=lambda one: one != first)
    return {**words, "host": ",".join(host for host, _ in hosts), "port": ",".join(port for _, port in hosts)}


def note(words: dict[str, Any], host: str, port: int) -> None:
    """Record the host that accepted a connection for these parameters, as they were before `in_order`."""
    listed = _listed(words)
    if listed is not None:
        _taken[listed] = (host, str(port))


def _listed(words: dict[str, Any]) -> tuple[str, str] | None:
    host, port = str(words.get("host") or ""), str(words.get("port") or "")
    return (host, port) if "," in host and host.count(",") == port.count(",") else None
