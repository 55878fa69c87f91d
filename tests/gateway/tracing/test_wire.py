"""The official messages read our own encoding as it was meant, at the edges of every kind."""

from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from apps.gateway.tracing import otlp, wire
from apps.gateway.tracing.request_trace import AttributeValue
from tests.support.otlp_collector import values_of


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x" * 127,
        "x" * 128,
        "ünïcode ☃" * 5000,
        True,
        False,
        0,
        127,
        128,
        -1,
        2**63 - 1,
        -(2**63),
        0.1,
        -1e300,
        ("stop", "", "length"),
        (),
    ],
)
def test_an_attribute_is_read_as_it_was_written(value: AttributeValue) -> None:
    read = values_of([KeyValue.FromString(otlp.attribute("a.name", value))])
    expected = list(value) if isinstance(value, tuple) else value
    assert read == {"a.name": expected}
    assert type(read["a.name"]) is type(expected)


@pytest.mark.parametrize(("number", "bytes_"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_a_whole_number_takes_seven_bits_a_byte(number: int, bytes_: bytes) -> None:
    assert wire.varint(number) == bytes_


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 5000])
def test_span_attributes_in_parts_are_read_as_whole_ones_are(size: int) -> None:
    written = b"".join(
        [
            otlp.constant(("a.flag", True), ("a.list", ("stop",))),
            otlp.text("a.text", "é" * size),
            otlp.integer("a.number", size),
            otlp.double("a.cost", size / 3),
        ]
    )
    assert values_of(Span.FromString(written).attributes) == {
        "a.flag": True,
        "a.list": ["stop"],
        "a.text": "é" * size,
        "a.number": size,
        "a.cost": size / 3,
    }
