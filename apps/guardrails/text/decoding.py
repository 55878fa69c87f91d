"""What a text says once decoded: runs of base64 or hexadecimal, escapes, turned letters, leetspeak, words in pieces.

Knows encodings, and that a model reads them. Must never know what anybody looks for in what comes out.

Bounded: a run is decoded once, a text turned once a way, and what was decoded at most once more; so everything that
comes out is at most a few times as long as the text. Where there are very many runs, the later ones are read as one.
Two passes over a text tell that there is nothing to decode.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec
import re2

from apps.guardrails.regex.re2_patterns import compile_re2, re2_options
from apps.guardrails.text.normalization import TAG_CHARACTERS
from apps.guardrails.text.obfuscation import find_obfuscations, join_spaced_letters, undo_leetspeak
from apps.guardrails.text.scanned_text import ScannedText

_DEEPEST = 2
_LONGEST_PIECES = 3000
# Runs of one text that are read one by one; what parts those that are read together.
_MOST_RUNS, _BETWEEN = 64, "\n.\n"


class DecodedText(msgspec.Struct, frozen=True):
    """What part of a text says when decoded; `raw[start:end]` is what it was decoded from."""

    encoding: str
    text: ScannedText
    start: int
    end: int


# Only runs that can be text: in base64 of ASCII every fourth letter, in hexadecimal every second digit, is one of few.
_ENCODINGS = (
    ("base64", r"(?:^|[^A-Za-z0-9+/_])(?:[I-Za-f][A-Za-z0-9+/_-]{3}){5,}"),
    ("base64", r"[A-Za-z0-9+/]{48,}"),
    ("hex", r"(?:\b|\b0x)(?:[2-7][0-9A-Fa-f]){10,}\b"),
    ("hex", r"\b(?:(?:0x|\\x)?[2-7][0-9A-Fa-f][ ,:]{1,2}){9,}(?:0x|\\x)?[2-7][0-9A-Fa-f]\b"),
    ("escapes", r"(?:\\x[2-7][0-9A-Fa-f]|\\u00[2-7][0-9A-Fa-f]|\\u0[0-9A-Fa-f]{3}){5,}"),
    ("entities", r"(?:&#(?:x[0-9A-Fa-f]{2,5}|[0-9]{2,6});){4,}"),
    ("percent", r"[A-Za-z0-9_.~+-]{0,16}(?:%[2-7][0-9A-Fa-f][A-Za-z0-9_.~+-]{0,16}){3,}"),
    ("binary", r"\b(?:0[01]{7} ?){8,}\b"),
    ("tags", r"[\x{E0020}-\x{E007E}]{4,}"),
)
_RUNS = [compile_re2(pattern) for _, pattern in _ENCODINGS]
_GATE = re2.Set.SearchSet(re2_options())
for _, _pattern in _ENCODINGS:
    _GATE.Add(_pattern)
_GATE.Compile()
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]+(?:\r?\n[A-Za-z0-9+/_-]{40,})*(?:\r?\n[A-Za-z0-9+/_-]{4,}(?==))?={0,2}")
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\r\n"})
_STANDARD = bytes.maketrans(b"-_", b"+/")
_TAGS = str.maketrans(TAG_CHARACTERS)
_decoded_texts: weakref.WeakKeyDictionary[ScannedText, list[DecodedText]] = weakref.WeakKeyDictionary()


def find_decoded_texts(text: ScannedText) -> list[DecodedText]:
    """Return what `text` says when decoded, one view a run or way of turning; worked out once a text."""
    found = _decoded_texts.get(text)
    if found is None:
        found = _decoded_texts[text] = list(_decode_recursively(text, 1))
    return found


def _decode_recursively(text: ScannedText, depth: int) -> Iterator[DecodedText]:
    for view in (*_decoded(text), *_deobfuscated(text)):
        yield view
        if depth < _DEEPEST:
            for inner in _decode_recursively(view.text, depth + 1):
                yield DecodedText(f"{view.encoding}:{inner.encoding}", inner.text, view.start, view.end)


def _decoded(text: ScannedText) -> Iterator[DecodedText]:
    """Yield what the first runs say one by one, and the rest of each encoding as one."""
    runs = _find_runs(text.utf8)
    for run in islice(runs, _MOST_RUNS):
        yield DecodedText(run.encoding, ScannedText(run.decoded), *text.byte_origin(run.start, run.end))
    rest: defaultdict[str, list[_EncodedRun]] = defaultdict(list)
    for run in runs:
        rest[run.encoding].append(run)
    for encoding, later in rest.items():
        said = _BETWEEN.join(run.decoded for run in later)
        yield DecodedText(encoding, ScannedText(said), *text.byte_origin(later[0].start, later[-1].end))


class _EncodedRun(NamedTuple):
    """What bytes of a text say when decoded."""

    encoding: str
    decoded: str
    start: int
    end: int


def _find_runs(utf8: bytes) -> Iterator[_EncodedRun]:
    done = 0
    runs = (
        (*run.span(), _ENCODINGS[index][0]) for index in _GATE.Match(utf8) or () for run in _RUNS[index].finditer(utf8)
    )
    for start, end, name in sorted(runs):
        if start < done:
            continue
        if name == "base64":
            start += 0 if utf8[start : start + 1].isalnum() else 1
            run = _BASE64_RUN.match(utf8, start)
            end = run.end() if run else end
        said = _decode(_DECODERS[name], utf8[start:end])
        if said is not None:
            done = end
            yield _EncodedRun(name, said, start, end)


def _decode(decoder: Callable[[bytes], bytes], run: bytes) -> str | None:
    """Return what a run says; None if it says nothing: too many of its bytes are no letters."""
    try:
        data = decoder(run)
    except (ValueError, binascii.Error):
        return None
    if (len(data) - len(data.translate(None, _CONTROLS))) * 20 > len(data):
        return None
    said = data.decode("utf-8", "ignore")
    lost = len(data) - len(said.encode("utf-8", "surrogatepass"))
    return said if lost * 20 <= len(data) else None


def _from_base64(run: bytes) -> bytes:
    letters = run.translate(_STANDARD, b"\r\n=")
    letters = letters[: len(letters) - (len(letters) % 4 == 1)]
    return base64.b64decode(letters + b"=" * (-len(letters) % 4))


def _from_escapes(run: bytes) -> bytes:
    return codecs.decode(run, "unicode_escape").encode("utf-8", "surrogatepass")


def _from_binary(run: bytes) -> bytes:
    return bytes(int(octet, 2) for octet in re.findall(rb"[01]{8}", run))


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "base64": _from_base64,
    "hex": lambda run: bytes.fromhex(re.sub(rb"0x|\\x|[^0-9A-Fa-f]", b"", run).decode()),
    "escapes": _from_escapes,
    "entities": lambda run: html.unescape(run.decode()).encode("utf-8", "surrogatepass"),
    # Such a run holds no other backslash, and Python reads these a hundred times faster.
    "percent": lambda run: codecs.decode(run.replace(b"+", b" ").replace(b"%", b"\\x"), "unicode_escape").encode(
        "latin-1"
    ),
    "binary": _from_binary,
    "tags": lambda run: run.decode().translate(_TAGS).encode(),
}


def _deobfuscated(text: ScannedText) -> Iterator[DecodedText]:
    """Yield the whole text turned in each way of which it shows a trace, and the words that stand in it in pieces."""
    traces = find_obfuscations(text.normalized_utf8)
    raw, size = text.raw, len(text.raw)
    if "rot13" in traces:
        yield DecodedText("rot13", ScannedText(codecs.encode(text.normalized, "rot13")), 0, size)
    if "reversed" in traces:
        yield DecodedText("reversed", ScannedText(text.normalized[::-1]), 0, size)
    if "leetspeak" in traces:
        for one in "il":
            yield DecodedText("leetspeak", ScannedText(undo_leetspeak(text.normalized, one)), 0, size)
    if "spaced" in traces:
        yield DecodedText("spaced", ScannedText(join_spaced_letters(raw)), 0, size)
    if "pieces" in traces:
        yield from _join_fragments(raw[:_LONGEST_PIECES])


_PIECE = re.compile(
    r"[\"'“`]([^\"'”`\n]{1,48})[\"'”`]|\b(?:part|piece|teil|partie|parte) ?\d ?[:=] ?([^.;\n]{1,48})", re.IGNORECASE
)
# What may lie between two pieces of one order, and how few and many of them there are.
_APART = 40
_PIECES = (2, 12)


def _join_fragments(raw: str) -> Iterator[DecodedText]:
    """Yield quoted or numbered pieces that follow one another put together, as they stand and with spaces between."""
    for group in _fragment_groups(raw):
        pieces = [piece[1] or piece[2] for piece in group]
        for words in ("".join(pieces), " ".join(piece.strip() for piece in pieces)):
            yield DecodedText("pieces", ScannedText(words), group[0].start(), group[-1].end())


def _fragment_groups(raw: str) -> Iterator[list[re.Match[str]]]:
    group: list[re.Match[str]] = []
    for piece in _PIECE.finditer(raw):
        if group and piece.start() - group[-1].end() > _APART:
            if _PIECES[0] <= len(group) <= _PIECES[1]:
                yield group
            group = []
        group.append(piece)
    if _PIECES[0] <= len(group) <= _PIECES[1]:
        yield group
