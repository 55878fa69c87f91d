"""Names of functions where Google does not take them as they are: escaped, so that the answer's name alone says which
function is meant. One that is too long even for that is sent as another one (`dialects/adapting/tool_names.py`).

Knows Google's rule for names. Must never keep a table: answers are read without the request.
"""

from __future__ import annotations

import re

from apps.kernel.errors import InvalidRequest

_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_ESCAPED = "_x."
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPES = re.compile(rb"\.([0-9a-f]{2})")
LONGEST = 128
# What is short enough to be told, as it is or escaped: an escaped byte takes three characters.
SPEAKABLE = re.compile(r"(?!_x\.)[A-Za-z_][A-Za-z0-9_.:-]{0,127}|[\x00-\x7f]{1,41}|.{1,10}", re.DOTALL)


def write_name(name: str) -> str:
    """Return the name that Google is told. Raises InvalidRequest for one too long to be told."""
    if _ALLOWED.fullmatch(name) and not name.startswith(_ESCAPED):
        return name
    escaped = _ESCAPED + _UNSAFE.sub(lambda byte: b".%02x" % byte[0][0], name.encode()).decode()
    if len(escaped) > LONGEST:
        raise InvalidRequest(
            f"The function name {name[:64]} is too long for this model's provider",
            code="unsupported_feature",
            param="tools",
        )
    return escaped


def read_name(name: str) -> str:
    """Return the client's name of a function that Google names."""
    if not name.startswith(_ESCAPED):
        return name
    escaped = name.removeprefix(_ESCAPED).encode()
    return _ESCAPES.sub(lambda escape: bytes.fromhex(escape[1].decode()), escaped).decode("utf-8", "replace")
