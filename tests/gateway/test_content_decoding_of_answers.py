"""Compressed answers, unpacked no further than a reader asks."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.content_decoding import MAX_RATIO, STEP, ContentDecoder, CorruptEncoding

MIB = 1024 * 1024


def unpacked(packed: bytes) -> bytes:
    """Unpack a whole body."""
    decoder = ContentDecoder()
    text = b"".join(decoder.decode(packed))
    decoder.finish()
    return text


@given(
    text=st.binary(max_size=300_000) | st.integers(0, 300_000).map(bytes),
    cut=st.integers(1, 500),
    zlibbed=st.booleans(),
)
def test_what_was_packed_comes_out_whatever_the_pieces(text: bytes, cut: int, zlibbed: bool) -> None:
    packed = zlib.compress(text) if zlibbed else gzip.compress(text)
    decoder = ContentDecoder()
    pieces = [piece for start in range(0, len(packed), cut) for piece in decoder.decode(packed[start : start + cut])]
    decoder.finish()
    assert b"".join(pieces) == text
    assert max(map(len, pieces), default=0) <= STEP


def test_a_bomb_is_given_up_long_before_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(100 * MIB))
    decoder, seen = ContentDecoder(), 0
    with pytest.raises(CorruptEncoding, match=f"more than {MAX_RATIO} times as long"):  # noqa: PT012 - as far as it comes
        for piece in decoder.decode(bomb):
            seen += len(piece)
    assert seen < MIB + MAX_RATIO * len(bomb)


def test_a_bomb_is_held_against_what_has_been_taken_in_of_it() -> None:
    bomb = gzip.compress(bytes(400 * MIB), 1)
    assert len(bomb) > MIB
    decoder = ContentDecoder()
    with pytest.raises(CorruptEncoding, match=f"more than {MAX_RATIO} times as long"):
        for _piece in decoder.decode(bomb):
            pass
    # More than a megabyte has arrived at once; 8 KB of it are taken in at a time.
    assert decoder.decoded_bytes < 3 * MIB


def test_bytes_are_unpacked_as_they_are_asked_for() -> None:
    decoder = ContentDecoder()
    pieces = decoder.decode(gzip.compress(bytes(MIB)))
    assert len(next(pieces)) == STEP
    assert decoder.decoded_bytes == STEP


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (gzip.compress(b"hi") + b"more", "goes on behind its compressed end"),
        (gzip.compress(b"hi") * 2, "goes on behind its compressed end"),
        (gzip.compress(b"hi" * 1000)[:-9], "was cut off before its compressed end"),
        (b'{"plain": true}', "is not compressed as it says"),
    ],
    ids=["garbage behind", "twice", "cut", "plain"],
)
def test_what_is_not_whole_is_no_answer(packed: bytes, words: str) -> None:
    with pytest.raises(CorruptEncoding, match=words):
        unpacked(packed)


def test_no_bytes_at_all_are_an_empty_body() -> None:
    ContentDecoder().finish()
