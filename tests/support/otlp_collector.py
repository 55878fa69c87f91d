"""A collector's stand-in: takes OTLP over HTTP, reads it with OpenTelemetry's own messages, and keeps what it read."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass
class ReceivedSpan:
    """A span as it came; times are nanoseconds since 1970."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    """The messages received; `statuses` are answered first, one to a message, before all others get 200."""

    url: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    resources: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    # The schemas of each resource and of its scopes.
    schemas: list[tuple[str, ...]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> None:
        """Read a message."""
        if path == "/v1/traces":
            for one in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(values_of(one.resource.attributes))
                self.schemas.append((one.schema_url, *(scoped.schema_url for scoped in one.scope_spans)))
                self.spans += [_received(span) for scoped in one.scope_spans for span in scoped.spans]
        else:
            for told in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(values_of(told.resource.attributes))
                self.schemas.append((told.schema_url, *(scoped.schema_url for scoped in told.scope_metrics)))
                for scoped_metrics in told.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scoped_metrics.metrics}


@contextmanager
def collector() -> Iterator[Collector]:
    """Yield a collector that listens on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = kept.statuses.pop(0) if kept.statuses else 200
            kept.headers.append({name.lower(): value for name, value in self.headers.items()})
            if status == 200:
                kept.take(self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def values_of(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """Return attributes as plain values."""
    return {one.key: _plain(one.value) for one in attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _received(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == 2,
        attributes=values_of(span.attributes),
    )
