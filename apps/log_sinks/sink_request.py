"""Sink requests: the rows of one batch for a sink, and their HTTP request."""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from apps.logs.query import LogRow


class SinkBatch(NamedTuple):
    """Rows for one sink: its id, the batch's number, and the day on which the first of them was queued.

    A batch that is sent again has the same name; a sample has the number 0.
    """

    sink_id: UUID
    number: int
    day: date
    rows: list[LogRow]

    @property
    def name(self) -> str:
        """The batch's name at the sink; names sort by number."""
        return f"{self.sink_id}-{self.number:012}" if self.number else f"{self.sink_id}-sample"


class Destination(NamedTuple):
    """The address of a sink, and the options of its kind."""

    url: str
    options: dict[str, Any]


class SinkRequest(NamedTuple):
    """An HTTP request to send."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
