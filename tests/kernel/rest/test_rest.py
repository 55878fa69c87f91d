"""Parts that all management endpoints share: names, amounts, cursors, addresses, tokens of headers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.settings import api_settings

from apps.kernel.ids import new_id, request_id_of
from apps.kernel.money import plain
from apps.kernel.rest.envelopes import InvalidFields, camel
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.pages import page_of, read_cursor, write_cursor
from apps.kernel.rest.request_headers import find_bearer
from apps.kernel.rest.serializers import CamelSerializer, DecimalTextField, TextField


@pytest.mark.parametrize(
    ("column", "name"), [("id", "id"), ("auto_top_up_enabled", "autoTopUpEnabled"), ("billing_tax_id", "billingTaxId")]
)
def test_a_column_is_written_in_camel_case(column: str, name: str) -> None:
    assert camel(column) == name


class _Shape(CamelSerializer):
    first_name = TextField()
    usage_limit = DecimalTextField(allow_null=True)


def test_names_are_translated_both_ways() -> None:
    shape = _Shape(data={"firstName": "Olivia", "usageLimit": "0.10"})
    assert shape.is_valid()
    assert shape.validated_data == {"first_name": "Olivia", "usage_limit": Decimal("0.10")}
    assert _Shape({"first_name": "Olivia", "usage_limit": Decimal("0.10")}).data == {
        "firstName": "Olivia",
        "usageLimit": "0.1",
    }
    wrong = _Shape(data={"first_name": "Olivia"})
    assert not wrong.is_valid()
    assert set(wrong.errors) == {"firstName", "usageLimit"}


@given(st.decimals(min_value=0, max_value=Decimal("999999999999.999999999999"), places=12))
def test_an_amount_survives_the_round_trip(amount: Decimal) -> None:
    assert DecimalTextField().to_internal_value(plain(amount)) == amount
    assert DecimalTextField().to_representation(amount) == plain(amount)


class TestPages:
    def test_one_row_more_than_asked_for_tells_that_there_are_more(self) -> None:
        ids = [new_id() for _ in range(3)]
        page = page_of(ids, 2, lambda identifier: identifier)
        assert page.rows == ids[:2]
        assert page.pagination == {"nextCursor": write_cursor(ids[1]), "hasMore": True, "limit": 2}

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_the_last_page_has_no_next(self, count: int) -> None:
        ids = [new_id() for _ in range(count)]
        page = page_of(ids, 2, lambda identifier: identifier)
        assert page.rows == ids
        assert page.pagination == {"nextCursor": None, "hasMore": False, "limit": 2}

    @given(st.integers(0, 0xE3FF_FFFF_FFFF), st.integers(0, 2**80 - 1))
    def test_a_cursor_survives_the_round_trip(self, milliseconds: int, rest: int) -> None:
        identifier = UUID(int=milliseconds << 80 | (rest & ~(0xF << 76) | 0x7 << 76))
        assert read_cursor(write_cursor(identifier)) == identifier

    @pytest.mark.parametrize("text", ["", "x", "nonsense", "é" * 22, "A" * 23, "A" * 500, "=" * 22, "A" * 22])
    def test_what_is_no_cursor_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidFields) as raised:
            read_cursor(text)
        assert [issue.path for issue in raised.value.issues] == ["cursor"]


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        (None, "203.0.113.9", "192.0.2.1"),
        (0, "203.0.113.9", "192.0.2.1"),
        (1, "", "192.0.2.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "10.9.9.9, 203.0.113.9", "203.0.113.9"),
        (2, "10.9.9.9, 203.0.113.9, 192.0.2.8", "203.0.113.9"),
        (2, "203.0.113.9", "203.0.113.9"),
        (1, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (1, "nonsense", "192.0.2.1"),
    ],
)
def test_an_address_is_what_the_outermost_trusted_proxy_saw(
    monkeypatch: pytest.MonkeyPatch, trusted: int | None, forwarded: str, address: str
) -> None:
    monkeypatch.setattr(api_settings, "NUM_PROXIES", trusted)
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", headers={"x-forwarded-for": forwarded})
    assert address_of(request) == address


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("Token abc", None),
        ("Bearer abc", "abc"),
        ("BEARER  abc ", "abc"),
        (f"Bearer {'x' * 512}", "x" * 512),
        (f"Bearer {'x' * 513}", None),
    ],
)
def test_a_bearer_token_is_read(header: str | None, token: str | None) -> None:
    assert find_bearer(header) == token


@given(st.text(max_size=200))
def test_a_request_id_is_always_safe_to_repeat(sent: Any) -> None:
    repeated = request_id_of(sent)
    assert 1 <= len(repeated) <= 128
    assert repeated.isascii()
    assert repeated.isprintable()
    assert " " not in repeated
