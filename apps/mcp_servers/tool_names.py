"""Names of tools across servers: `server__tool`, at most 64 characters, unique. Pure.

A server's name has no underscore, so the part before the first two is the server. Model providers accept 64 letters,
digits, hyphens and underscores: a tool whose name does not fit gets its beginning and a digest of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

# Valid names of servers; `all` is reserved.
SERVER_NAME: Final = re.compile(r"[a-z0-9-]{1,40}")
ALL: Final = "all"
SEPARATOR: Final = "__"
# Characters of a joined name.
MAX_JOINED_NAME: Final = 64
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 12
# A name that looks shortened is shortened too, so that it cannot clash with a shortened one.
_SHORTENED: Final = re.compile(rf".*-[0-9a-f]{{{_DIGEST}}}", re.DOTALL)


def joined_name(server: str, tool: str) -> str:
    """Return the joined name of a server's tool."""
    room = MAX_JOINED_NAME - len(server) - len(SEPARATOR)
    if len(tool) <= room and _PLAIN.fullmatch(tool) and not _SHORTENED.fullmatch(tool):
        return f"{server}{SEPARATOR}{tool}"
    digest = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    head = _OTHER.sub("_", tool[: room - _DIGEST - 1])
    return f"{server}{SEPARATOR}{head}-{digest}"


def joined_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return a server's tools by their joined names. If two have the same one, the first keeps it."""
    found: dict[str, str] = {}
    for tool in tools:
        found.setdefault(joined_name(server, tool), tool)
    return found


def server_of(joined: str) -> str:
    """Return the server in a joined name; empty if there is none."""
    server, separator, _ = joined.partition(SEPARATOR)
    return server if separator else ""
