"""Metrics of requests: the definitions, over all worker processes, and a buffer that is flushed once a second.

A metric's own count takes a lock and, with several workers, a file's page; a request adds to nine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, get_args

from prometheus_client import Counter, Gauge, Histogram

from apps.kernel.zero_series import begin_at_zero
from apps.logs.entry import Entry

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)

REQUESTS = Counter("gateway_requests_total", "Requests answered", ["route", "model", "provider", "status"])
DURATION = Histogram("gateway_request_duration_seconds", "From request to last byte", ["route"], buckets=_SECONDS)
# The routes that a record can have. mypy refuses any other name where a request is opened.
RouteName = Literal[
    "audio_speech",
    "audio_transcriptions",
    "audio_translations",
    "chat_completions",
    "cohere_chat",
    "completions",
    "converse",
    "embeddings",
    "generate_content",
    "guard_model",
    "images_edits",
    "images_generations",
    "mcp_tool_call",
    "mcp_tool_list",
    "messages",
    "moderations",
    "ollama_chat",
    "ollama_generate",
    "rerank",
    "responses",
]
ROUTES: Final[tuple[RouteName, ...]] = get_args(RouteName)
begin_at_zero(DURATION, ROUTES)
FIRST_TOKEN = Histogram(
    "gateway_time_to_first_token_seconds", "From request to first content, streams only", ["provider"], buckets=_SECONDS
)
TOKENS = Counter("gateway_tokens_total", "Tokens, by disjoint class", ["kind"])
begin_at_zero(TOKENS, ("prompt", "completion", "cached", "reasoning"))
COST = Counter("gateway_cost_usd_total", "Cost of requests in USD (approximate: the ledger is exact)")
UNPRICED = Counter("gateway_unpriced_requests_total", "Answers without a known price", ["provider", "model"])
ATTEMPTS = Counter("gateway_upstream_attempts_total", "Calls to providers", ["provider", "outcome"])
IN_FLIGHT = Gauge("gateway_in_flight", "Requests being answered", multiprocess_mode="livesum")
BYTES_IN_FLIGHT = Gauge(
    "gateway_bytes_in_flight", "Bytes held of large requests and answers", multiprocess_mode="livesum"
)
RECORDS_SPOOLED = Counter("gateway_records_spooled_total", "Records written to disk while Redis was away")
RECORDS_REPLAYED = Counter("gateway_records_replayed_total", "Records that came back from disk to Redis")
DEAD_LETTERS = Counter("gateway_dead_letters_total", "Records put aside because they could not be read")
RECORDS_IN_MEMORY = Gauge(
    "gateway_records_in_memory", "Records that neither store nor disk would take yet", multiprocess_mode="livesum"
)
RECORDS_RETRANSMITTED = Counter(
    "gateway_records_retransmitted_total", "Records pushed again because the store may have lost them"
)
UNRECORDABLE = Counter("gateway_unrecordable_requests_total", "Requests refused because records could not be stored")
HOME_FREE = Gauge(
    "gateway_home_free_bytes",
    "Free space where the home, and the embedded stores' data, are",
    ["folder"],
    multiprocess_mode="livemostrecent",
)
STALE_POLICIES = Counter(
    "gateway_stale_policies_total", "Requests served by an expired policy, the database being away"
)
UNRESERVED = Counter("gateway_unreserved_requests_total", "Requests let through without an answer of the store")
OFFLINE_DECISIONS = Counter(
    "gateway_offline_decisions_total",
    "Requests decided without an answer of the store, by why there was none and what became of them",
    ["reason", "decision"],
)
OFFLINE_ALLOWANCE_USED = Gauge(
    "gateway_offline_allowance_used_usd",
    "Let through without an answer of the store and not known to be settled, in USD",
    multiprocess_mode="livesum",
)
STORE_SILENT = Gauge(
    "gateway_store_silent", "Whether a worker gets no answer of the store: 1 or 0", multiprocess_mode="livemax"
)
QUEUE_DEPTH = Gauge("gateway_outbox_depth", "Records waiting to be settled", multiprocess_mode="livemostrecent")
QUEUE_AGE = Gauge("gateway_outbox_age_seconds", "Age of the oldest waiting record", multiprocess_mode="livemostrecent")
SETTLED = Counter("gateway_settled_records_total", "Records written to the log and the ledger")
SWEPT = Counter("gateway_swept_requests_total", "Requests whose worker died before it could record them")
RECONCILED_DIFFERENCES = Gauge(
    "gateway_reconciliation_differences",
    "Differences that the last nightly reconciliation found",
    ["kind"],
    multiprocess_mode="livemostrecent",
)
RECONCILED_AGO = Gauge(
    "gateway_reconciliation_age_seconds",
    "Since the last nightly reconciliation ended",
    multiprocess_mode="livemostrecent",
)
CLEARING_AMOUNT = Gauge(
    "gateway_clearing_amount_usd", "Money in flight", ["account"], multiprocess_mode="livemostrecent"
)
CLEARING_ITEMS = Gauge(
    "gateway_clearing_items", "Requests whose money is in flight", ["account"], multiprocess_mode="livemostrecent"
)
CLEARING_AGE = Gauge(
    "gateway_clearing_age_seconds", "Age of the oldest money in flight", ["account"], multiprocess_mode="livemostrecent"
)
CLEARING_OVERDUE = Gauge(
    "gateway_clearing_overdue",
    "Whether the oldest money in flight is older than its bound: 1 or 0",
    ["account"],
    multiprocess_mode="livemostrecent",
)
BALANCE_SHEET_DIFFERENCE = Gauge(
    "gateway_balance_sheet_difference_usd",
    "Ledger less credits, and holds of requests less held amounts, of the last balance sheet",
    ["side"],
    multiprocess_mode="livemostrecent",
)
BALANCE_SHEET_AGE = Gauge(
    "gateway_balance_sheet_age_seconds", "Since the last balance sheet", multiprocess_mode="livemostrecent"
)
TRACES_EXPORTED = Counter("gateway_traces_exported_total", "Traces that the collector took")
TRACES_DROPPED = Counter(
    "gateway_traces_dropped_total", "Traces that the collector did not take, or that there was no room for"
)
FINDINGS = Counter(
    "gateway_guardrail_findings_total", "Findings of guardrails, by the action taken", ["rule", "action"]
)
SCANNED = Counter(
    "gateway_guardrail_texts_total",
    "Texts of requests that system rules looked through, or whose findings were remembered",
    ["outcome"],
)
begin_at_zero(SCANNED, ("remembered", "scanned"))
OUTSIDE_CALLS = Counter(
    "gateway_guardrail_outside_calls_total",
    "Questions to outside guards, by type and outcome (passed, found, failed; skipped while its circuit is open)",
    ["type", "outcome"],
)


_added: defaultdict[Counter | Gauge, float] = defaultdict(float)
# By histogram: how many were seen in each of its buckets, and their sum.
_seen: dict[Histogram, tuple[Counts[int], list[float]]] = {}


@cache
def labeled_child(metric: Any, *labels: str) -> Any:
    """Return a metric's child, which the library looks up under a lock."""
    return metric.labels(*labels)


def add(metric: Counter | Gauge, amount: float = 1) -> None:
    """Add to a metric that has no labels, or to a child; it shows within a second."""
    _added[metric] += amount


def observe(histogram: Histogram, value: float) -> None:
    """Let a histogram, or a child of one, see a value; it shows within a second."""
    seen = _seen.get(histogram)
    if seen is None:
        seen = _seen[histogram] = (Counts(), [0.0])
    buckets, total = seen
    # The library has no way to let one see many values at once; of its own parts these two are all there is.
    buckets[bisect_left(histogram._upper_bounds, value)] += 1
    total[0] += value


def flush_to_prometheus() -> None:
    """Add the buffered counts and observations to the metrics."""
    while _seen:
        histogram, (buckets, total) = _seen.popitem()
        for at, number in buckets.items():
            histogram._buckets[at].inc(number)
        histogram._sum.inc(total[0])
    while _added:
        metric, amount = _added.popitem()
        metric.inc(amount)


# Prefixes of names that tenants give.
_TENANTS_OWN = frozenset({"custom", "mcp"})
_listeners: list[Callable[[Entry], None]] = []


def tell(listener: Callable[[Entry], None]) -> None:
    """Have a listener told of every finished request of this process."""
    _listeners.append(listener)


def provider_label(provider_id: str) -> str:
    """Return a provider's name in metrics. Tenants name theirs, and their servers of tools, as they like: each would be
    a time series for ever."""
    kind, colon, _ = provider_id.partition(":")
    return kind if colon and kind in _TENANTS_OWN else provider_id


def record_request_metrics(entry: Entry) -> None:
    """Count a finished request."""
    for listener in _listeners:
        listener(entry)
    model, provider = entry.used_model, entry.used_provider
    if provider_label(provider) != provider:
        model = provider = provider_label(provider)
    add(labeled_child(REQUESTS, entry.route, model, provider, str(entry.status_code)))
    observe(labeled_child(DURATION, entry.route), entry.duration / 1000)
    if entry.time_to_first_token is not None:
        observe(labeled_child(FIRST_TOKEN, provider), entry.time_to_first_token / 1000)
    if entry.prompt_tokens:
        add(labeled_child(TOKENS, "prompt"), entry.prompt_tokens)
    if entry.completion_tokens:
        add(labeled_child(TOKENS, "completion"), entry.completion_tokens)
    if entry.cached_tokens:
        add(labeled_child(TOKENS, "cached"), entry.cached_tokens)
    if entry.reasoning_tokens:
        add(labeled_child(TOKENS, "reasoning"), entry.reasoning_tokens)
    if entry.unpriced:
        add(labeled_child(UNPRICED, provider, model))
    if entry.cost:
        add(COST, float(entry.cost))
