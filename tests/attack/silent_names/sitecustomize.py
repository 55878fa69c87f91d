"""Names below `silent.test` have servers that never answer, in every process that has this folder in `PYTHONPATH`.

Takes the place of what the C library does with such a name: the thread that asks is blocked for as long as the library
usually tries. Python loads this before anything else, so before gevent looks for the function.
"""

from __future__ import annotations

import socket
import time
from typing import Any

# As long as three tries of a name server take, seconds.
_PATIENCE = 15.0

_look_up, _sleep = socket.getaddrinfo, time.sleep


def _getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
    if isinstance(host, str) and host.endswith(".silent.test") and not flags & socket.AI_NUMERICHOST:
        _sleep(_PATIENCE)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _look_up(host, port, family, type, proto, flags)


socket.getaddrinfo = _getaddrinfo
