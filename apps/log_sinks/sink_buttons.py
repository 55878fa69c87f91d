"""Button of log sinks in the admin: delete. Must never write: `actions.py` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.log_sinks.access import SINKS
from apps.log_sinks.models import LogSink
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button, is_living


class DeleteSinkQuestion(ButtonQuestion):
    """Whether a sink is to be removed."""

    text = "{row} gets nothing any more, and its credentials are erased. This cannot be undone."


@button(
    "Delete",
    permission="log_sinks.delete_logsink",
    icon="delete",
    danger=True,
    question=DeleteSinkQuestion,
    offered=is_living,
)
def delete_sink(page: Any, sink: LogSink, fields: Mapping[str, Any]) -> Done:
    """Remove a sink, and erase its credentials."""
    SINKS.delete(sink)
    return Done(f"{sink} was removed")
