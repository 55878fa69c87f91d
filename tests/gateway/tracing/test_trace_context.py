"""`traceparent` as clients send it: taken where it has its form, else as if there were none."""

from __future__ import annotations

import pytest

from apps.gateway.tracing.request_trace import (
    TraceContext,
    is_sampled,
    new_span_ids,
    new_trace_id,
    read_traceparent,
    write_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_header_is_read_and_written_the_same() -> None:
    header = f"00-{TRACE}-{SPAN}-01"
    context = read_traceparent(header, "vendor=1")
    assert context == TraceContext(bytes.fromhex(TRACE), bytes.fromhex(SPAN), sampled=True, state="vendor=1")
    assert write_traceparent(context.trace_id, context.span_id) == header


def test_a_later_version_may_say_more() -> None:
    context = read_traceparent(f"cc-{TRACE}-{SPAN}-00-what-comes-later")
    assert context == TraceContext(bytes.fromhex(TRACE), bytes.fromhex(SPAN), sampled=False)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
    ],
)
def test_what_has_not_the_form_counts_as_none(header: str | None) -> None:
    assert read_traceparent(header) is None


@pytest.mark.parametrize("state", ["x" * 513, "schlüssel=1", "a=1\x7f"])
def test_a_state_that_is_not_fit_is_left_behind(state: str) -> None:
    context = read_traceparent(f"00-{TRACE}-{SPAN}-01", state)
    assert context is not None
    assert context.state == ""


def test_a_parent_decides_whether_a_request_is_sampled_else_the_share_does() -> None:
    parent = TraceContext(b"1" * 16, b"2" * 8, sampled=True)
    assert is_sampled(parent, 0.0)
    assert not is_sampled(parent._replace(sampled=False), 1.0)
    assert is_sampled(None, 1.0)
    assert not any(is_sampled(None, 0.0) for _ in range(100))
    assert 300 < sum(is_sampled(None, 0.5) for _ in range(1000)) < 700


def test_ids_have_their_lengths_and_are_never_the_same() -> None:
    assert {(len(new_trace_id()), len(new_span_ids())) for _ in range(20)} == {(16, 7)}
    assert len({new_trace_id() for _ in range(100)}) == len({new_span_ids() for _ in range(100)}) == 100
