"""The class of all scheduled tasks, which counts their runs.

Apart from `task_metrics`, which processes read that run no task: those need not load Celery.
"""
# alone: Celery finds the class by its name

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from celery import Task

from gateway_project.observability import task_metrics

if TYPE_CHECKING:
    _Task = Task[Any, Any]
else:
    _Task = Task


class Measured(_Task):
    """A task whose runs are counted, however they end."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and take it down. Raises what the task raises."""
        began, succeeded = time.monotonic(), False
        try:
            result = super().__call__(*args, **kwargs)
            succeeded = True
            return result
        finally:
            task_metrics.count(str(self.name), time.monotonic() - began, succeeded=succeeded)
