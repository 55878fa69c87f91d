"""Passwords as people note and tell them: sentences, lines of settings without a sign, calls, routers.

Knows where a value follows the name of a password with a few words or nothing but a blank between them. As little says
that it is one, the value must show it: kinds of characters mixed as in no word, no version and no name. What stands for
a value passes, as in `chosen_passwords`.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import (
    NAMES_OF_PASSWORDS,
    is_about_passwords,
    is_hash,
    is_something_else,
)
from apps.guardrails.secret_formats.chosen_passwords import accept_mixed, is_other_name, is_stand_in
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    entropy,
    has_letters_and_digits,
    is_placeholder,
    is_random,
    reads_like_words,
)
from apps.guardrails.secret_formats.login_pairs import accept_argument
from apps.guardrails.secret_formats.passwords_by_form import ABOUT

_LABEL = "PASSWORD"
_NAMES = (
    rf"(?:{NAMES_OF_PASSWORDS}|mot de passe|(?:palabra )?clave|codice (?:di accesso|segreto)|"
    r"密码|口令|パスワード|비밀번호)"
)
_LOGINS = r"(?:cred(?:ential)?s?|log-?ins?|zugangsdaten|identifiants|credenciales)"
_KEYS = r"(?:secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|signing[_-]?key|encryption[_-]?key)"
# How a value begins; the check takes the rest of it.
_VALUE = r"([^\s\"'`“”„«»<>,;|(){}\[\]，。；、「」：]{5})"  # noqa: RUF001 - these letters are meant
_REST, _LONGEST_REST = compile_re2(r"[^\s\"'`“”„«»<>,;|(){}\[\]，。；、「」]*"), 100  # noqa: RUF001 - as above
_WIDE_COLON = "\N{FULLWIDTH COLON}"
_ENDS_SENTENCE = ".,;:)*_!?"
_LEAST, _LEAST_KEY, _LEAST_BITS = 7, 12, 2.5
_SIGNS = frozenset("!@#$%^&*+=~?")
_IDENTIFIER = compile_re2(r"^[A-Za-z_]+\d+$|^\w+(?:\.\w+)+$")
_CODE = compile_re2(r"://|\(|\{|\$|->|=>|::|^[./~\\-]|^\d+[.:/-]\d|\w\.\w+\.\w|^[A-Z]\w+(?:\.\w+)+$")
_LITERAL = r"[$@bruf]{0,2}\\{0,3}[\"'`]([^\s\"'`<>\\]{6,60})\\{0,3}[\"'`]"
_STRING = r"[$@bruf]{0,2}[\"'`][^\"'`\n]{1,60}[\"'`]"


def _whole(candidate: CandidateMatch) -> CandidateMatch:
    rest = _REST.match(candidate.utf8, candidate.end, candidate.end + _LONGEST_REST)
    candidate = CandidateMatch(candidate.utf8, candidate.start, rest.end())
    return candidate.truncated(len(candidate.text.rstrip(_ENDS_SENTENCE).encode()))


def _shows(text: str) -> bool:
    """Tell whether a value shows by itself that it was chosen as a password: letters, digits, and a sign or both cases
    other than a capital at its beginning."""
    if len(text) < _LEAST or not has_letters_and_digits(text) or entropy(text) < _LEAST_BITS:
        return False
    if ABOUT.search(text) or _CODE.search(text) or is_something_else(text) or is_hash(text) or is_stand_in(text):
        return False
    if _IDENTIFIER.search(text):
        return False
    signs = not _SIGNS.isdisjoint(text)
    cases = text[1:] != text[1:].lower() and text != text.upper()
    return (signs or cases) and count_character_classes(text) >= 3


def _told(candidate: CandidateMatch) -> CandidateMatch | None:
    candidate, before = _whole(candidate), candidate.before(48)
    if not _shows(candidate.text) or is_other_name(before) or is_about_passwords(before):
        return None
    return candidate


def _told_behind_user(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept the password of a login, of which the candidate may be the whole: `admin:…`."""
    candidate = _whole(candidate)
    user, colon, _ = candidate.text.partition(":")
    start = candidate.start + len((user + colon).encode()) if colon else candidate.start
    password = CandidateMatch(candidate.utf8, start, candidate.end)
    return password if _shows(password.text) else None


def _noted(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands on a line of its own beside the name of a key: long, mixed, and no name."""
    candidate = _whole(candidate)
    text = candidate.text
    if len(text) < _LEAST_KEY or is_placeholder(text) or _CODE.search(text) or is_something_else(text):
        return None
    made = has_letters_and_digits(text) and is_random(text, 3.0) and not reads_like_words(text)
    return candidate if made or _shows(text) else None


def _literal(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if _shows(candidate.text) else None


def _wireless(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a wireless network may have for a key (IEEE 802.11i: 8 to 63 characters) and no word is."""
    candidate = _whole(candidate)
    text = candidate.text
    return candidate if len(text) >= 8 and has_letters_and_digits(text) and not is_stand_in(text) else None


def _form(pattern: str, check: Check, gate: str = "", *, label: str = _LABEL) -> CandidatePattern:
    return CandidatePattern("chosen_password", label, f"(?i){pattern}", check, gate and f"(?i){gate}", True)


PATTERNS = (
    # "the password for the database is …", "le mot de passe du serveur : …", "Enter password: …".
    _form(
        rf"{_NAMES}(?: [\p{{L}}'-]{{1,16}}){{0,5}}(?: ?(?:[:=]|->|→|{_WIDE_COLON}) ?| (?:is|was|be|to|lautet|ist|est|es"
        rf"|é|è|är|это|として)(?: (?:now|still|currently|again|jetzt|noch))? |は)[ \t]?[\"'`«“„「]?{_VALUE}",
        _told,
        rf"{_NAMES}[\p{{L}}' -]*(?:[:=→は]|{_WIDE_COLON}|->| (?:is|was|be|to|lautet|ist|est|es|é|è|är|это) )",
    ),
    # "creds for the printer: admin:…", "use login qa with …".
    _form(
        rf"(?:^|[\s>\"'(*]){_LOGINS}\b[^\n:]{{0,40}}?[: ] ?[\w.@+-]{{2,40}} ?(?:[:/]| with | mit | avec ) ?[\"'`]?"
        rf"{_VALUE}",
        _told_behind_user,
        rf"{_LOGINS}\b[^\n]*(?:[:/]| with | mit | avec )",
    ),
    # With nothing but a blank: "bind password …", `set-variable DB_PASSWORD …`, "la contraseña …".
    _form(rf"{_NAMES}[a-z0-9_]{{0,12}}[ \t]{{1,4}}{_VALUE}", _told, rf"{_NAMES}[a-z0-9_]*[ \t]"),
    _form(
        rf"(?m)^[ \t]*(?:env|arg|export|set|setx|setenv|set-variable|[a-z-]{{0,16}}config set)[ \t]{{1,4}}"
        rf"[a-z0-9_.-]{{0,40}}{_KEYS}[a-z0-9_]{{0,12}}[ \t]{{1,4}}[\"']?{_VALUE}",
        _noted,
        rf"{_KEYS}[a-z0-9_]*[ \t]",
        label="SECRET",
    ),
    # Elements with attributes.
    _form(
        r"<(?:[a-z0-9]{1,16}:)?(?:password|passwd|pwd|passphrase)\b[^<>]{1,200}>([^<>\s]{5,100})</",
        accept_mixed,
        r"<(?:[a-z0-9]+:)?(?:password|passwd|pwd|passphrase)\b",
    ),
    # Calls that sign in, and what tests type into a field.
    _form(
        rf"(?:login|logon|log_in|sign_?in|auth|authenticate)\w{{0,12}}\s?\(\s{{0,3}}"
        rf"(?:{_STRING}|[\w.]{{1,40}})\s{{0,3}},\s{{0,3}}{_LITERAL}",
        _literal,
        r"(?:log_?in|logon|sign_?in|auth|authenticate)\w*\s?\(",
    ),
    _form(
        rf"{_NAMES}\w{{0,12}}[\"'`\])]{{0,4}}\s?\)?\s?\.\s?(?:send_?keys|fill|type|set_?value|enter_?text|input)\("
        rf"\s?{_LITERAL}",
        _literal,
        r"\.\s?(?:send_?keys|fill|type|set_?value|enter_?text|input)\(",
    ),
    # Routers, wireless networks, shares.
    _form(
        r"\b(?:tacacs|radius)(?:-server)?(?: [^\s]{1,40}){0,3} key (?:\d )?[\"']?([^\s\"']{5,60})",
        _told,
        r"(?:tacacs|radius)[^\n]* key ",
    ),
    _form(
        r"\bpre-?shared-?key (?:(?:ascii-text|local|remote|address [^\s]{1,40})(?: \d)? )?[\"']?([^\s\"';]{6,80})",
        _told,
        r"pre-?shared-?key ",
    ),
    _form(
        r"\b(?:wi-?fi|wlan|ssid|hotspot)\b[^\n]{0,60}?\b(?:key|password|pass|pw|code|schlüssel)(?: is|:|=)?[ \t]{1,2}"
        rf"[\"'`]?{_VALUE}",
        _wireless,
        r"\b(?:wi-?fi|wlan|ssid|hotspot)\b[^\n]*\b(?:key|password|pass|pw|code|schlüssel)",
    ),
    _form(
        r"\bnet +use\b[^\n]{1,80}?/user:[^\s]{1,60} +([^\s\"'/\\:*]{4,60})",
        accept_argument,
        r"\bnet +use\b[^\n]*/user:",
    ),
    # What an authenticator makes codes with.
    _form(
        r"\b(?:totp|otp|2fa|mfa|authenticator)[ _-]?(?:seed|secret|key)(?: is)?\W{1,4}((?-i:[A-Z2-7]{16,64}))\b",
        lambda candidate: candidate if is_random(candidate.text, 3.0) else None,
        r"(?:totp|otp|2fa|mfa|authenticator)[ _-]?(?:seed|secret|key)",
        label="SECRET",
    ),
)
