"""Attempt log: what the record, the metrics and the trace of a request say of each call of a provider."""

from __future__ import annotations

from typing import Any

from apps.gateway.metrics.buffer import add, labeled_child
from apps.gateway.metrics.definitions import ATTEMPTS
from apps.gateway.metrics.request_metrics import provider_label
from apps.gateway.routing.candidates import Candidate
from apps.gateway.tracing.request_trace import Callee
from apps.gateway.upstream.call_provider import ProviderCall


def count_attempt(candidate: Candidate, outcome: str) -> None:
    """Count how a call of a provider ended."""
    add(labeled_child(ATTEMPTS, provider_label(candidate.provider_id), outcome))


def attempt_entry(candidate: Candidate, status: int | None, error_type: str, *, succeeded: bool) -> dict[str, Any]:
    """Return the line of the log's routing metadata that tells of a call."""
    return {
        "provider": candidate.provider_id,
        "model": candidate.model_name,
        "status_code": status,
        "error_type": error_type,
        "succeeded": succeeded,
    }


def callee_of(candidate: Candidate) -> Callee:
    """Return whom a trace names for a candidate."""
    return Callee(
        candidate.provider_id, candidate.model_name, candidate.credential.base_url or candidate.offer.provider.base_url
    )


def end_attempt(call: ProviderCall, error_type: str) -> None:
    """End the span of a failed call, where the request is traced."""
    if call.span is not None:
        call.span.span.finish(error_type)
