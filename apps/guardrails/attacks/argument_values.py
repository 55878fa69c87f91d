"""Values in arguments of tool calls that say where an effect goes, and the search for them in a conversation.

Kinds: `email`, `host` (of a URL), `account` (IBAN and other account numbers), `phone`, `amount`, `path` (absolute paths
of files) and `recipient` (a name below `to`, `user`, `channel` and their like). Any case, grouped digits and thousands
separators are the same value. Pure; work is bounded by the constants below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

# Values of one answer that are looked for, and characters of arguments that are read for them.
MAX_VALUES: Final = 64
MAX_ARGUMENT_CHARACTERS: Final = 100_000
_MAX_LEAVES: Final = 2_000
# Amounts have a dozen notations each.
_MAX_AMOUNTS: Final = 8
_MAX_NAME, _MAX_PATH, _MAX_RECIPIENT, _MAX_SHOWN_PATH = 40, 500, 100, 80
# Occurrences of a value within longer words, after which it counts as absent.
_MAX_NEAR: Final = 1_000


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


# Words of an argument's name that tell the kind of its value.
_RECIPIENTS: Final = word_set(
    "to cc bcc recipient recipients receiver receivers payee beneficiary participant participants attendee attendees "
    "invitee invitees assignee user users username member members channel channels contact contacts"
)
# Numbers of rows: an agent has them from tools only.
_IDS: Final = frozenset({"id", "ids"})
_AMOUNTS: Final = word_set("amount price sum total budget fee cost payment")
_PHONES: Final = word_set("phone telephone tel mobile fax whatsapp sms")
_ACCOUNTS: Final = word_set("iban account wallet")
_HOSTS: Final = word_set("url urls uri link links href website webpage site domain host hostname webhook endpoint")

_EMAIL: Final = re.compile(r"[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_URL: Final = re.compile(r"(?:[a-z][a-z0-9+]{1,14}://(?:[^\s/@\"'<>]{0,200}@)?|\bwww\.)([\w-]+(?:\.[\w-]+){0,8})", re.I)
_HOST: Final = re.compile(r"(?:www\.)?([\w-]{1,63}(?:\.[\w-]{1,63}){0,7}\.[a-z]{2,24})(?:[:/?#].*)?", re.I | re.S)
_ACCOUNT: Final = re.compile(r"\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?\b")
_PHONE: Final = re.compile(r"\+\d(?:[ ()./-]{0,2}\d){7,14}")
_FILE: Final = re.compile(r"(?:~?/|[A-Za-z]:[\\/])[^\s\x00]+")
_NUMBER: Final = re.compile(r"[^\d-]{0,4}(\d{1,12}|\d{1,3}(?:,\d{3}){1,3})(?:\.(\d{1,8}))?[^\d]{0,5}")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][\w-]{0,39}", re.ASCII)
_NAME_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNICODE_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_MIN_ACCOUNT_DIGITS, _MIN_PHONE_DIGITS, _PHONE_TAIL = 8, 7, 9
# Second-level names below which countries register names of others: `co.uk`.
_SHARED_SUFFIXES: Final = frozenset({"ac", "co", "com", "edu", "gov", "net", "org"})

_DIGITS: Final = frozenset(b"0123456789")
_WORD: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz_") | _DIGITS | frozenset(range(0x80, 0x100))
_SEPARATORS: Final = b" \t\r\n-./()'"


class _Edges(NamedTuple):
    """Bytes that make a longer word of a value that they touch; `joining` ones where another of `inner` follows."""

    before: frozenset[int]
    after: frozenset[int]
    joining_before: bytes = b""
    joining_after: bytes = b""
    inner: frozenset[int] = _WORD


_WHOLE_WORD: Final = _Edges(_WORD, _WORD)
_WHOLE_NUMBER: Final = _Edges(_DIGITS, _DIGITS, b".,'", b".,'", _DIGITS)
_EDGES: Final = {
    "email": _Edges(_WORD | frozenset(b".%+-"), _WORD | frozenset(b"-"), b"", b"."),
    "host": _Edges(_WORD | frozenset(b"-"), _WORD | frozenset(b"-"), b"", b"."),
    "path": _Edges(_WORD | frozenset(b"-./~\\"), _WORD | frozenset(b"-"), b"", b"."),
    "recipient": _WHOLE_WORD,
    "amount": _WHOLE_NUMBER,
}
# Kinds that are searched for without the separators between their digits.
_COMPACT: Final = frozenset({"account", "phone"})


class ArgumentValue(NamedTuple):
    """A value, the path of its argument, and its notations; `known_by` are texts that make it known as well: a host's
    domain, a file's folder."""

    argument: str
    kind: str
    text: str
    notations: tuple[bytes, ...]
    known_by: tuple[bytes, ...] = ()


class SearchedText:
    """A text in the forms that values are searched in."""

    def __init__(self, text: str) -> None:
        self._folded = _folded(text)

    @cached_property
    def _compact(self) -> bytes:
        return self._folded.translate(None, _SEPARATORS)

    def has(self, value: ArgumentValue) -> bool:
        """Return whether the text contains the value, in one of its notations."""
        if value.kind in _COMPACT:
            return any(one in self._compact for one in value.notations)
        return any(_has_whole(self._folded, one, _EDGES[value.kind]) for one in value.notations)

    def makes_known(self, value: ArgumentValue) -> bool:
        """Return whether the text contains the value, or something that makes it known."""
        return self.has(value) or any(_has_whole(self._folded, one, _EDGES[value.kind]) for one in value.known_by)

    @property
    def has_removed_values(self) -> bool:
        """Whether guardrails replaced values in the text by words that do not tell which they were."""
        return b"_redacted]" in self._folded


def find_values(arguments: Any) -> Iterator[ArgumentValue]:
    """Yield the values in a call's arguments, each kind of value once; at most `MAX_VALUES`."""
    left, amounts = MAX_ARGUMENT_CHARACTERS, 0
    seen: set[tuple[str, tuple[bytes, ...]]] = set()
    for path, name, leaf in islice(_leaves(arguments), _MAX_LEAVES):
        text = str(leaf)
        left -= len(text)
        if left < 0:
            return
        for kind, written, notations, known_by in _values_in(text, frozenset(words_of(name))):
            if (kind, notations) in seen or (kind == "amount" and amounts == _MAX_AMOUNTS):
                continue
            seen.add((kind, notations))
            amounts += kind == "amount"
            yield ArgumentValue(path, kind, written, notations, known_by)
            if len(seen) == MAX_VALUES:
                return


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case, in small letters."""
    return [word.lower() for word in _NAME_WORD.findall(name[: 4 * _MAX_NAME])]


def _leaves(value: Any) -> Iterator[tuple[str, str, str | int | float]]:
    """Yield the path, the name and the value of each string and number; names that a path cannot show are `*`."""
    pending: list[tuple[str, str, Any]] = [("", "", value)]
    while pending:
        path, name, inner = pending.pop()
        if isinstance(inner, dict):
            for key in reversed(list(inner)):
                shown = key if _IDENTIFIER.fullmatch(key) else "*"
                pending.append((_joined(path, f".{shown}" if path else shown), key, inner[key]))
        elif isinstance(inner, list):
            pending.extend((_joined(path, f"[{at}]"), name, inner[at]) for at in reversed(range(len(inner))))
        elif isinstance(inner, str | int | float) and not isinstance(inner, bool):
            yield path, name, inner


def _joined(path: str, step: str) -> str:
    """Return a path with one more step; a long one stays as it is."""
    return path + step if len(path) + len(step) <= _MAX_SHOWN_PATH else path


_Found = tuple[str, str, tuple[bytes, ...], tuple[bytes, ...]]


def _values_in(text: str, name: frozenset[str]) -> Iterator[_Found]:
    whole = text.strip()
    found = list(_values_by_form(text)) or list(islice(_values_by_name(whole, name), 1))
    yield from found
    if name & _AMOUNTS and (match := _NUMBER.fullmatch(whole[:_MAX_NAME])):
        yield "amount", whole, _notations_of(match[1].replace(",", ""), (match[2] or "").rstrip("0")), ()
    if len(whole) <= _MAX_PATH and _FILE.fullmatch(whole):
        yield "path", whole, (_folded(whole),), tuple(_folders_of(whole))
    elif name & _RECIPIENTS and not (name & _IDS or found) and 0 < len(whole) <= _MAX_RECIPIENT:
        yield "recipient", whole, (_folded(whole),), ()


def _values_by_name(whole: str, name: frozenset[str]) -> Iterator[_Found]:
    if name & _HOSTS and (match := _HOST.fullmatch(whole[:_MAX_PATH])):
        yield _host(match[1])
    digits = "".join(character for character in whole if character in "0123456789")
    if name & _ACCOUNTS and len(whole) <= _MAX_NAME and len(digits) >= _MIN_ACCOUNT_DIGITS:
        yield "account", whole, (_folded(whole).translate(None, _SEPARATORS),), ()
    if name & _PHONES and len(whole) <= _MAX_NAME and len(digits) >= _MIN_PHONE_DIGITS:
        yield _phone(whole, digits)


def _values_by_form(text: str) -> Iterator[_Found]:
    for match in _EMAIL.finditer(text):
        yield "email", match[0], (_folded(match[0]),), ()
    for match in _URL.finditer(text):
        yield _host(match[1])
    for match in _ACCOUNT.finditer(text):
        compact = _folded(match[0]).translate(None, _SEPARATORS)
        if sum(byte in _DIGITS for byte in compact) >= _MIN_ACCOUNT_DIGITS:
            yield "account", match[0], (compact,), ()
    for match in _PHONE.finditer(text):
        yield _phone(match[0], "".join(character for character in match[0] if character.isdigit()))


def _host(host: str) -> _Found:
    name = host.lower().removeprefix("www.").rstrip(".")
    return "host", name, (_folded(name),), tuple(_domains_of(name))


def _domains_of(host: str) -> Iterator[bytes]:
    """Yield the domains that a host is below, down to the registered name; none above an address of numbers."""
    labels = host.split(".")
    for first in range(1, len(labels) - 1):
        rest = labels[first:]
        is_shared = len(rest) == 2 and len(rest[1]) == 2 and rest[0] in _SHARED_SUFFIXES
        if not is_shared and not rest[-1].isdigit():
            yield _folded(".".join(rest))


def _phone(written: str, digits: str) -> _Found:
    """Return a telephone number; its last digits are the same with and without the country's code."""
    return "phone", written, (digits[-_PHONE_TAIL:].encode("utf-8", "replace"),), ()


def _notations_of(whole: str, fraction: str) -> tuple[bytes, ...]:
    """Return the notations of an amount: with and without thousands separators, with a decimal point or comma."""
    whole = whole.lstrip("0") or "0"
    grouped = f"{int(whole):,}"
    wholes = dict.fromkeys((whole, *(grouped.replace(",", mark) for mark in (",", ".", " ", "'"))))
    ends = [f"{mark}{one}" for one in dict.fromkeys((fraction, fraction.ljust(2, "0"))) if one for mark in ".,"]
    return tuple(f"{one}{end}".encode() for one in wholes for end in (ends if fraction else ["", ".0", *ends]))


def _folders_of(path: str) -> Iterator[bytes]:
    """Yield the folders that a file is in, but for the root and the folders in it."""
    parts = re.split(r"[\\/]", path)
    for end in range(3, len(parts)):
        yield _folded(path[: len("/".join(parts[:end]))])


def _folded(text: str) -> bytes:
    """Return a text as it is searched: without escapes of JSON and without case."""
    if "\\" in text:
        text = text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t").replace("\\/", "/")
        text = _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return text.casefold().encode("utf-8", "replace")


def _has_whole(text: bytes, value: bytes, edges: _Edges) -> bool:
    """Return whether a text contains a value, and not as a part of a longer word."""
    at = text.find(value) if value else -1
    for _ in range(_MAX_NEAR):
        if at < 0:
            return False
        if _is_whole(text, at, at + len(value), edges):
            return True
        at = text.find(value, at + 1)
    return False


def _is_whole(text: bytes, start: int, end: int, edges: _Edges) -> bool:
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if before and (
        before[-1] in edges.before
        or (before[-1] in edges.joining_before and len(before) == 2 and before[0] in edges.inner)
    ):
        return False
    return not after or not (
        after[0] in edges.after or (after[0] in edges.joining_after and len(after) == 2 and after[1] in edges.inner)
    )
