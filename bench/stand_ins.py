"""Values that stand for a secret in examples: words that say so, one letter over and over, a user's own name.

It is narrower than what scanners leave out. gitleaks leaves a value out that only *contains* one of 1,400 words, such
as "password", "token", "secure", "server" (`cmd/generate/config/rules/stopwords.go`); trufflehog one that contains a
word of its lists, such as "value", "name", "root", "user" (`pkg/detectors/fp_badlist.txt`), or "example", "sample",
"xxxxxx", "abcde" (`falsepositives.go`); detect-secrets a piece of the alphabet, or a template (its heuristic filters).
Here a value must be *nothing but* such words. A password that a person might choose is none: `hunter2`, `admin123`,
`Sommer2024`, `letmein!`, `supersecret`.
"""

from __future__ import annotations

import re

_NAMES = """
    password passwd pwd pass passphrase passcode pw secret secrets token tokens key keys api apikey auth credential
    credentials cred creds login access private session jwt hmac cookie signing encryption pat
    user username usr usernames admin root client app account email db database dbuser dbpass host hostname localhost
    server service name id value string text
"""
_SAYS_SO = """
    test testing tests tester example examples sample dummy demo fake mock placeholder foo bar baz qux my your some any
    here change me changeme changeit replace insert enter todo tbd put this is a an the or with of redacted
    hardcoded hardcode default none null undefined empty
"""
# Words that only an example says: beside one of these, a number means nothing.
_ONLY_EXAMPLES = frozenset(
    (
        "example",
        "examples",
        "sample",
        "dummy",
        "fake",
        "mock",
        "placeholder",
        "foo",
        "bar",
        "baz",
        "your",
        "some",
        "here",
    )
)
_WORDS = sorted({*_NAMES.split(), *_SAYS_SO.split()}, key=lambda word: (-len(word), word))
_OF_WORDS = re.compile(f"(?:{'|'.join(_WORDS)})+")
_FILLED = re.compile(r"x{3,}|\*{3,}|\.{3,}|_{3,}|#{3,}|-{3,}")
# One character over and over, a third of the whole at least.
_RUN, _RUN_SHARE = re.compile(r"(.)\1{7,}"), 3
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# The signed token with which jwt.io introduces itself: its second part is of "1234567890", "John Doe".
_SHOWN_TOKEN = re.compile(r"^eyJ[\w-]*\.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l")
_OF_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://([^\s:/?#\"'<>@]*):([^\s/\"'<>@]+)@", re.I)
_NAMED = re.compile(
    r"(?:passw(?:or)?d|passphrase|passwd|pwd|pass|secret|token|(?:api|secret|signing|private|access|auth)[_-]?key)"
    r"[\w-]{0,12}[\"'`\])}]{0,3}(?:\s{0,3}(?::=|={1,3}>?|=>|:|,|\()\s{0,3}|\s{1,3}(?=[\"'`]))"
    r"(?:[\"'`]([^\"'`\n]*)[\"'`]|([^\s\"'`<>;,&(){}\[\]]++)(?![(\[{]))",
    re.I,
)
_QUOTED = re.compile(r"\"([^\"\s]+)\"|'([^'\s]+)'|`([^`\s]+)`")
_MADE = re.compile(r"(?=[0-9A-Za-z]*[A-Za-z])(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{8,}")
_ADDRESS = re.compile(r"\w+://\S+")
_USER = r"(?:user[ _-]?(?:name|id)?|login|uid|account|email)[\"'`\])]{0,3}\s{0,3}(?::=|={1,2}>?|:|,|\()?\s{0,3}[\"'`]?"


def is_of_stand_in_words(value: str) -> bool:
    """Tell whether a value is nothing but words that stand for one, apart from signs between them.

    A number counts as a sign only where a word says that this is an example: `your-token-1`, not `admin123`.
    """
    if (
        _SHOWN_TOKEN.match(value)
        or sum(len(run.group()) for run in _RUN.finditer(value)) * _RUN_SHARE >= len(value) > 0
    ):
        return True
    pieces = _PIECE.findall(_FILLED.sub("-", value))
    words = [piece.lower() for piece in pieces if not piece.isdigit()]
    if not words:
        return bool(_FILLED.search(value)) and not pieces
    if not all(_OF_WORDS.fullmatch(word) for word in words):
        return False
    return len(words) == len(pieces) or not _ONLY_EXAMPLES.isdisjoint(words)


def _is_users_own(value: str, text: str) -> bool:
    """Tell whether the user beside a plain word is called the same: `root:root@`, `"guest", "guest"`."""
    if not value.isalpha() or text.count(value) <= 1:
        return False
    one = re.escape(value)
    return bool(
        re.search(rf"(?<![\w.-]){one}:{one}(?![\w.-])", text)
        or re.search(rf"([\"'`]){one}\1\s{{0,3}},\s{{0,3}}([\"'`]){one}\2", text)
        or re.search(rf"{_USER}{one}(?![\w.:-])", _ADDRESS.sub("", text), re.I)
    )


def stands_in(value: str, text: str) -> bool:
    """Tell whether a labelled value stands for a secret; of an address only its password does."""
    password = _OF_ADDRESS.search(value)
    return any(
        is_of_stand_in_words(one) or _is_users_own(one, text) for one in (password.group(2) if password else value,)
    )


def _values_of(text: str) -> list[str]:
    """Return what a text without a labelled value holds: what stands beside a name or in an address, else literals."""
    named = [found.group(2) for found in _OF_ADDRESS.finditer(text)]
    named += [value for found in _NAMED.findall(_ADDRESS.sub("", text)) if (value := "".join(found).rstrip(".,:"))]
    literals = ["".join(found) for found in _QUOTED.findall(_ADDRESS.sub("", text))]
    return named or literals or ([text.strip()] if len(text.split()) == 1 else [])


def holds_only_stand_ins(text: str) -> bool:
    """Tell whether a text of which only is said that it holds a secret holds nothing but values that stand for one.

    Where anything else in it could have been made (eight letters and digits in one piece), it holds more.
    """
    values = _values_of(text)
    if not values or not all(stands_in(value, text) for value in values):
        return False
    made = _MADE.findall(_ADDRESS.sub("", text))
    return all(is_of_stand_in_words(piece) or any(piece in value for value in values) for piece in made)
