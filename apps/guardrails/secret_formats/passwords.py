"""Passwords that people chose, which only their name gives away: `password = "hunter2"`, `Uid=sa;Pwd=Kx9;`.

A literal beside the name of a password is one whatever it looks like where it is quoted in a program, in a connection
string, in SQL or in a file of logins. Placeholders, templates, variables, types and words that describe a password
pass. A plain word counts only where its user is named beside it. `assignments` finds values that look generated.
"""

from __future__ import annotations

from functools import partial

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import (
    NAMES_A_PASSWORD,
    NAMES_OF_PASSWORDS,
    is_harmless_name,
    is_hash,
    is_name_of_next,
    is_something_else,
)
from apps.guardrails.secret_formats.entropy import (
    WORDS,
    count_character_classes,
    entropy,
    has_letters_and_digits,
    is_placeholder,
)

_LABEL = "PASSWORD"
_LEAST, _LEAST_MIXED, _LEAST_DIGITS, _LEAST_BITS = 4, 4, 6, 1.9
_USER_BESIDE, _LEAST_BY_CHANCE = 160, 60
_NAMES = rf"(?:{NAMES_OF_PASSWORDS}|jwt[_-]?secret|secret)"
_SUFFIX = r"(?:[_-][a-z0-9_]{1,16}|\d{1,2})?"
_CLOSE = r"\\{0,3}[\"'`\]\\)}]{0,4}(?: {0,3}: ?(?:str|string|String|&str|char)\b\??)?"
_OPERATOR = r"\s{0,3}(?:[:?.+|]{1,3}=|[!=]?={1,3}>?|->|:|,|\()\s{0,3}"
_PAIRED = r"[\s,/<>;\"']{1,24}(?:value|val|string|content|default)\\?[\"']?\s?[:=>]\s?"
_LITERAL = r"[$@bruf]{0,2}\\{0,3}[\"'`]{1,3}([^\s\"'`<>\\]{4,})\\{0,3}[\"'`]"
# Placeholders of a value, or words for none.
_WORDS = frozenset(WORDS["placeholders"].split())
_STANDS_FOR = compile_re2(
    r"(?i)pass_?(?:word|wd|phrase|code|wort)|secret|pwd|token|credential|_?key\d?$|[a-z]pass$|^(?:test|user|demo|foo|bar|baz|value"
    r"|some|my|todo|tbd|"
    r"db|new|old|abc|xyz|aaa|xxx|the|any|set|get|env|use|no|min|max)(?:[-_ ]?[a-z]+)*[-_]?\d{0,3}$|^n/a$"
)
_TEMPLATE = compile_re2(
    r"^[{\[(<%$].*[}\])>%]$|\{[\w.: -]*\}|\$\{|\$\(|%[sdv]|%\(|\{\{|^\$\w+$|^[a-z_]\w*\(|\w\(\)|^[^(]*\)$|"
    r"\w\([^()]*\)$|^:[a-z]|#\{|^[$@&%][A-Za-z_]\w*$|"
    r"^[\w$]+(?:\.[A-Za-z_$][\w$]*)+(?:\.\d{1,3})?$|^[a-z]+://|^[./~]|^\w+(?:/[\w.-]+)+/?$|^\d+(?:\.\d+)+|^\d{4}-\d\d-\d\d|^#[\w-]+$|"
    r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$|^\[|^--?[a-z]|^\w+=\w+$|^[a-z_]+=$|"
    r"^[A-Z][a-z]+[?!]$|^[a-z][\w-]*(?:\.[a-z][\w-]*)+=|[\^*+\\][$)\]]|^<|::|->|=>|\[\w*\]|,|[\w.]\($|\(\?[=!:<]|^[a-z]+(?::[\w,]+)?\|"
)
# Words that signs join are names of something in most places.
_JOINED = compile_re2(r"^[a-z0-9]+(?:[_-][a-z0-9]+)+$")
_SECRET = compile_re2(r"(?i)secret\W{1,8}$")
_STATEMENT = compile_re2(r"(?i)\b(?:create|alter|modify|grant|replace)\s[^\n;]{0,120}$")
# Letters, digits and one of these signs, in a whole: what people add to a word where a form asks for it.
_CHOSEN, _ALL_CLASSES = compile_re2(r"^[A-Za-z0-9_-]+[!@#$%^&*?+]+[A-Za-z0-9_!@#$%^&*?+-]*$"), 4
_SIGNS = frozenset("!@#$%^&*+=~?|;")
_OTHER_NAME = compile_re2(
    r"(?i)(?:user(?:name)?|login|name|email|host|api_key|type)[\"'`],\s?[\"'`]\w{1,16}[\"'`],\s?[\"'`]$|(?:regexp?|pattern|field|label|name|hint|type|id|file|path|ur[il]|env|var|key|min|max|length|policy|"
    r"error|message|msg|prompt|placeholder|reset|algo(?:rithm)?|hash|encoder|html|class|css|selector|xpath|version|arn|"
    r"format|title|text|column|manager|action|mode|method|provider|status|count|change|expires?|format|store|scope)"
    r"[\"'`\]\\)}]{0,4}\s{0,3}[:=,(>-]{1,3}\s{0,3}[$@bruf]{0,2}\\{0,3}[\"'`]?$"
)
_USER = compile_re2(
    r"(?i)(?:\b|_)(?:user|login|usr|uid|username|user[_ -]?name|user[_ -]?id|dbuser|account"
    r"|benutzer)[\"'`\]\\)]{0,4}\s{0,3}(?:[:=,>]{1,3}|=>|value\s?=)\s{0,3}"
    r"[$@bruf]{0,2}\\{0,3}[\"'`]?[A-Za-z0-9]"
)


def _says_password(text: str) -> bool:
    """Tell whether a literal has a word for a password in it, and nothing that only a password has: `Secret#2024x`."""
    if _CHOSEN.search(text) and count_character_classes(text) >= _ALL_CLASSES:
        return False
    return bool(_STANDS_FOR.search(text))


def is_stand_in(text: str) -> bool:
    """Tell whether a literal is no password but a placeholder for one, another kind of text (a template, a path, a
    type, a name), or a word for an empty value."""
    says_nothing = text.lower() in _WORDS or len(set(text)) < 3
    is_code = bool(_JOINED.search(text) or _TEMPLATE.search(text))
    return says_nothing or is_code or _says_password(text) or is_placeholder(text)


def is_other_name(before: bytes) -> bool:
    """Tell whether what stands before a value only begins with the name of a password: `password_regex`."""
    return bool(_OTHER_NAME.search(before))


def is_word_for_password(text: str) -> bool:
    """Tell whether a literal names a password instead of being one, wherever it stands."""
    return text.lower() in _WORDS or _says_password(text) or is_placeholder(text)


def _is_mixed(text: str) -> bool:
    """Tell whether a literal is no word: letters with digits, signs within letters, or a longer number."""
    if len(text) < _LEAST_MIXED or entropy(text) < _LEAST_BITS:
        return False
    if text.isdigit():
        return len(text) >= _LEAST_DIGITS
    return has_letters_and_digits(text) or (any(map(str.isalpha, text)) and not _SIGNS.isdisjoint(text))


def _chosen(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a literal that is mixed; a word only where its user is named beside it."""
    text = candidate.text
    if is_stand_in(text) or is_other_name(candidate.before(48)) or is_name_of_next(candidate):
        return None
    if _is_mixed(text):
        return candidate
    # A secret may be any unknown text.
    if not text.isalnum() or _SECRET.search(candidate.before(24)):
        return None
    around = candidate.before(_USER_BESIDE) + b"\n" + candidate.after(_USER_BESIDE)
    return candidate if _USER.search(around) else None


# Accepts a literal that is mixed and stands for nothing else.
_mixed = text_check(lambda text: _is_mixed(text) and not is_stand_in(text))
# Accepts what stands where nothing but a password can: any word that does not stand for one.
_given = text_check(lambda text: not is_stand_in(text))


def _identified(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what SQL identifies a user by: quoted, or within its statement. Prose identifies things as well."""
    quoted = candidate.before(1) in (b"'", b'"') and b" as " not in candidate.before(8).lower()
    return _given(candidate) if quoted or _STATEMENT.search(candidate.before(160)) else None


def _is_long_key(text: str) -> bool:
    """Tell whether frameworks sign with this literal of any characters; sixty hold a placeholder's signs by chance."""
    return entropy(text) >= 3.6 and (len(text) >= _LEAST_BY_CHANCE or not is_placeholder(text.lstrip("$")))


# Signs of templates, expressions, markup and addresses, and a word of five letters.
_CODE = compile_re2(
    r"://|\$[{(A-Za-z]|\{\{|#\{|%[({sd]|\{[A-Za-z_][\w.]*\}|</|/>|=>|->|::|\(\)|&&|\|\||\\|^[(<\[{].*[)>\]}]$|^\^|\$$|[a-z]{5}"
    r"|[A-Z]{6}|\w\.\w+\(|\[\w+\]|^[./~]|^(?i:test|demo|valid|invalid|wrong|strong|secure)(?i:pass(?:word)?)?[@#!]?123(?:45?)?\W{0,3}$"
)
# Values that documents have beside the name of a password: methods, sizes, versions.
_ABOUT = compile_re2(
    r"(?i)^(?:v\d+(?:alpha|beta|rc)|sha-?\d|md5|base-?\d\d|utf-?\d|pbkdf|hmac|argon|bcrypt|scrypt|oauth|ntlm|2fa|u2f|rfc-?\d"
    r"|v?\d+[.x+-]|\d+\w{0,5}$|int\d|varchar|uint|http|char)"
)
_LEAST_MADE = 10


def _argument(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value that stands where only a password can, unless it is a variable or names a password."""
    text = candidate.text.rstrip(".,;)")
    if len(text) < _LEAST or text[0] in "$%<{[-(*@," or is_word_for_password(text):
        return None
    return candidate.truncated(len(text.encode()))


def _of_signs(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value with all four kinds of characters, and neither a word nor code in it."""
    text, before = candidate.text, candidate.before(48)
    if is_hash(text) or _CODE.search(text) or count_character_classes(text) < _ALL_CLASSES or entropy(text) < 3.2:
        return None
    harmless = is_other_name(before) or is_harmless_name(before) or is_name_of_next(candidate)
    return None if harmless else candidate


def _misspelt(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a mixed value behind a misspelt or shortened name, which nothing else is called."""
    text = candidate.text
    if len(text) < _LEAST_DIGITS or _ABOUT.search(text) or is_something_else(text):
        return None
    return None if is_other_name(candidate.before(48)) else _mixed(candidate)


_chosen_password = partial(CandidatePattern, "chosen_password", _LABEL)
PATTERNS = (
    _chosen_password(
        rf"(?i){_NAMES}{_SUFFIX}{_CLOSE}(?:{_OPERATOR}|{_PAIRED}){_LITERAL}",
        _chosen,
        gate=rf"{NAMES_A_PASSWORD}|(?i)secret",
        overlapping=True,
        often=True,
    ),
    _chosen_password(
        r"(?i)<[\w.:-]{0,40}(?:password|passwd|pwd|passphrase)\b[^<>]{0,60}>([^<>\s]{4,})</",
        _chosen,
    ),
    _chosen_password(
        r"(?i)\bcurl\b[^\n]{0,100}? (?:-u[ =]?|--user[ =]|-U ?|--proxy-user[ =])[\"']?[^\s:\"']{1,60}:([^\s\"'@$]{4,})",
        _given,
    ),
    # Settings, one to a line; the value goes to the end of it.
    _chosen_password(
        r"(?im)^[ \t#/;*>-]{0,12}(?:export |set |env )?[a-z0-9_.-]{0,40}(?:password|passwd|pwd|passphrase"
        r"|_pass)\d?[\"']? ?[:=] ?"
        r"[\"']?([^\s\"'`<>;]{5,})[\"']?[,;]?[ \t\r]*$",
        _mixed,
    ),
    # Strings for connections, whichever comes first.
    _chosen_password(
        r"(?i)\b(?:user(?: ?id|name)?|uid)\s*=\s*[^;\n]{1,80};[^\n]{0,60}?\b(?:password|pwd)\s*=\s*"
        r"([^;\s\"'<>]{3,})",
        _given,
        gate=r"(?i)\b(?:user|uid)[^;=\n]*=[^;\n]*;[^\n]*\b(?:password|pwd)\s*=",
    ),
    _chosen_password(
        r"(?i)\b(?:password|pwd)\s*=\s*([^;\s\"'<>]{3,})\s*;[^\n]{0,60}?\b(?:user(?: ?id|name)?|uid|server"
        r"|database)\s*=",
        _given,
        gate=r"(?i)\b(?:password|pwd)\s*=[^;\n]*;[^\n]*=",
    ),
    _chosen_password(
        r"(?i)\bconvertto-securestring\s+(?:-[a-z]+\s+){0,3}\\{0,3}[\"']?([^\s\"'$\\-][^\s\"'\\]{3,})",
        _given,
    ),
    # SQL's statements about users.
    _chosen_password(
        r"(?i)\bidentified(?: with [\w'\"]{1,40})? (?:by|as)(?: password| values)?\s*[\"']?([^\s\"';,()]{4,})",
        _identified,
    ),
    _chosen_password(
        r"(?i)\b(?:create|alter)\s+(?:user|role|login)\b[^\n;]{1,}?\bpassword\s*=?\s*N?[\"']([^\s\"']{4,})",
        _given,
        gate=r"(?i)\b(?:create|alter)\s+(?:user|role|login)\b[^\n;]+\bpassword",
    ),
    _chosen_password(
        r"(?i)\bmachine\s+[^\s]{1,}\s+login\s+[^\s]{1,64}\s+password\s+([^\s]{4,})",
        _given,
        gate=r"(?i)\bmachine\s",
    ),
    _chosen_password(
        r"(?i)\bpassword (?:is|was):? ?[\"'`]([^\s\"'`<>]{4,60})[\"'`]",
        _given,
    ),
    # Keys that frameworks sign with: any characters, also blanks and brackets.
    CandidatePattern(
        "signing_key",
        "SECRET",
        r"\b(?:SECRET_KEY|SECRET_KEY_BASE|(?:SECURE_)?AUTH_KEY|LOGGED_IN_KEY|NONCE_KEY|(?:SECURE_)?AUTH_SALT"
        r"|LOGGED_IN_SALT|NONCE_SALT|"
        r"APP_KEY)[\"']?\s{0,4}[=,:]\s{0,24}[rbu]?[\"']([^\"'\n]{24,})[\"']",
        text_check(_is_long_key),
    ),
    # Signs of all kinds, as password managers generate them.
    _chosen_password(
        rf"(?i)(?:{NAMES_OF_PASSWORDS})[a-z0-9_-]{{0,12}}{_CLOSE}\s{{0,3}}(?::?={{1,3}}>?|!={{1,2}}|\?:|\|\||\?\?|or\b|:|,|->|\(|value=)"
        r"\s{0,3}[$@bruf]{0,2}[\"'`]([^\s\"'`][^\s\"`]{9,60}?)[\"'`](?:[,;:)\s\]}/>]|$)",
        _of_signs,
        often=True,
    ),
    # `#define PASSWORD "…"`, `SET password "…"`, `%global password "…"`.
    _chosen_password(
        rf"(?i)(?:define|global|set|env|arg)(?:[ \t]|\\t){{1,4}}"
        rf"[a-z0-9_]{{0,40}}{_NAMES}[a-z0-9_]{{0,12}}(?:[ \t]|\\t){{1,4}}{_LITERAL}",
        _mixed,
    ),
    _chosen_password(
        r"(?i)(?:pa?ss?wo?r?d|passwo[a-z]{1,3}d)\d?[\"']?\s{0,2}(?::=|[:=!]=?)\s{0,2}"
        r"[\"'`]?([^\s\"'`<>;,=$%{][^\s\"'`<>;,]{5,99})",
        _misspelt,
        overlapping=True,
    ),
    # Variables of an environment, in whatever file lists them.
    _chosen_password(
        r"(?m)^[ \t]*#?[ \t]*(?:export )?[A-Z][A-Z0-9_]{3,40}_PASS(?:WORD)? ?= ?"
        r"[\"']?([^\s\"'`<>$]{6,})[\"']?[ \t]*(?:#[^\n]*)?$",
        _given,
    ),
    # Comparisons.
    _chosen_password(
        rf"(?i)(?:{NAMES_OF_PASSWORDS})[a-z0-9_]{{0,12}}(?:\(\))?\.(?:equals(?:IgnoreCase)?|eql\?|compareTo|isEqualTo\w{{0,8}})"
        rf"\({_LITERAL}",
        lambda candidate: None if _ABOUT.search(candidate.text) else _mixed(candidate),
        often=True,
    ),
    # Variables and options of programs that take a password and nothing else.
    CandidatePattern(
        "login",
        _LABEL,
        r"\b(?:PGPASSWORD|MYSQL_PWD|SSHPASS|RESTIC_PASSWORD|REDISCLI_AUTH)=[\"']?([^\s\"';&|]{4,})",
        _argument,
    ),
    CandidatePattern("login", _LABEL, r"\bsshpass +-p ?[\"']?([^\s\"']{4,})", _argument),
    # Django's own command generates these.
    CandidatePattern(
        "django_secret_key",
        "SECRET",
        r"\bdjango-insecure-([0-9a-z!@#$%^&*(_=+)-]{50})",
        text_check(lambda text: entropy(text) >= 4.2),
    ),
)
