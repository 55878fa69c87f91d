"""Kept files for requests: those of a caller's project, found by their ids and read when they are wanted."""

from __future__ import annotations

from apps.batches.access import access_file
from apps.batches.models import StoredFile
from apps.batches.stored_files import chunks_of, name_of
from apps.gateway.access.policy import Policy


class RequestFile:
    """A stored file that a request names."""

    def __init__(self, row: StoredFile) -> None:
        self._row = row
        self.name = name_of(row)
        self.size = row.size

    def read(self) -> bytes:
        """Return its content. Raises DatabaseError."""
        return b"".join(chunks_of(self._row))


class RequestFiles:
    """Finds files for requests."""

    def find(self, policy: Policy, file_id: str, param: str) -> RequestFile:
        """Return a file of the caller's project. Raises NotFound, DatabaseError."""
        return RequestFile(access_file(policy, file_id, param))
