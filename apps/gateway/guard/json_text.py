"""JSON as text: write a JSON value as `name: value` lines for scanning, and map redactions of it back to the value.

A model reads names and values together, without the marks of JSON and its escapes: so do the scanners. Pure.
"""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from apps.kernel.json_bounds import Bounds, decode_text_within

_LETTERS = re.compile(r"[A-Za-z0-9+/_-]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{200,}={0,2}")
# Bounds of JSON within a text, as of a request.
_BOUNDS = Bounds(values=200_000, depth=128, name=64 * 1024, digits=64 * 1024)
# Characters of base64 that are looked at to tell whether it is a text.
_HEAD = 1024
_STEP = 256 * 1024


# The JSON value that a masked part is: a whole string, a whole number, or only a part of a text.
Shape = Literal["string", "number", "text"]


class Redaction(NamedTuple):
    """A part of a text, `text[start:end]`, never empty, and what takes its place.

    `label` is that of the numbered placeholder that is written instead where the value comes back in the answer; None
    where it does not.
    """

    start: int
    end: int
    replacement: str
    label: str | None = None


# Returns the placeholder to write for a value.
WritePlaceholder = Callable[[Redaction, str, Shape], str]


def write_fixed(redaction: Redaction, _value: str, _shape: Shape) -> str:
    """Return the placeholder of a value that does not come back."""
    return redaction.replacement


class EmbeddedFile(NamedTuple):
    """A file within a JSON value: a data URL, or base64 with the media type beside it."""

    media_type: str
    data: str


class _Leaf(NamedTuple):
    """The place of a name, a string or a number of the value in the text."""

    start: int
    end: int
    container: Any
    key: Any
    is_name: bool


def apply_redactions(text: str, redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> str:
    """Return the text with the redactions applied, from left to right, each place once.

    A number of JSON within the text becomes a string, with the quotes that the JSON around it has.
    """
    pieces, at = [], 0
    for redaction in redactions:
        start, end = redaction.start, redaction.end
        quote, shape = _read_shape(text, start, end)
        pieces += [text[at:start], quote, write(redaction, text[start:end], shape), quote]
        at = end
    return "".join([*pieces, text[at:]])


class JsonText:
    """A JSON value as text. `strings` are its strings, `embedded_files` the files within it, no part of the text.

    Members of the names in `excluded_names` are left out.
    """

    def __init__(self, value: Any, *, excluded_names: Collection[str] = ()) -> None:
        self._root = [value]
        self._pieces: list[str] = []
        self._length = 0
        self._leaves: list[_Leaf] = []
        self.strings: list[str] = []
        self.embedded_files: list[EmbeddedFile] = []
        pending: list[tuple[Any, Any]] = [(self._root, 0)]
        while pending:
            container, key = pending.pop()
            if isinstance(container, dict):
                self._leaf(container, key, key, is_name=True)
                self._add(": ")
            inner = container[key]
            if isinstance(inner, dict):
                inside = self._without_file(inner)
                pending.extend((inner, name) for name in reversed(inside) if name not in excluded_names)
            elif isinstance(inner, list):
                pending.extend((inner, index) for index in reversed(range(len(inner))))
            elif isinstance(inner, str):
                self.strings.append(inner)
                if not self._is_file(inner):
                    self._leaf(container, key, inner)
            elif isinstance(inner, int | float) and not isinstance(inner, bool):
                self._leaf(container, key, str(inner))
            self._add("\n")
        self.text = "".join(self._pieces)
        # Names, strings and numbers of the value.
        self.leaf_count = len(self._leaves)

    def parts_of(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return where the strings are that a stretch of the text touches; names and numbers where it touches none."""
        first = bisect_right(self._leaves, start, key=lambda leaf: leaf.end)
        last = bisect_left(self._leaves, end, key=lambda leaf: leaf.start)
        touched = self._leaves[first:last]
        strings = [leaf for leaf in touched if not leaf.is_name and isinstance(leaf.container[leaf.key], str)]
        return [(leaf.start, leaf.end) for leaf in strings or touched]

    def redact(self, redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> Any:
        """Change the value itself where the text is cut, and return it; a number that is cut becomes a string."""
        wanted = list(redactions)
        names: list[tuple[_Leaf, str]] = []
        at = 0
        for leaf in self._leaves:
            while at < len(wanted) and wanted[at].end <= leaf.start:
                at += 1
            within = _within(leaf, wanted, at)
            if not within:
                continue
            if leaf.is_name:
                names.append((leaf, apply_redactions(leaf.key, within, write)))
                continue
            old = leaf.container[leaf.key]
            if isinstance(old, str) and (within[0].start, within[0].end) != (0, len(old)):
                leaf.container[leaf.key] = apply_redactions(old, within, write)
            else:
                shape: Shape = "string" if isinstance(old, str) else "number"
                leaf.container[leaf.key] = write(within[0], str(old), shape)
        for leaf, name in names:
            _rename(leaf.container, leaf.key, name)
        return self._root[0]

    def _leaf(self, container: Any, key: Any, text: str, *, is_name: bool = False) -> None:
        start = self._length
        self._add(text)
        self._leaves.append(_Leaf(start, self._length, container, key, is_name))

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)

    def _without_file(self, value: dict[str, Any]) -> list[str]:
        """Return an object's names, without that of a file's bytes, which is put aside."""
        media_type, data = value.get("media_type"), value.get("data")
        if isinstance(media_type, str) and isinstance(data, str) and value.get("type") == "base64":
            self.strings.append(data)
            self.embedded_files.append(EmbeddedFile(media_type, data))
            return [name for name in value if name != "data"]
        return list(value)

    def _is_file(self, text: str) -> bool:
        """Return whether a string is no text: a data URL, which is put aside, or encrypted bytes."""
        if text[:5].lower() == "data:" and "," in text:
            self.embedded_files.append(EmbeddedFile("", text))
            return True
        return len(text) >= 200 and _is_base64(text) and not _is_text(text)


def encode_json(value: Any) -> str:
    """Return a JSON value as JSON."""
    return msgspec.json.encode(value).decode()


def iterate_strings(value: Any, excluded_names: Collection[str] = ()) -> Iterator[str]:
    """Yield the strings of a JSON value, those of members of the names in `excluded_names` aside."""
    pending = [value]
    while pending:
        inner = pending.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, dict):
            pending.extend(one for name, one in inner.items() if name not in excluded_names)
        elif isinstance(inner, list):
            pending.extend(inner)


def parse_json_text(text: str) -> Any:
    """Return the object or array that a text is as JSON; None for any other text. Raises OutOfBounds."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return decode_text_within(text, _BOUNDS)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


# The text before and after a number that is a value of JSON within a text: the quote of its name, perhaps escaped, or
# the numbers of its list.
_DIGITS: Final = re.compile(r"(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
_BEFORE_NUMBER: Final = re.compile(r'(?:(\\*")\s*:\s*|\[\s*(?:-?\d[\d.]*\s*,\s*)*)\Z', re.ASCII)
_AFTER_NUMBER: Final = re.compile(r"[ \t]*(?:[,}\]\r\n]|\\+[rn]|\Z)")
_QUOTE_BEFORE: Final = re.compile(r'\\*"\Z')
_LOOK_BACK: Final = 200


def _read_shape(text: str, start: int, end: int) -> tuple[str, Shape]:
    """Return the JSON value that a part of a text is, and the quotes that its placeholder needs to be one."""
    before = text[max(0, start - _LOOK_BACK) : start]
    if before.endswith('"'):
        quote = _QUOTE_BEFORE.search(before)
        return "", "string" if quote is not None and text.startswith(quote[0], end) else "text"
    if not _DIGITS.fullmatch(text, start, end) or _AFTER_NUMBER.match(text, end) is None:
        return "", "text"
    found = _BEFORE_NUMBER.search(before)
    if found is None or (found[1] is None and '\\"' in before):
        return "", "text"
    return found[1] or '"', "number"


def _within(leaf: _Leaf, wanted: list[Redaction], at: int) -> list[Redaction]:
    """Return the parts of the cuts, from one on, that fall into a leaf."""
    found = []
    while at < len(wanted) and wanted[at].start < leaf.end:
        start, end = wanted[at].start, wanted[at].end
        start, end = max(start, leaf.start) - leaf.start, min(end, leaf.end) - leaf.start
        found.append(wanted[at]._replace(start=start, end=end))
        at += 1
    return found


def _is_base64(text: str) -> bool:
    """Return whether a string is one run of base64, looked through in steps: other threads go on in between."""
    last = max(len(text) - _STEP, 0)
    return (
        text.isascii()
        and all(_LETTERS.fullmatch(text, start, min(start + _STEP, last)) for start in range(0, last, _STEP))
        and _BASE64.fullmatch(text, last) is not None
    )


def _is_text(base64: str) -> bool:
    head = base64[:_HEAD].rstrip("=")
    try:
        decoded = b64decode(head[: len(head) // 4 * 4].replace("-", "+").replace("_", "/"))
    except ValueError:
        return True
    # The head may end within a character.
    return "\N{REPLACEMENT CHARACTER}" not in decoded.decode("utf-8", "replace")[:-1]


def _rename(value: dict[str, Any], name: str, new: str) -> None:
    """Rename a member where it stands; never onto another."""
    taken, number = new, 1
    while taken in value and taken != name:
        number += 1
        taken = f"{new} {number}"
    members = [(taken if one == name else one, inner) for one, inner in value.items()]
    value.clear()
    value.update(members)
