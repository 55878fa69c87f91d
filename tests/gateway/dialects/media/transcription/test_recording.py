"""Recordings of clients: their kind and length, told from hostile bytes within bounds."""

from __future__ import annotations

import pytest

from apps.gateway.dialects.media.transcription import client
from apps.gateway.dialects.media.transcription.client import MAX_SIZE, MIN_BYTES, read_recording
from apps.gateway.dialects.reading.fields import Malformed
from apps.kernel.errors import BodyTooLarge
from apps.sandbox.generated_media import recording as wav

FRAME = b"\xff\xfb\x90\x00" + b"\0" * 413  # MP3, 128 kbit/s, 44.1 kHz: 1,152 samples


def flac(seconds: int) -> bytes:
    """Return the head of a FLAC file of 16 kHz."""
    numbers = (16_000 << 44) | (15 << 36) | (seconds * 16_000)
    return b"fLaC" + b"\x80\0\0\x22" + b"\0" * 10 + numbers.to_bytes(8, "big") + b"\0" * 16 + b"\0" * 4_000 * seconds


@pytest.mark.parametrize(
    ("name", "data", "extension", "milliseconds"),
    [
        ("a.wav", wav("hello", 3.5), "wav", 3_500),
        ("a.bin", wav("hello", 1), "wav", 1_000),
        ("a.mp3", FRAME * 100, "mp3", 2_612),
        ("a.mpga", FRAME * 100, "mpga", 2_612),
        ("a.flac", flac(7), "flac", 7_000),
    ],
)
def test_the_head_tells_kind_and_length(name: str, data: bytes, extension: str, milliseconds: int) -> None:
    read = read_recording(name, data)
    assert (read.extension, read.milliseconds, read.max_milliseconds) == (extension, milliseconds, milliseconds)


def test_a_file_that_does_not_tell_is_as_long_as_it_can_be_at_most() -> None:
    webm = b"\x1aE\xdf\xa3" + b"\0" * 20 + b"webm" + b"\0" * 11_972
    read = read_recording("a.webm", webm)
    assert (read.extension, read.media_type) == ("webm", "audio/webm")
    assert (read.milliseconds, read.max_milliseconds) == (3_000, 16_000)


def test_a_head_is_believed_within_what_the_size_allows() -> None:
    long = wav("hello", 1)[:40] + (2**31).to_bytes(4, "little") + b"\0" * 7_500
    most = -(-len(long) * 1000 // MIN_BYTES)
    assert read_recording("a.wav", long).max_milliseconds == most
    short = wav("", 60)
    lie = short[:40] + (0).to_bytes(4, "little") + short[44:]
    assert read_recording("a.wav", lie).max_milliseconds >= 1


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.wav", b"", "must not be empty"),
        ("a.wav", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "must be audio, in one of the formats"),
        ("a.txt", b"hello", "must be audio, in one of the formats"),
        ("", b"hello", "must be audio, in one of the formats"),
    ],
)
def test_other_files_than_audio_are_refused(name: str, data: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words) as refused:
        read_recording(name, data)
    assert refused.value.at == "file"


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SIZE == 25 * 1024 * 1024
    monkeypatch.setattr(client, "MAX_SIZE", 1000)
    with pytest.raises(BodyTooLarge) as refused:
        read_recording("a.wav", wav("", 1))
    assert (refused.value.status, refused.value.param) == (413, "file")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfb" + b"\0" * 2_000_000,
        b"RIFF\0\0\0\0WAVE" + b"LIST\0\0\0\0" * 250_000,
        b"\0\0\0\x08ftyp" + b"\0\0\0\x08free" * 250_000,
        b"OggS" + b"\0" * 23 + (b"OggS" + b"\0" * 23) * 70_000,
        b"fLaC" + b"\x01\0\0\0" * 500_000,
    ],
    ids=["mp3", "wav", "mp4", "ogg", "flac"],
)
def test_a_file_of_very_many_pieces_is_read_so_often_and_no_more(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, files = client._BoundedFile, list[client._BoundedFile]()

    def bounded(content: bytes) -> client._BoundedFile:
        files.append(kind(content))
        return files[-1]

    with monkeypatch.context() as patch:
        patch.setattr(client, "_BoundedFile", bounded)
        read = read_recording("a.mp3", data)
    assert [file.reads <= 50_001 for file in files] == [True]
    assert read.max_milliseconds <= -(-len(data) * 1000 // MIN_BYTES)


@pytest.mark.parametrize("kept", [4, 12, 13, 30, 43])
def test_a_head_that_is_cut_is_no_head(kept: int) -> None:
    assert read_recording("a.wav", wav("hello", 1)[:kept]).max_milliseconds >= 1
