"""The order in which several hosts of PostgreSQL are tried: the one that took the last connection comes first.

Without it each new connection waits for a machine that has vanished before it tries the next. Knows the words of libpq.
Must never open a connection.
"""

from __future__ import annotations

from typing import Any

# By what is listed: the host and port that took the last connection. A process has one such list, or none.
_taken: dict[tuple[str, str], tuple[str, str]] = {}


def in_order(words: dict[str, Any]) -> dict[str, Any]:
    """Return connection parameters with the host first that took the last connection; unchanged where one is named."""
    listed = _listed(words)
    if listed is None:
        return words
    hosts = list(zip(listed[0].split(","), listed[1].split(","), strict=True))
    first = _taken.get(listed)
    # A stable order: those behind it stay as they were named.
    hosts.sort(key=lambda one: one != first)
    return {**words, "host": ",".join(host for host, _ in hosts), "port": ",".join(port for _, port in hosts)}


def note(words: dict[str, Any], host: str, port: int) -> None:
    """Take note of who took a connection that was asked for by these parameters, as they were before `in_order`."""
    listed = _listed(words)
    if listed is not None:
        _taken[listed] = (host, str(port))


def _listed(words: dict[str, Any]) -> tuple[str, str] | None:
    host, port = str(words.get("host") or ""), str(words.get("port") or "")
    return (host, port) if "," in host and host.count(",") == port.count(",") else None
