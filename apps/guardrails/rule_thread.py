"""The native thread on which rules are loaded and compiled: up to two seconds of computing for which only who needs
them waits.

Knows one thread. Must never know what a rule looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Final, TypeVar

from gevent.monkey import is_module_patched

from apps.guardrails.rules import SystemRule, system_rules
from apps.kernel.concurrency.native_thread_pool import NativeThreadPool

T = TypeVar("T")

# One: what it makes for the first who needs it, it need not make again for those who asked meanwhile.
_THREAD: Final = NativeThreadPool(1)


def on_rule_thread(work: Callable[[], T]) -> T:
    """Return what the work returns, while other greenlets go on; where there are none it is done here and now.

    The work must not wait for anything, nor touch what belongs to the event loop. Raises what it raises.
    """
    return _THREAD.run(work) if is_module_patched("socket") else work()


@cache
def loaded_rules() -> MappingProxyType[str, SystemRule]:
    """Return every system rule (`rules.system_rules`). Only the first time in a process takes long."""
    return on_rule_thread(system_rules)
