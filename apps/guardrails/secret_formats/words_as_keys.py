"""Words for keys that only their place gives away: `cipherKey = "…"`, `define("API_KEY", "…")`, `"…".equals(secret)`.

Knows constants that programs define, the names of keys of ciphers, functions that take a private key or its
passphrase, sessions, passwords by name among the arguments of a call, and sources of packages. What stands for a key,
a method, a description and a variable pass, as in `passwords_as_arguments`.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import is_harmless_name, is_test_key
from apps.guardrails.secret_formats.chosen_passwords import is_no_password, is_stand_in
from apps.guardrails.secret_formats.entropy import count_character_classes, entropy, has_letters_and_digits, is_random
from apps.guardrails.secret_formats.passwords_as_arguments import BEGINS, LITERAL, PHRASE, accept_argument_of_call
from apps.guardrails.secret_formats.passwords_in_commands import accept_in_place
from apps.guardrails.secret_formats.stand_in_words import has_word_of_its_own, is_something_described

_LEAST_LETTERS, _LEAST_DIFFERENT = 8, 6
_LEAST_CLASSES, _LEAST_BITS, _BITS_OF_RANDOM = 3, 3.0, 4.2
_CIPHER = r"(?:cipher|crypt|crypto|aes|3?des|hmac|rsa|sign(?:ing|ature)?|enc(?:ryption)?|encrypt|decrypt(?:ion)?)_?key"
_WORD_FIRST = compile_re2(r"^[A-Za-z]{4,}")
_SIGNS = compile_re2(r"(?i)create_?sign\b")
_KIND = compile_re2(r"(?i)^(?:primary|secondary|symmetric|asymmetric|customer|managed|column|service|platform)$")


def _word(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a word of its own: no method, no description, and no name of a kind of key."""
    text = candidate.text
    if is_stand_in(text) or is_something_described(text) or _KIND.search(text):
        return None
    if is_harmless_name(candidate.before(48)):
        return None
    chosen = text.isalpha() and text.islower() and len(text) >= _LEAST_LETTERS and len(set(text)) >= _LEAST_DIFFERENT
    own = has_letters_and_digits(text) or (chosen and has_word_of_its_own(text))
    return accept_argument_of_call(candidate) if own else None


def _compared(candidate: CandidateMatch) -> CandidateMatch | None:
    return None if is_no_password(candidate.text) else _word(candidate)


def _private(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a function takes for a private key or its passphrase, but for the head of one."""
    return None if candidate.text.startswith("-----") else accept_argument_of_call(candidate)


def _of_signature(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the first argument of `sign` where something that signs with a private key was made before it."""
    return _private(candidate) if _SIGNS.search(candidate.before(240)) else None


def _phrase(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept several words in small letters, unless they are a sentence."""
    text = candidate.text
    return accept_in_place(candidate) if " " in text and text == text.lower() else None


def _of_interface(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a word with a digit: no version, and no name of a field."""
    text = candidate.text
    own = _WORD_FIRST.search(text) and has_letters_and_digits(text) and has_word_of_its_own(text)
    return _word(candidate) if own and not is_test_key(text) else None


def _defined(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a mixed literal of any signs."""
    text = candidate.text
    signs = count_character_classes(text) >= _LEAST_CLASSES and sum(map(str.isdigit, text)) >= _LEAST_CLASSES - 1
    return candidate if signs and is_random(text.lstrip("$"), _LEAST_BITS) else None


def _random(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a program made of letters, digits and signs."""
    return candidate if entropy(candidate.text) >= _BITS_OF_RANDOM else None


def _in_call(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept words that signs join, of which one is no word for a password."""
    text = candidate.text
    joined = has_word_of_its_own(text) and not is_something_described(text)
    return accept_argument_of_call(candidate) if joined and not is_no_password(text) else None


def _key(pattern: str, gate: str, check: Check) -> CandidatePattern:
    return CandidatePattern("word_as_key", "SECRET", f"(?i){pattern}", check, f"(?i){gate}")


PATTERNS = (
    _key(rf"(?:\b|_){_CIPHER}\d?\s?(?::=|=>?)\s?{LITERAL}", rf"{_CIPHER}\d?\s?(?::=|=>?)\s?{BEGINS}", _word),
    _key(
        rf"(?:\b|_)(?:secret|api_?key|{_CIPHER})\d?\s?:?=>?\s?[bru]?[\"']([^\s\"'\\<>{{}}$%][^\"'\\<>{{}}$%\n]{{7,80}})[\"']"
        r"\s?(?:[;,)]|$)",
        rf"(?:secret|api_?key|{_CIPHER})\d?\s?:?=>?\s?[bru]?[\"'][^\s\"']+ ",
        _phrase,
    ),
    _key(
        rf"(?:\b|_)(?:api|app|access|auth)_?key\d?[\"'\])]{{0,3}}\s?(?::=|={{1,3}}>?|:)\s?{LITERAL}",
        rf"(?:api|app|access|auth)_?key\d?[\"'\])]*\s?[:=>]+\s?{BEGINS}[^\s\"'`<>\\]*[0-9]",
        _of_interface,
    ),
    _key(
        rf"(?:\b|_){_CIPHER}\d?\s?=\s?{LITERAL}\.to_?char_?array\(",
        rf"{_CIPHER}\d?\s?=\s?{BEGINS}",
        accept_argument_of_call,
    ),
    _key(
        rf"\bdefine\(\s?[\"']\w{{0,30}}(?:secret|api_?key|auth_?key|token)[\"']\s?,\s?{LITERAL}",
        r"\bdefine\(\s?[\"']\w*(?:secret|api_?key|auth_?key|token)[\"']",
        _word,
    ),
    # Between single quotes of PHP no sign begins a variable.
    CandidatePattern(
        "password_defined",
        "PASSWORD",
        r"(?i)\bdefine\(\s{0,4}'\w{0,30}(?:password|passwd|secret|auth_?key|_key|_salt)'\s{0,4},\s{0,4}'([^\s'\\]{8,100})'",
        _defined,
        gate=r"(?i)\bdefine\(\s*'\w*(?:password|passwd|secret|auth_?key|_key|_salt)'",
    ),
    _key(
        rf"{LITERAL}\.equals\(\s?[\w.]{{0,40}}(?:secret|api_?key|access_?token)\d?(?:\(\))?\s?\)",
        r"[\"'`]\.equals\([^\n]*(?:secret|api_?key|access_?token)",
        _compared,
    ),
    # A private key, or what opens it.
    _key(
        r"\b(?:create_?private_?key|private_?(?:en|de)crypt)\(\s?(?:\{[^{}\n]{0,120}?\b(?:key|passphrase)\s?:\s?)?"
        rf"{PHRASE}",
        r"\b(?:create_?private_?key|private_?(?:en|de)crypt)\(",
        _private,
    ),
    _key(
        rf"\b\w{{0,12}}sign\w{{0,3}}\.sign\(\s?(?:\{{[^{{}}\n]{{0,80}}?\b(?:key|passphrase)\s?:\s?)?{LITERAL}",
        r"sign\w*\.sign\(\s?[\"'`{]",
        _of_signature,
    ),
    _key(
        rf"\bcreate_?(?:hmac|cipher(?:iv)?|decipher(?:iv)?)\(\s?(?:[\"'][\w-]{{1,24}}[\"']|[\w.]{{1,40}})\s?,\s?{PHRASE}",
        r"\bcreate_?(?:hmac|cipher(?:iv)?|decipher(?:iv)?)\(",
        _private,
    ),
    _key(rf"\bset :\w{{0,12}}_?secret, ?{LITERAL}", r"\bset :\w*secret,", accept_argument_of_call),
    CandidatePattern(
        "password_in_call",
        "PASSWORD",
        rf"(?i)\w\(\s{{0,12}}(?:[^(){{}}\n]{{0,80}},\s{{0,12}})?[\"':]?(?:password|passwd|passphrase)[\"']?\s?(?::|=>)\s?{LITERAL}\s{{0,12}}[,)]",
        _in_call,
        gate=rf"(?i)[(,]\s*[\"':]?(?:password|passwd|passphrase)[\"']?\s?(?::|=>)\s?{BEGINS}",
    ),
    CandidatePattern(
        "password_of_packages",
        "PASSWORD",
        r"(?i)\bkey=\\?\"cleartextpassword\\?\"\s{0,3}value=\\?\"([^\s\"<>%$\\]{5,80})\\?\"",
        accept_argument_of_call,
        gate=r"(?i)\"cleartextpassword\\?\"\s*value=",
    ),
    CandidatePattern(
        "password_of_element",
        "PASSWORD",
        r"(?i)<(?:password|passphrase)>([a-z]+(?:[-_][a-z0-9]+){1,4})</(?:password|passphrase)>",
        _in_call,
        gate=r"(?i)<(?:password|passphrase)>[a-z]+[-_][a-z0-9]",
    ),
    # What Django's own command makes.
    CandidatePattern(
        "django_secret_key",
        "SECRET",
        r"\bdjango-insecure-([0-9a-z!@#$%^&*(_=+)-]{50})",
        _random,
        gate=r"\bdjango-insecure-",
    ),
)
