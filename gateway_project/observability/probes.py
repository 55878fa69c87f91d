"""Probes of an orchestrator: `GET /livez`, is this process alive? `GET /readyz`, should it be sent requests?

A node gets none while it drains, until it has reached its stores once, and while it cannot keep records. An outage of a
shared store does not make all nodes unready at once: each continues to serve as far as that is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from apps.gateway.settlement.record_backlog import is_any_process_backlogged
from gateway_project.observability.health import check_stores
from gateway_project.processes import draining


class _Readiness:
    """State of one process: once it has reached its stores, their outages no longer make it unready."""

    def __init__(self, check: Callable[[], Mapping[str, Mapping[str, Any]]]) -> None:
        self._check = check
        self._has_reached_stores = False

    def why_not(self) -> str | None:
        """Return why no requests should be sent here, None when they should."""
        if draining.is_node_draining():
            return "draining"
        if not self._has_reached_stores:
            if not all(state["connected"] for state in self._check().values()):
                return "starting"
            self._has_reached_stores = True
        return "records" if is_any_process_backlogged() else None


_READINESS = _Readiness(check_stores)


@require_safe
def livez(request: HttpRequest) -> HttpResponse:
    """Answer 200: to answer is to be alive. No store is asked, so that no outage has nodes started again."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when requests should be sent here, else 503 and why not: `draining`, `starting` or `records`."""
    reason = _READINESS.why_not()
    return JsonResponse({"status": reason or "ready"}, status=503 if reason else 200)
