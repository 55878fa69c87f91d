"""Celery's program, without the shell of its `amqp` command: the terminal library of that would be part of every worker
and beat. To be loaded after gevent has patched the standard library, if it is to."""
# alone: the command `gateway celery` runs it, and the web process loads it for its forks

from __future__ import annotations

import sys
from types import SimpleNamespace

sys.modules["click_repl"] = SimpleNamespace(register_repl=lambda group: None)  # type: ignore[assignment] # no module

from celery.bin.celery import main as run  # noqa: E402 - it loads the shell

__all__ = ["run"]
