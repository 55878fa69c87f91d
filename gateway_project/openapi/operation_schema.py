"""Operation schema: an operation of a view, described when others have had their turn."""

# drf-spectacular has no types.
# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema

from apps.kernel.concurrency.turn_queue import let_others_go_on


class OperationSchema(AutoSchema):
    """drf-spectacular's schema of a view. All operations together take some tenths of a second of the worker."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the operation; None if it is not part of the document."""
        let_others_go_on()
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        return operation
