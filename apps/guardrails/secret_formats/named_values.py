"""Keys and tokens beside a name that says what they are, however the two are written down.

The forms in which programs, settings, markup and logs put a value beside its name: subscripts, calls, typed
declarations, attributes and elements, pairs of "name" and "value", blocks, flags, tables, lines of a log. The less the
form says that the value belongs to the name, the more the value itself must look made. `assignments` knows the plain
form `name = value`, and passwords that people chose.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import (
    is_harmless_name,
    is_name_of_next,
    is_something_else,
    is_test_key,
)
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    count_turns,
    entropy,
    find_made_runs,
    has_letters_and_digits,
    is_made_of_letters,
    is_placeholder,
    is_put_together_from_words,
    is_random,
    is_shortened,
    reads_like_words,
)

_LABEL = "SECRET"
_TABLE = tomllib.loads(Path(__file__).with_name("service_names.toml").read_text(encoding="utf-8"))
_SERVICES = "|".join(sorted(set(_TABLE["names"].split())))
_CREDENTIAL = (
    r"(?:api|app|access|auth|secret|private|client|license|account|master|signing|encryption|service|server|write|read|"
    r"ingest|deploy|admin|user|rest|sdk|web)[ _.-]?(?:key|pat)|secret|token|credentials?|creds|apikey|passw(?:or)?d|"
    r"auth[ _-]?(?:code|string)|bearer|\bdsn|\bpat\b|authori[sz]ation|authentication|"
    r"oauth[_-](?:signature|verifier)|[a-z0-9]_(?:api|auth)\b"
)
# A name that ends with what it is, with a little behind that: `stripeToken1`, `api_key_prod`.
_KEY = r"key(?:[_-][a-z0-9_-]{0,16}|s?\d{0,2})"
_NAME = rf"(?:(?:{_CREDENTIAL}|[a-z0-9_-]pat)[a-z0-9_-]{{0,24}}|{_KEY}|(?:private|access)[_-]?)"
# End of a name: a quote, a bracket of a subscript, a type.
_CLOSE = (
    r"[\"'`*\]\\)}]{0,4}(?: {0,3}: ?(?:str|string|String|&str|char)\b\??| {1,2}(?:as )?(?:string|String|str)"
    r"| \{ ?get;[^{}\n]{0,20}\}|\{['\"]?\w{1,16}['\"]?\})?"
)
_OPERATOR = r"\s{0,3}(?:(?::{1,3}=|={1,3}>?|->|<-|[?.+|]{1,2}=|\|\||:\*{0,2}|,|>|\(|\.equals\()\s{0,20}|\|[ \t]{0,8})"
_PAIRED = r"[\s,/<>;\"']{1,24}(?:[a-z]{1,12}:)?(?:value|val|string|content|default|data)\\?[\"']?\s?[:=>]\s?"
_OPEN = r"(?:str)?\(?(?:[@$bruf]{0,2}[\"'`\\]{1,4})?[\\{(\[<]{0,4}(?:[|>][-+]?\s{1,40})?"
# How a value begins; the check takes the rest of it, so that no search reads on to the end of a text.
_VALUE = r"([a-z0-9+/_-][a-z0-9_.=/+%~:|!@#$^&*-]{11})"
_MAX_VALUE_LENGTH = 400
_REST = compile_re2(r"[0-9A-Za-z_.=/+%~:|!@#$^*-]*")
_LEAST_QUOTED, _LEAST, _LEAST_FAR = 12, 14, 20
_PARTS, _LEAST_PART, _TURNS = compile_re2(r"[_-]"), 12, 4
_LEAST_NUMBER, _NUMBER_BITS = 20, 2.6
_FAR_VALUE = r"([a-z0-9][a-z0-9_.=/+%~-]{14})"
# Names of other things that end in the same words, and random but public values.
_OTHER_NAME = compile_re2(
    r"(?i)(?:primary|foreign|public|pub|partition|sort|hash|row|object|s3|map|cache|index|lookup|registry|"
    r"idempotency|translation|i18n|storage|data|node|query|event|message|group|issue|project|host|known|site|"
    r"websocket)[_-]?"
    r"key[a-z0-9_-]{0,8}\W{0,8}$|id</key>\s{0,12}<string>$|publickeytoken|(?:csrf|xsrf|authenticity|page|cursor)[_-]?token"
    r"[^a-z0-9]{1,20}value\W{0,4}$"
)
_DIGEST = compile_re2(
    r"(?i)(?:sha-?(?:1|224|256|384|512)?|md5|h1|hash|digest|checksum|integrity|etag|commit|revision|fingerprint|uuid|"
    r"guid|[^a-z]id|nonce|salt|-----)[\"']?\s{0,2}[-:= (]\s{0,2}[\"']?$"
)
# Endings of names that describe a credential, such as its location or name.
_ABOUT = compile_re2(
    r"(?i)(?:[a-z_-]ids?|name|vault|path|file|ur[il]|type|length|size|version|label|alias|usage|accessor)"
    r"[\"'`\]\\)}]{0,3}\s{0,3}[:=,>]{0,3}\s{0,3}[\"'`]?$"
)
_IDENTIFIER = compile_re2(r"(?i)[^a-z]ids?[\"']{0,2}\s{0,2}[:=]\s{0,2}[\"']?$")
_NAMES_IT = compile_re2(r"(?i)(?:key|token|secret)[\"'` ]{0,2}[ :=-]{0,2}[\"'`]?$")
_FILE_DIGEST = compile_re2(
    r"(?i)\benc[(\[][\w,:]*$|sha-?\d|md5|\betag\b|tiktoken|digest|checksum|fingerprint|\bhash|integrity|PUBLIC KEY"
    r"|\bh1:"
)
# How the head of a key or a certificate begins in base64.
_ARMOUR = "LS0tLS1CRUdJTi"
_UUID = compile_re2(r"(?i)^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")
_ADDRESS = compile_re2(
    r"(?i)^(?:1:\d+:(?:ios|android|web):|\w+://|www\.|[\w.-]+\.(?:com|org|net|io|dev|ai|co|html?|md|json|ya?ml|tsx?|jsx?|py|go|rs)\b)"
)
_HEX = compile_re2(r"^[0-9a-fA-F]+$")
# An action or package with its revision or version, and an argument that is a number.
_PINNED = compile_re2(r"^[A-Za-z][\w./-]*(?:@[0-9a-f]{40}$|:v?\d+(?:\.\d+)+)|@sha256:[0-9a-f]{64}$")
_TAG = compile_re2(r"-$|/[\w.-]+:$")
# A model with its version or day: `gpt-3.5-turbo-0125`.
_MODEL = compile_re2(
    r"^(?:[a-z]+|[a-z]?\d{1,4}(?:\.\d{1,2})?[a-z]?)(?:[-:](?:[a-z]+|[a-z]?\d{1,4}(?:\.\d{1,2})?[a-z]?|20\d{6}))+$"
)
_NUMBER_ARGUMENT = compile_re2(r"^[a-z]+(?:_[a-z]+)*=\d+$")
_PATH = compile_re2(
    r"[a-z]{3,}[./][a-z]{3,}[./]|/[a-z]{4,}/|^v?\d+(?:\.\d+)+|^[a-z][a-z0-9.-]*-\d{4}-\d\d-\d\d$|\.(?:tgz|tar|zip|gem|whl|jar)\b"
    # A migration of a database: `0002_auto_20160226_1747`.
    r"|^\d{4}_[a-z]+(?:_[a-z0-9]+)*$"
)


def _whole(candidate: CandidateMatch) -> CandidateMatch:
    rest = _REST.match(candidate.utf8, candidate.end, candidate.end + _MAX_VALUE_LENGTH)
    text = candidate.utf8[candidate.start : rest.end()].decode("ascii", "replace")
    end = text.find("&")
    return candidate.truncated(len((text[:end] if end > 0 else text).rstrip(".,:;|*!")))


def _is_made(text: str, least: int, is_of_words: Callable[[str], bool] = reads_like_words) -> bool:
    """Tell whether a value could only have been made by a program that gives out keys."""
    if len(text) < least or is_test_key(text):
        return False
    if not has_letters_and_digits(text):
        number = text.isdigit() and len(text) >= _LEAST_NUMBER and entropy(text) >= _NUMBER_BITS
        return (number or is_made_of_letters(text)) and not is_placeholder(text)
    if is_something_else(text):
        return False
    if (text.startswith("eyJ") and text.count(".") == 2) or text.startswith(_ARMOUR):
        return False  # a signed token or a key in base64, which their own patterns judge
    if _NUMBER_ARGUMENT.search(text) or _ADDRESS.search(text) or _PATH.search(text):
        return False
    return is_random(text, 2.8 if _HEX.match(text) else 3.0) and not is_of_words(text)


def _reads_like_name(text: str) -> bool:
    """Tell whether a literal right beside the name of a key is put together from words, to its end."""
    return is_put_together_from_words(text) and not _has_made_part(text)


def _has_made_part(text: str) -> bool:
    """Return whether a value of words ends in a generated part: issuers put their names before it."""
    parts = _PARTS.split(text)
    return len(parts) > 1 and any(
        len(part) >= _LEAST_PART and count_turns(part) >= _TURNS and not reads_like_words(part) for part in parts[1:]
    )


def _beside_name(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value that an operator, a call or an attribute gives to the name of a credential."""
    value = _whole(candidate)
    before = candidate.before(64)
    if is_shortened(value.after(8)) or is_harmless_name(before) or _OTHER_NAME.search(before):
        return None
    if _DIGEST.search(before[-16:]) or _ABOUT.search(before) or is_name_of_next(value):
        return None
    # Behind a blank, as in a call, stands a variable as well.
    literal = before[-1:] in b"\"'`=:>"
    return value if _is_made(value.text, _LEAST, _reads_like_name if literal else reads_like_words) else None


def _in_sight(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value on the line of a credential's name: long, mixed, and no digest."""
    value = _whole(candidate)
    text, before = value.text, candidate.before(72)
    if _OTHER_NAME.search(before) or _FILE_DIGEST.search(before) or is_harmless_name(before) or _ABOUT.search(before):
        return None
    if _IDENTIFIER.search(before):
        return None
    if _UUID.match(text):
        return value if _NAMES_IT.search(before) else None
    if not _is_made(text, _LEAST_FAR):
        return None
    digits = sum(character.isdigit() for character in text)
    if _HEX.match(text):
        return value if len(text) >= 32 and digits >= 4 else None
    mixed = count_character_classes(text.replace("-", "").replace("_", "")) >= 3
    return value if digits >= 2 and entropy(text) >= (3.6 if mixed else 3.3) else None


def _on_next_line(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a line that is nothing but a generated value, unless the line before mentions a digest."""
    digits = sum(map(str.isdigit, candidate.text))
    if _FILE_DIGEST.search(candidate.before(96)) or digits <= 1 or is_shortened(candidate.after(8)):
        return None
    return candidate if _is_made(candidate.text, _LEAST_FAR) else None


def _of_service(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands right beside the name of a service: mixed, and no digest, version or address."""
    value = _whole(candidate)
    text, before = value.text, candidate.before(48)
    if _DIGEST.search(before[-20:]) or _OTHER_NAME.search(before) or is_harmless_name(before) or _ABOUT.search(before):
        return None
    least = _LEAST_FAR if before[-1:] in b" -," else _LEAST_QUOTED if before[-1:] in b"\"'" else _LEAST
    # Behind a hyphen digits end a branch or an address; behind the name of a model or an image they are its version.
    if (
        not _is_made(text, least)
        or _MODEL.search(text)
        or _PINNED.search(text)
        or (_TAG.search(before) and _HEX.match(text))
    ):
        return None
    if "/" in text and before[-1:] not in b"\"'`=":
        return None
    return value if sum(character.isdigit() for character in text) >= 2 else None


_named_key = partial(CandidatePattern, "named_key", _LABEL)
PATTERNS = (
    _named_key(
        rf"(?i){_NAME}{_CLOSE}(?:{_OPERATOR}|{_PAIRED}){_OPEN}{_VALUE}",
        _beside_name,
        overlapping=True,
        busiest=True,
        find_values=find_made_runs,
    ),
    _named_key(
        rf"(?i)(?:^|\s)--?[a-z0-9_.-]{{0,30}}(?:key|token|secret|auth|credential)s?[ =]{{1,2}}[\"']?{_VALUE}",
        _beside_name,
    ),
    # A blank between the two: a directive of a shell or a build file, a quoted value, a column.
    _named_key(
        rf"(?i){_NAME}(?:[ \t]{{1,4}}[\"'`]|\t){_VALUE}",
        _beside_name,
        overlapping=True,
        often=True,
        find_values=find_made_runs,
    ),
    _named_key(
        rf"(?i)\b(?:env|arg|setx|setenv|set|define|export)(?: -[a-z]{{1,3}})?[ \t]{{1,4}}"
        rf"[a-z0-9_.-]{{0,24}}{_NAME}[ \t]{{1,4}}"
        rf"{_VALUE}",
        _beside_name,
        find_values=find_made_runs,
    ),
    # A line that says what the next one is.
    _named_key(
        r"(?im)^[^\n]{0,60}?\b(?:password|secret|token|(?:api|access|private|secret) key)[^\n]{0,20}\n[ \t]*"
        r"([0-9a-z+/_-]{20,}={0,2})[ \t\r]*$",
        _on_next_line,
        gate=r"(?i)\b(?:password|secret|token|(?:api|access|private|secret) key)[^\n]*\n[ \t]*[0-9a-z+/_-]{20}",
        find_values=find_made_runs,
    ),
    CandidatePattern(
        "service_key",
        _LABEL,
        rf"(?i)\b(?:{_SERVICES})[a-z0-9_.-]{{0,24}}"
        r"(?: (?:api|access|secret|private|key|token|auth)){0,3}"
        r"(?:[\"'`\]\\)}]{1,4}\s{0,2}(?:[:=]{1,2}>?|,)?\s{0,2}|\s{0,2}(?:[:=]{1,2}>?|-|,|\||\()\s{0,2}|\s{1,2})"
        r"[\"'`({]{0,2}([a-z0-9_][a-z0-9_.=/+%~|:@-]{11})",
        _of_service,
        overlapping=True,
        find_values=find_made_runs,
    ),
    CandidatePattern(
        "key_in_sight",
        _LABEL,
        rf"(?i)(?:{_CREDENTIAL}|\bkey\b|private|access)[^\n]{{0,40}}?[ \t\"'=:>{{(,|]{_FAR_VALUE}",
        _in_sight,
        overlapping=True,
        often=True,
        find_values=find_made_runs,
    ),
)
