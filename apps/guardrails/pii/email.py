"""E-mail addresses.

The form is RFC 5321's: at most 64 characters before the @, 254 in all. Addresses at example.com and the like count, as
their form is that of others; addresses at reserved names (RFC 2606 and 6761: .test, .invalid, .localhost, .local) do
not.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2

_LETTER, _LETTER_OF_ASCII = r"\p{Latin}\p{Cyrillic}\p{Greek}", "A-Za-z"
_BEYOND_ASCII = compile_re2(r"[^\x00-\x7f]+")
_MAX_LOCAL_LENGTH, _MAX_LENGTH = 64, 254
_NOBODY = frozenset({"test", "invalid", "localhost", "local", "localdomain", "internal", "example", "lan"})
# Last parts of a name in a file's name or a program, which no domain ends with.
_FILE_ENDINGS = (
    "png jpg jpeg gif svg webp avif ico css scss js mjs cjs ts jsx tsx json xml html htm yml yaml toml txt log "
    "map min exe dll so pdf csv mp3 mp4 woff woff2 ttf latest next"
)
_NO_DOMAIN = frozenset(_FILE_ENDINGS.split())
_USER_OF_ADDRESS = compile_re2(r"://[^/?#\s\"'<>]*$")


def _check(candidate: CandidateMatch) -> CandidateMatch | None:
    local, _, domain = candidate.text.rpartition("@")
    last = domain.rpartition(".")[2].lower()
    if not 1 <= len(local.encode()) <= _MAX_LOCAL_LENGTH or len(local) + len(domain) >= _MAX_LENGTH:
        return None
    if local.endswith(".") or ".." in local or last in _NOBODY or last in _NO_DOMAIN or domain.startswith("-"):
        return None
    after = candidate.after(2)
    if after[:1] in (b"(", b"@") or candidate.before(1) in (b"@", b"/") or after in (b":/", b":~"):
        return None  # a call, a handle, a path, a place on another machine
    if local == "git" and after[:1] in (b":", b"/"):
        return None
    return None if _USER_OF_ADDRESS.search(candidate.before(160)) else candidate


def _check_spelled(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if candidate.stands_alone() else None


def _address(letter: str) -> str:
    """Return the expression of an address with these letters."""
    local = rf"[{letter}0-9!#$*^_{{}}~](?:[{letter}0-9!#$*^_{{}}~.%+'-]*[{letter}0-9!#$*^_{{}}~+-])?"
    return rf"{local}@[{letter}0-9-]+(?:\.[{letter}0-9-]+)*\.[{letter}]{{2,24}}"


def _find_letters_beyond_ascii(utf8: bytes) -> list[tuple[int, int]]:
    """Return the ends and beginnings of runs of characters that are not in ASCII."""
    return [] if utf8.isascii() else [(run.end(), run.start()) for run in _BEYOND_ASCII.finditer(utf8)]


_ENDS = "com|org|net|edu|gov|io|info|me|de|fr|es|it|nl|pl|eu|ch|at|uk|co|in|jp|cn|br|ca|au|us"
PATTERNS = (
    # Letters of all scripts make a program twenty times as long, and most addresses have none.
    CandidatePattern("email", "EMAIL", _address(_LETTER), _check, find_values=_find_letters_beyond_ascii),
    CandidatePattern("email", "EMAIL", _address(_LETTER_OF_ASCII), _check),
    CandidatePattern(
        "email_spelled",
        "EMAIL",
        r"(?i)\b[A-Z0-9][A-Z0-9._+-]{0,63}(?: ?[\[({<] ?dot ?[\])}>] ?[A-Z0-9_+-]{1,63}){0,3} ?[\[({<] ?(?:at|"
        r"@) ?[\])}>] ?[A-Z0-9-]{1,63}"
        r"(?: ?(?:\.|[\[({<] ?(?:dot|\.) ?[\])}>]) ?[A-Z0-9-]{1,63}){0,3} ?(?:\.|[\[({<] ?(?:dot|"
        r"\.) ?[\])}>]) ?[A-Z]{2,24}\b",
        _check_spelled,
        gate=r"(?i)[A-Z0-9._+\])}>-] ?[\[({<] ?(?:at|@) ?[\])}>]",
    ),
    # Spelled out in words: "jane at firm dot com"; with a point only behind a word that says what it is.
    CandidatePattern(
        "email_spelled",
        "EMAIL",
        rf"(?i)\b[A-Z0-9][A-Z0-9._+-]{{0,63}}(?: dot [A-Z0-9_+-]{{1,63}}){{0,3}} at [A-Z0-9-]{{2,63}}"
        rf"(?: dot [A-Z0-9-]{{1,63}}){{0,2}} dot (?:{_ENDS})\b",
        _check_spelled,
        gate=r"(?i) at [A-Z0-9-]{2,63} dot ",
    ),
    CandidatePattern(
        "email_spelled",
        "EMAIL",
        rf"(?i)\b(?:e-?mail|mail)(?: address| id)?(?: is|:| me| him| her| us| to){{0,2}} "
        rf"([A-Z0-9][A-Z0-9._+-]{{1,63}} at [A-Z0-9-]{{2,63}}(?:\.[A-Z0-9-]{{1,63}}){{0,2}}\.(?:{_ENDS}))\b",
        _check_spelled,
    ),
)
