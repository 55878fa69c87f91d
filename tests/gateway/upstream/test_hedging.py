"""Hedging is asked for by headers; nonsense in them is refused, and nothing is done."""

from __future__ import annotations

import pytest

from tests.support.upstream import Caller, nothing_happened


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ({"X-Hedge": "soon"}, "X-Hedge"),
        ({"X-Hedge": "-1"}, "X-Hedge"),
        ({"X-Hedge": "120001"}, "X-Hedge"),
        ({"X-Hedge": "NaN"}, "X-Hedge"),
        ({"X-Hedge": "true", "X-Hedge-Max-Cost": "11"}, "X-Hedge-Max-Cost"),
        ({"X-Hedge": "true", "X-Hedge-Max-Cost": ""}, "X-Hedge-Max-Cost"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_header(caller: Caller, headers: dict[str, str], param: str) -> None:
    response = caller.chat(stream=True, headers=headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert nothing_happened(caller)
