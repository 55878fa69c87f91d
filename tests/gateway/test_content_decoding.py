"""Content decoding: each coding is unpacked exactly, and what would unpack to too much is refused and never held."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from random import Random

import pytest
import zstandard

from apps.gateway.content_decoding import MAX_RATIO, RATIO_FREE, unpack
from apps.kernel.concurrency.native_thread_pool import LARGE
from apps.kernel.errors import ApiError, BodyTooLarge, InvalidRequest, UnsupportedMediaType

LIMIT = 32 * 1024 * 1024
SMALL = b'{"model": "sandbox/echo", "messages": []}'
# Larger than the bodies that are unpacked beside other requests, and little like itself.
BIG = Random(7).randbytes(LARGE * 3)


def bare(data: bytes) -> bytes:
    """Return bare deflate."""
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packing.compress(data) + packing.flush()


PACKED = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    " deflate ": bare,
    "zstd": zstandard.compress,
    "identity": bytes,
    "": bytes,
}


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("body", [SMALL, BIG, b"a" * RATIO_FREE, b"x"], ids=["small", "big", "even", "one"])
def test_a_body_comes_out_as_it_went_in(coding: str, body: bytes) -> None:
    assert unpack(PACKED[coding](body), coding, LIMIT) == body


def test_a_stream_in_pieces_comes_out_as_it_went_in() -> None:
    packing = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(packing.compress(BIG[at : at + 1_000]) for at in range(0, len(BIG), 1_000)) + packing.flush()
    assert unpack(packed, "zstd", LIMIT) == BIG


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_an_empty_body_is_empty_in_every_coding(coding: str) -> None:
    assert unpack(b"", coding, LIMIT) == b""
    assert unpack(PACKED[coding](b""), coding, LIMIT) == b""


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_a_body_of_the_limit_is_let_in_and_one_byte_more_is_413(coding: str) -> None:
    for body in (SMALL, BIG):
        packed = PACKED[coding](body)
        assert unpack(packed, coding, len(body)) == body
        with pytest.raises(BodyTooLarge) as refused:
            unpack(packed, coding, len(body) - 1)
        assert refused.value.message == f"The request body is larger than {len(body) - 1} bytes once it is unpacked"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("fault", ["cut", "followed", "no such coding", "twice"])
@pytest.mark.parametrize("body", [SMALL, BIG], ids=["small", "big"])
def test_what_is_not_of_its_coding_is_400_and_nothing_of_it_comes_out(coding: str, fault: str, body: bytes) -> None:
    packed = PACKED[coding](body)
    broken = {
        "cut": packed[:-1],
        "followed": packed + b"{}",
        "no such coding": b"\xff" + body,
        "twice": packed + packed,
    }[fault]
    with pytest.raises(InvalidRequest) as refused:
        unpack(broken, coding, LIMIT)
    error = refused.value
    assert (error.message, error.code, error.param) == (
        f"The request body is not valid {coding}, or not all of it",
        "invalid_content_encoding",
        "Content-Encoding",
    )


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, gzip", "gzip,identity", "aws-chunked", "utf-8"])
def test_another_coding_is_415_and_told_which_there_are(coding: str) -> None:
    with pytest.raises(UnsupportedMediaType) as refused:
        unpack(gzip.compress(SMALL), coding, LIMIT)
    assert refused.value.message == "Content-Encoding must be gzip, deflate, zstd or identity, and one of them alone"
    assert refused.value.headers == [("Accept-Encoding", "gzip, deflate, zstd")]


def bomb_of_zstd(size: int) -> bytes:
    """Return what unpacks to a length that it does not state, from four bytes for each 128 KiB."""
    packing = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packing.compress(b"a" * size) + packing.flush()


@pytest.mark.parametrize(
    ("coding", "bomb", "limit", "refused"),
    [
        ("gzip", gzip.compress(b"a" * 256 * 1024 * 1024), LIMIT, "is larger than 33554432 bytes once it is unpacked"),
        ("gzip", gzip.compress(b"a" * 4 * 1024 * 1024), LIMIT, f"unpacks to more than {MAX_RATIO} times its size"),
        ("deflate", zlib.compress(b"a" * 4 * 1024 * 1024), LIMIT, f"unpacks to more than {MAX_RATIO} times its size"),
        ("zstd", bomb_of_zstd(256 * 1024 * 1024), LIMIT, f"unpacks to more than {MAX_RATIO} times its size"),
        ("zstd", zstandard.compress(b"a" * 256 * 1024 * 1024), 1024**3, f"to more than {MAX_RATIO} times its size"),
    ],
    ids=["gzip by size", "gzip by ratio", "deflate", "zstd without a size", "zstd with a size"],
)
def test_a_bomb_is_refused_and_never_held(coding: str, bomb: bytes, limit: int, refused: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as error:
            unpack(bomb, coding, limit)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.value.message.endswith(refused)
    assert error.value.status in {400, 413}
    assert most < 48 * 1024 * 1024


def test_a_window_that_no_decoder_needs_to_have_is_refused() -> None:
    wide = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=25, enable_ldm=True, write_content_size=False)
    ).compressobj()
    packed = wide.compress(BIG) + wide.flush()
    with pytest.raises(InvalidRequest, match="not valid zstd"):
        unpack(packed, "zstd", LIMIT)
