"""Raw framing: pieces of an answer pass as they are, silence included."""

from __future__ import annotations

from apps.gateway.framing import FRAMINGS


def test_bytes_pass_as_they_come() -> None:
    assert list(FRAMINGS["raw"](iter([b"ID3", b"", b"\xff\xfb", b"{"]), 1, len)) == [b"ID3", b"", b"\xff\xfb", b"{"]
