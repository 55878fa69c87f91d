"""What a request leaves behind is freed when it ends: nobody has to look for cycles, which would hold up the next."""

from __future__ import annotations

import gc

import pytest

from tests import families
from tests.upstream import Caller

pytestmark = pytest.mark.django_db(transaction=True)
REQUESTS = 20


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ["chat", "messages"])
def test_a_request_leaves_no_cycles(caller: Caller, route: str, stream: bool) -> None:
    for _ in range(3):
        assert families.post(caller, route, stream=stream).status == 200
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            assert families.post(caller, route, stream=stream).status == 200
        # Not one a request; what runs beside may leave some.
        assert gc.collect() < REQUESTS
    finally:
        gc.enable()
