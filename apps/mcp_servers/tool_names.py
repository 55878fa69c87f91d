"""Names of tools across servers: `server__tool`, of at most 64 characters, never the same for two tools. Pure.

A server's name has no underscore, so that whatever stands before the first two of them is the server. Providers of
models take 64 letters, digits, hyphens and underscores: a tool whose name does not fit is named by its beginning and a
digest of the whole. Must never know a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

# What a registered server may be called; `all` stands for all of them.
SERVER_NAME: Final = re.compile(r"[a-z0-9-]{1,40}")
ALL: Final = "all"
SEPARATOR: Final = "__"
# Characters of a joined name.
LONGEST: Final = 64
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST: Final = 12
# A name that looks as if it had been shortened is shortened itself: no plain name is one of the shortened ones.
_SHORTENED: Final = re.compile(rf".*-[0-9a-f]{{{_DIGEST}}}", re.DOTALL)


def joined_name(server: str, tool: str) -> str:
    """Return the name of a server's tool among those of all servers."""
    room = LONGEST - len(server) - len(SEPARATOR)
    if len(tool) <= room and _PLAIN.fullmatch(tool) and not _SHORTENED.fullmatch(tool):
        return f"{server}{SEPARATOR}{tool}"
    digest = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    head = _OTHER.sub("_", tool[: room - _DIGEST - 1])
    return f"{server}{SEPARATOR}{head}-{digest}"


def joined_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """Return a server's tools by their joined names. Of two that came to the same one, the first has it alone."""
    found: dict[str, str] = {}
    for tool in tools:
        found.setdefault(joined_name(server, tool), tool)
    return found


def server_of(joined: str) -> str:
    """Return the name of the server in a joined name; empty where it names none."""
    server, separator, _ = joined.partition(SEPARATOR)
    return server if separator else ""
