"""Events of a stream, however its bytes arrive."""

from __future__ import annotations

import pytest

from apps.mcp_servers.http_exchange import events


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_survive_every_border_between_pieces(end: str, size: int) -> None:
    lines = [
        "",
        ": hello",
        "id: 6",
        "data: ",
        "",
        "id: 7",
        "event: message",
        "data: one",
        "data:two",
        "",
        "data: ü",
        "",
        "",
        "retry: 1",
    ]
    whole = end.join([*lines, "data: last"]).encode()
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert list(events(pieces)) == [b"one\ntwo", "ü".encode(), b"last"]
