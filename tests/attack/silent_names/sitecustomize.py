"""Names below `silent.test` have servers that never answer, in every process that has this folder in `PYTHONPATH`.

Takes the place of what the C library does with such a name: the thread that asks is blocked for as long as the library
usually tries. Python loads this before anything else, so before gevent looks for the function.
"""

from __future__ import annotations

import _socket
import time
from typing import Any

# As long as three tries of a name server take, seconds.
_PATIENCE = 15.0

_look_up, _sleep = _socket.getaddrinfo, time.sleep


def _getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
    name = host.decode() if isinstance(host, bytes) else str(host)
    if name.endswith(".silent.test") and not flags & _socket.AI_NUMERICHOST:
        _sleep(_PATIENCE)
        raise _socket.gaierror(_socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _look_up(host, port, family, type, proto, flags)


# Both the standard library and gevent call this one.
_socket.getaddrinfo = _getaddrinfo
