"""Settings and logins in base64, as clusters, registries and headers keep them: `data: { password: a2Fy… }`.

Knows how the names of passwords and keys, and the beginnings of files with logins, look in base64 at each of its three
alignments; what they stand in is decoded once more where it is base64 twice. Other base64 is not decoded: most of it is
pictures. What the decoded text holds is judged by the name beside it.
"""

from __future__ import annotations

import base64
import binascii

import re2

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import NAMES_OF_PASSWORDS, is_something_else
from apps.guardrails.secret_formats.chosen_passwords import accept_given, accept_mixed
from apps.guardrails.secret_formats.entropy import has_letters_and_digits, is_random

_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# What a text has no other bytes than: all but the signs that control a terminal.
_OF_TEXTS = bytes(byte for byte in range(256) if byte in b"\n\r\t" or (byte >= 0x20 and byte != 0x7F))
# How far a run is read on either side of what was seen in it.
_FURTHEST, _LONGEST = 1024, 2048
_LEAST = 12
_NAMED = compile_re2(
    rf"(?i)(?:{NAMES_OF_PASSWORDS}|secret|token|[a-z0-9_-]key|credentials?)[a-z0-9_-]{{0,16}}[\"']?\s?(?:[:=]|=>)\s?"
    r"[\"']?([^\s\"',;]{6,400})|_json_key:|-----BEGIN [A-Z ]{0,20}PRIVATE KEY|:_(?:authToken|password)="
)
_CLUSTERS, _PADDING = compile_re2(r"(?i)\bkind[\"']?: ?[\"']?secret\b"), compile_re2(r"={0,2}")
_ENCODED = compile_re2(r"[:=]\s?[\"']?([0-9A-Za-z+/]{16}[0-9A-Za-z+/]*={0,2})")


def _words_in_base64(*words: str) -> str:
    """Return an expression for words as base64 writes them, whatever stands before them."""
    forms = set()
    for word in words:
        for before in range(3):
            encoded = base64.b64encode(b"\0" * before + word.encode())
            # The first characters also hold bits of what stands before, the last those of what stands behind.
            whole = len(encoded.rstrip(b"="))
            last = whole - 1 if (before + len(word)) % 3 else whole
            forms.add(encoded[(0, 2, 3)[before] : last].decode())
    return "|".join(sorted(forms))


def _run_around(candidate: CandidateMatch) -> CandidateMatch:
    before, after = candidate.before(_FURTHEST), candidate.after(_LONGEST)
    start = candidate.start - (len(before) - len(before.rstrip(_SIGNS)))
    return CandidateMatch(candidate.utf8, start, candidate.end + len(after) - len(after.lstrip(_SIGNS)))


def _decoded(run: bytes) -> bytes:
    """Return what base64 says where that is a text; without its last sign where that is half of a byte."""
    run = run.rstrip(b"=")
    run = run[: len(run) - (len(run) % 4 == 1)]
    try:
        said = base64.b64decode(run + b"=" * (-len(run) % 4), validate=True)
        said.decode()
    except (binascii.Error, ValueError):
        return b""
    return b"" if said.translate(None, _OF_TEXTS) else said


def _holds_login(said: bytes, *, again: bool = True) -> bool:
    """Tell whether a decoded text gives a value to the name of a password or a key."""
    for found in _NAMED.finditer(said):
        if found.group(1) is None:
            return True
        value = CandidateMatch(said, *found.span(1))
        text = value.text
        if accept_mixed(value) or (text.isalpha() and accept_given(value)):
            return True
        if has_letters_and_digits(text) and is_random(text, 3.0) and not is_something_else(text):
            return True
        if again and _holds_login(_decoded(text.encode()), again=False):
            return True
    return again and any(_holds_login(_decoded(one), again=False) for one in _ENCODED.findall(said))


def _first_run(candidate: CandidateMatch, words: re2._Regexp) -> bytes:
    """Return the run that a candidate is the first in; nothing for the next ones, so that a run is decoded once."""
    run = _run_around(candidate)
    again = words.search(run.utf8, run.start, candidate.start) is not None
    return b"" if again or run.end - run.start < _LEAST else run.utf8[run.start : run.end]


def _settings(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a run of base64 that holds a login."""
    run = _first_run(candidate, _ONCE)
    return _run_around(candidate) if run and _holds_login(_decoded(run)) else None


def _twice(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the same in base64 of base64."""
    run = _first_run(candidate, _TWICE)
    return _run_around(candidate) if run and _holds_login(_decoded(_decoded(run).strip())) else None


def _value(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the password of a cluster's secret, which stands in base64 beside its name."""
    run = _run_around(candidate)
    around = run.before(_FURTHEST) + run.after(_FURTHEST)
    whole = run.end - run.start + len(_PADDING.match(run.after(2)).group())
    if run.start != candidate.start or whole % 4 or not _CLUSTERS.search(around):
        return None
    said = _decoded(run.utf8[run.start : run.end]).strip()
    if not said.isascii() or b" " in said:
        return None
    return run if accept_given(CandidateMatch(said, 0, len(said))) else None


_SETTINGS = _words_in_base64(
    "password", "passwd", "_json_key:", "secret_key", "_secret=", "secret:", "apiVersion:", ":_authToken"
)
_SETTINGS_TWICE = _words_in_base64(*_words_in_base64("password", "_secret", "passwd").split("|"))
_ONCE, _TWICE = compile_re2(_SETTINGS), compile_re2(_SETTINGS_TWICE)

PATTERNS = (
    CandidatePattern("encoded_settings", "SECRET", _SETTINGS, _settings, wide_context=True),
    CandidatePattern("encoded_settings", "SECRET", _SETTINGS_TWICE, _twice, wide_context=True),
    CandidatePattern(
        "encoded_password",
        "PASSWORD",
        rf"(?i)(?:^|[\s\"'{{])[a-z0-9_.-]{{0,40}}(?:{NAMES_OF_PASSWORDS}|secret|token|key)[a-z0-9_.-]{{0,12}}[\"']?: ?"
        r"[\"']?([0-9a-z+/]{8})",
        _value,
        gate=r"(?i)\bkind[\"']?: ?[\"']?secret\b",
        wide_context=True,
    ),
)
