"""Decoding (deobfuscation) of text: base64 and its like, Morse, ciphers, leetspeak, disguised words, fragments.

A model reads these encodings. Bounded: a run is decoded once, a text turned in a few ways, and decoded text at most
once again; so all decoded text is at most a few times as long as the text. Where there are very many runs, the later
ones are read as one. A text without anything to decode costs a few searches.
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

from apps.guardrails.regex.re2_patterns import RARELY, STATEFUL, PatternFilter, compile_re2
from apps.guardrails.text.normalization import TAG_CHARACTERS
from apps.guardrails.text.obfuscation import (
    CIPHERS,
    decipher,
    find_obfuscations,
    from_morse,
    join_spaced_letters,
    undo_leetspeak,
)
from apps.guardrails.text.rewriting import Origin, rewrite
from apps.guardrails.text.scanned_text import ScannedText
from apps.guardrails.text.word_disguises import DISGUISE_NAMES, undo

_DEEPEST = 2
_MAX_PIECES_LENGTH = 3000
# Runs of one text that are read separately; the separator of those that are read together.
_MAX_RUNS, _BETWEEN = 64, "\n.\n"
# Budget for reading base64 without a result again from its later lines: a multiple of the text; then bytes at each
# line.
_READ_AGAIN, _MAX_BYTES_AGAIN = 16, 2048
# Words of so long a text are turned around; in longer ones some of them make an order by chance.
_MAX_TURNED = 500
# Maximum transformations of a whole text by depth: of the text, and of decoded text.
_MAX_TURNS = {1: 8, 2: 3}


class DecodedText(msgspec.Struct, frozen=True):
    """Decoded text of a part of a text; `raw[start:end]` is its source.

    Where it is known more closely, `origin` leads from a part of `text.raw` to the part of `raw` that it was made of.
    """

    encoding: str
    text: ScannedText
    start: int
    end: int
    origin: Origin | None = None

    def origin_of(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of `raw` that says what `text.raw[start:end]` does; all that was decoded if none is known."""
        return (self.start, self.end) if self.origin is None else self.origin(start, end)


_DOT_OR_DASH = r"[.\x{b7}\x{2022}\x{2212}\x{2013}\x{2014}_-]"
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
    ("base32", r"\b[A-Z2-7]{24,}={0,6}"),
    ("ascii85", r"<~[!-uz\s]{20,}~>"),
    ("base85", r"(?i)\bbase ?-?85\b[^\n]{0,40}[:\s][!-~]{20,}"),
    ("selectors", r"(?:[\x{FE00}-\x{FE0F}\x{E0100}-\x{E01EF}]){8,}"),
    ("morse", rf"(?:{_DOT_OR_DASH}{{1,5}}[ /|\n]{{1,3}}){{12,}}{_DOT_OR_DASH}{{1,5}}"),
)
_RUNS = [compile_re2(pattern, STATEFUL if name == "base64" else RARELY) for name, pattern in _ENCODINGS]
_FILTER = PatternFilter([pattern for _, pattern in _ENCODINGS], STATEFUL)
_BASE64_RUN = re.compile(rb"[A-Za-z0-9+/_-]+(?:\r?\n[A-Za-z0-9+/_-]{40,})*(?:\r?\n[A-Za-z0-9+/_-]{4,}(?==))?={0,2}")
_CONTROLS = bytes({*range(0x20), 0x7F} - {*b"\t\r\n"})
_STANDARD = bytes.maketrans(b"-_", b"+/")
_TAGS = str.maketrans(TAG_CHARACTERS)
# So many words in one that they are a sentence: names in programs are shorter. But for "A" and "I", a word has two
# letters: base64 is full of single ones.
_CAMEL_CASE = compile_re2(r"(?-i:(?:[AI]?[A-Z][a-z',.:;!?]{1,14}){8,})")
_WORD_BEGINS = compile_re2(r"(?-i:[a-z',.:;!?]([A-Z]))")
# Tag characters inside a word only part its letters.
_TAGS_IN_WORDS = compile_re2(r"[A-Za-z]([\x{E0000}-\x{E007F}]{1,3})[A-Za-z]")
_decoded_texts: weakref.WeakKeyDictionary[ScannedText, list[DecodedText]] = weakref.WeakKeyDictionary()


def find_decoded_texts(text: ScannedText) -> list[DecodedText]:
    """Return what `text` says when decoded, one view a run or way of turning; worked out once a text."""
    found = _decoded_texts.get(text)
    if found is None:
        # A view that held the text would keep it for ever: what a weak dictionary holds must not hold its key.
        itself: ScannedText = weakref.proxy(text)
        found = _decoded_texts[text] = list(_decode_recursively(itself, 1))
    return found


def _decode_recursively(text: ScannedText, depth: int) -> Iterator[DecodedText]:
    for view in (*_decoded(text), *islice(_deobfuscated(text), _MAX_TURNS[depth])):
        yield view
        if depth < _DEEPEST:
            for inner in _decode_recursively(view.text, depth + 1):
                source = view.origin_of(inner.start, inner.end) if inner.end > inner.start else (view.start, view.end)
                yield DecodedText(f"{view.encoding}:{inner.encoding}", inner.text, *source)


def _decoded(text: ScannedText) -> Iterator[DecodedText]:
    """Yield what the first runs say one by one, and the rest of each encoding as one."""
    runs = _find_runs(text.utf8)
    for run in islice(runs, _MAX_RUNS):
        yield DecodedText(run.encoding, ScannedText(run.decoded), *text.byte_origin(run.start, run.end))
    rest: defaultdict[str, list[_EncodedRun]] = defaultdict(list)
    for run in runs:
        rest[run.encoding].append(run)
    for encoding, later in rest.items():
        said = _BETWEEN.join(run.decoded for run in later)
        yield DecodedText(encoding, ScannedText(said), *text.byte_origin(later[0].start, later[-1].end))


class _EncodedRun(NamedTuple):
    """Decoded bytes of a text."""

    encoding: str
    decoded: str
    start: int
    end: int


def _find_runs(utf8: bytes) -> Iterator[_EncodedRun]:
    done = tried = 0
    spare = _READ_AGAIN * len(utf8)
    runs = (
        (*run.span(), _ENCODINGS[index][0])
        for index, windows in _FILTER.windows(utf8).items()
        for window in windows
        for run in _RUNS[index].finditer(utf8, *window)
    )
    for start, end, name in sorted(runs):
        if start < done:
            continue
        if name == "base64":
            start += 0 if utf8[start : start + 1].isalnum() else 1
            # Base64 without a result as a whole may have one from a later line on: all the rest, within the budget.
            is_whole = start >= tried or spare > 0
            run = _BASE64_RUN.match(utf8, start, len(utf8) if is_whole else start + _MAX_BYTES_AGAIN)
            end = run.end() if run else end
            spare -= end - start if start < tried else 0
            tried = max(tried, end)
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


def _from_selectors(run: bytes) -> bytes:
    """Return the bytes that variation selectors number, as they are hidden behind a letter or an emoji."""
    codes = (ord(one) for one in run.decode())
    return bytes(code - 0xFE00 if code < 0xFE10 else code - 0xE0100 + 16 for code in codes)


def _from_base85(run: bytes) -> bytes:
    return base64.b85decode(run.split()[-1].rpartition(b":")[2])


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
    "base32": lambda run: base64.b32decode((letters := run.rstrip(b"=")) + b"=" * (-len(letters) % 8)),
    "ascii85": lambda run: base64.a85decode(run, adobe=True),
    "base85": _from_base85,
    "selectors": _from_selectors,
    "morse": lambda run: from_morse(run.decode()).encode(),
}


def _deobfuscated(text: ScannedText) -> Iterator[DecodedText]:
    """Yield the whole text transformed in each way of which it shows a trace, and its words written in pieces."""
    traces = find_obfuscations(text.normalized_utf8)
    raw, size = text.raw, len(text.raw)
    normalized = ScannedText(text.normalized)
    if "pieces" in traces:
        yield from _join_fragments(raw[:_MAX_PIECES_LENGTH])
    if not raw.isascii() and _TAGS_IN_WORDS.search(text.utf8) is not None:
        untagged, way_back = rewrite(text, _TAGS_IN_WORDS, lambda _: b"")
        yield DecodedText("tags", ScannedText(untagged), 0, size, way_back)
    if _CAMEL_CASE.search(text.utf8) is not None:
        parted, way_back = rewrite(text, _WORD_BEGINS, lambda begin: b" " + begin[1])
        yield DecodedText("camel_case", ScannedText(parted), 0, size, way_back)
    for disguise in sorted(traces & DISGUISE_NAMES):
        turned, back = undo(disguise, normalized)
        yield DecodedText(disguise, ScannedText(turned), 0, size, _through(text, back))
    if "rot13" in traces:
        yield DecodedText("rot13", ScannedText(codecs.encode(text.normalized, "rot13")), 0, size, _through(text))
    if "reversed" in traces:
        yield DecodedText("reversed", ScannedText(text.normalized[::-1]), 0, size, _mirrored(text))
    if "leetspeak" in traces:
        for one in "il":
            plain = undo_leetspeak(text.normalized, one)
            yield DecodedText("leetspeak", ScannedText(plain), 0, size, _through(text))
    if "spaced" in traces:
        yield DecodedText("spaced", ScannedText(join_spaced_letters(raw)), 0, size)
    for cipher in sorted(traces & CIPHERS.keys()):
        if cipher == "last_word_first" and size > _MAX_TURNED:
            continue
        # Letters and words of most stay where they are.
        origin = None if cipher == "last_word_first" else _through(text)
        yield DecodedText(cipher, ScannedText(decipher(cipher, text.normalized)), 0, size, origin)


def _through(text: ScannedText, back: Origin = lambda start, end: (start, end)) -> Origin:
    """Return the mapping from a transformed normalized text back to `raw`, without holding the text."""
    return lambda start, end: text.origin(*back(start, end))


def _mirrored(text: ScannedText) -> Origin:
    size = len(text.normalized)
    return _through(text, lambda start, end: (size - end, size - start))


_PIECE = re.compile(
    r"[\"'“`]([^\"'”`\n]{1,48})[\"'”`]|\b(?:part|piece|teil|partie|parte) ?\d ?[:=] ?([^.;\n]{1,48})", re.IGNORECASE
)
# Maximum characters between two pieces of one order, and bounds of their number.
_APART = 40
_MIN_PIECES, _MAX_PIECES = 2, 12


def _join_fragments(raw: str) -> Iterator[DecodedText]:
    """Yield quoted or numbered pieces that follow one another put together, as they stand and with spaces between."""
    groups: list[list[re.Match[str]]] = []
    for piece in _PIECE.finditer(raw):
        if groups and piece.start() - groups[-1][-1].end() <= _APART:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    for group in groups:
        if _MIN_PIECES <= len(group) <= _MAX_PIECES:
            pieces = [piece[1] or piece[2] for piece in group]
            for words in ("".join(pieces), " ".join(piece.strip() for piece in pieces)):
                yield DecodedText("pieces", ScannedText(words), group[0].start(), group[-1].end())
