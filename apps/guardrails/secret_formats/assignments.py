"""Secrets that only their name gives away: `password = "…"`, `api_key: …`, "my password is …", `Authorization:
Bearer …`.

Knows how settings, programs and people write a name and its value. A value counts when it could not be a word, a
type, a variable or a call; the span is the value alone.
"""

from __future__ import annotations

import base64
import binascii

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    entropy,
    has_letters_and_digits,
    is_placeholder,
    is_random,
)

_PASSWORDS = (
    r"pass(?:word|wd|phrase|wort)|(?:\b|_)pass(?:code)?|(?:\b|_)pw|pwd|kennwort|contrase[nñ]a|senha|"
    r"mot[_ ]de[_ ]passe|wachtwoord|парол[ья]|has[lł]o|heslo|l[öo]senord|passord|adgangskode|kodeord|salasana|"
    r"jelsz[oó]|[sş]ifre(?:si|niz|m)?|parola|mật khẩu|kata sandi|κωδικός|पासवर्ड|סיסמה|كلمة (?:المرور|السر)|"
    r"رمز عبور"
)
_TOKENS = (
    r"api[_-]?(?:key|token|secret)|(?:access|auth|refresh|bearer|bot|personal)[_-]?(?:access[_-]?)?(?:key|token)|"
    r"consumer[_-]?key|(?:client|app|consumer|signing|shared|webhook|jwt|session|master|django)[_-]?(?:secret|token)(?:[_-]?key)?|"
    r"secret[_-]?(?:access[_-]?)?(?:key|token)|(?:encryption|private|account|subscription|service|license|signing|hmac|cookie|master|deploy|admin|shared|"
    r"aes|crypto)[_-]?key|"
    r"secret|token|x-api-key|credentials?|pepper"
)
# What may follow a name: "API_KEY_PROD", "secret_key_base".
_SUFFIX = r"(?:[_-](?:base|value|string|prod(?:uction)?|live|dev|staging|main|default|root|admin))?[0-9]?"
_QUOTE = r"(?:\\?[\"'`])"
_IS = rf"{_QUOTE}? ?(?::=|=>|==?|:) ?"
# How a value begins; the check takes the rest of it, which costs less than having the pattern do so.
_VALUE = r"[^\s\"'`<>]{6}"
_LONGEST_REST = 250
_REST = compile_re2(r"[^\s\"'`<>，。；、！？）」]*")  # noqa: RUF001 - these letters are meant
_PROSE_IS = r"is|was|lautet|ist|es|est|é|è|e|to|är|er|on|je|este|là|adalah|είναι|הוא|هي|هو|है"
_PROSE_WORDS = rf"\b(?:{_PASSWORDS})(?: \w{{1,12}}){{0,3}}?(?: (?:{_PROSE_IS})|:|：|是| =) ?[\"'`]?"  # noqa: RUF001 - these letters are meant
_CODE = compile_re2(
    r"[({\[]|\)$|::|->|^(?:self|this|os|process|env|config|settings|req|request|params|args|data|user|options|props|"
    r"secrets|vault)[.\[]"
    r"|^[a-z_]+\d?(?:\.[a-z_]+)*\.[A-Za-z_0-9]+$|^import\.|^[a-z_]\w*(?:\.[A-Z]\w*)+$|^https?://|^(?:~|\.{1,2})/|"
    r"^/[\w.-]*/|^\$[A-Za-z_]|^(?:true|false|null|none|undefined)\b|"
    r"^\w*(?:Types?|Protocol|Factory|Callback|Provider|Options?|Params?|Config|Field|Info|Settings)$|"
    r"^_[a-z]+\d?(?:_[a-z]+\d?)+$"
)
_HASH = compile_re2(
    r"^(?:\$2[aby]\$|\$argon2|\$6\$|\$5\$|pbkdf2_|scrypt:|sha(?:256|512|1)[-:$]|md5[-:$]|\{SSHA|bcrypt)"
)
_NAME = compile_re2(r"^[A-Za-z]+(?:[_-][A-Za-z]+)*$")
_DATE = compile_re2(r"^\d{4}-\d\d-\d\d")
_COMMON = compile_re2(
    r"(?i)^(?:password|passwd|secret|admin|welcome|letmein|qwerty|test|changeme|pass|root|user)[0-9!@#$._-]{0,4}$"
)
# Names of tokens that open nothing.
_NO_SECRET = compile_re2(
    r"(?i)(?:next|page|csrf|xsrf|continuation|cursor|sync|pagination|change|idempotency|cache|"
    r"public)[_-]?(?:page)?[_-]?(?:token|key)\W{0,6}$|secretsmanager:[^\s]*:secret:$"
)
# Keys of test modes, and keys that are meant to be seen.
_OPEN = compile_re2(r"^(?:[prs]k_test_|pk_live_|sandbox[-_]|test[-_])")
# What a value in a list of settings, or in the query of an address, ends at.
_NEXT_SETTING = compile_re2(r"(?:; ?[A-Za-z][A-Za-z ]{1,40}|&[A-Za-z][A-Za-z_]{1,40})=")
# Scripts written without spaces: a sentence goes on right behind what it tells.
_UNSPACED = compile_re2(r"[\p{Hiragana}\p{Katakana}\p{Han}\p{Hangul}]")
_METHOD = compile_re2(r"(?i)sha-?\d|md5|base-?64|utf-?\d|pbkdf|hmac|argon|bcrypt|scrypt|oauth|ntlm|2fa|u2f|rfc ?\d")
_LEAST_TOKEN, _LEAST_PASSWORD = 16, 8


def _whole(hit: CandidateMatch) -> CandidateMatch:
    rest = _REST.match(hit.utf8, hit.end, hit.end + _LONGEST_REST)
    return CandidateMatch(hit.utf8, hit.start, rest.end())


def _value(hit: CandidateMatch) -> CandidateMatch | None:
    """Return the candidate without what belongs to the sentence or the program around it."""
    hit = _whole(hit)
    text = hit.text
    if hit.before(1) not in (b'"', b"'", b"`"):
        text = text.rstrip(".,;:)")
    elif hit.after(1) not in (b'"', b"'", b"`"):
        return None  # a quoted phrase of several words
    if (following := _NEXT_SETTING.search(text)) and following.start() > 0:
        text = text[: following.start()]
    text = text.rstrip("\\").removesuffix("\\n")
    return hit.truncated(len(text.encode())) if text else None


def _is_something_else(text: str) -> bool:
    return bool(_CODE.search(text) or _HASH.search(text) or _NAME.match(text) or _DATE.match(text)) or is_placeholder(
        text
    )


def _password(hit: CandidateMatch) -> CandidateMatch | None:
    value = _value(hit)
    if value is None or len(value.text) < _LEAST_PASSWORD:
        return None
    text = value.text
    if not (has_letters_and_digits(text) or count_character_classes(text) >= 3):
        return None
    return None if _COMMON.match(text) or _is_something_else(text) or entropy(text) < 2.5 else value


def _token(hit: CandidateMatch) -> CandidateMatch | None:
    value = _value(hit)
    if value is None or len(value.text) < _LEAST_TOKEN or not has_letters_and_digits(value.text):
        return None
    if _NO_SECRET.search(hit.before(48)) or _is_something_else(value.text) or _OPEN.match(value.text):
        return None
    return value if is_random(value.text, 3.0) else None


def _prose_password(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept a password told in a sentence: mixed, and no word of the sentence."""
    hit = _whole(hit)
    text = hit.text
    if text[0].isascii() and (prose := _UNSPACED.search(text)):
        text = text[: prose.start()]
    text = text.rstrip(".,;:?)\"'`")
    if len(text) < _LEAST_PASSWORD or not has_letters_and_digits(text) or text[0] in "-/" or "://" in text:
        return None
    if _is_something_else(text) or _COMMON.match(text) or (count_character_classes(text) < 3 and entropy(text) < 3.0):
        return None
    return hit.truncated(len(text.encode()))


def _assigned_password(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept a password that only follows the word: what nobody would write there otherwise."""
    value = _prose_password(hit)
    return (
        value
        if value is not None and count_character_classes(value.text) >= 3 and not _METHOD.search(value.text)
        else None
    )


def _quoted(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept a value that follows its quoted name in a list or a call, where names and labels stand as well."""
    value = _prose_password(hit)
    if value is None or value.text.islower() or count_character_classes(value.text) < 3:
        return None
    return value if value.after(1) in (b'"', b"'") else None


def _bearer(hit: CandidateMatch) -> CandidateMatch | None:
    return hit if has_letters_and_digits(hit.text) and is_random(hit.text, 3.0) and not _CODE.search(hit.text) else None


def _basic(hit: CandidateMatch) -> CandidateMatch | None:
    """Accept what decodes to `user:password`."""
    try:
        user, colon, password = base64.b64decode(hit.text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    printable = (user + password).isprintable()
    return hit if colon and printable and len(password) >= 6 and not is_placeholder(password) else None


def _login(hit: CandidateMatch) -> CandidateMatch | None:
    text = hit.text
    if is_placeholder(text) or _CODE.search(text) or _COMMON.match(text) or text[0] == "$":
        return None
    return (
        hit if count_character_classes(text) >= 3 or (has_letters_and_digits(text) and is_random(text, 3.0)) else None
    )


PATTERNS = (
    CandidatePattern(
        "bearer_token",
        "SECRET",
        r"(?i)\b(?:bearer|authorization[\"']? ?[:=] ?[\"']?token) +([A-Z0-9._~+/-]{16,400}=*)",
        _bearer,
    ),
    CandidatePattern(
        "basic_auth", "SECRET", r"(?i)authorization[\"']? ?[:=] ?[\"']?basic +([A-Z0-9+/]{8,400}={0,2})", _basic
    ),
    CandidatePattern(
        "login", "PASSWORD", r"(?:^|\s)(?:-u|--user)[ =]?[\"']?[A-Za-z0-9_.@-]{1,60}:([^\s\"'@]{6,100})", _login
    ),
    CandidatePattern(
        "password",
        "PASSWORD",
        rf"(?i)(?:{_PASSWORDS}){_SUFFIX}{_IS}{_QUOTE}?({_VALUE})",
        _password,
        overlapping=True,
    ),
    CandidatePattern("password", "PASSWORD", rf"(?i)<[\w.:-]{{0,40}}(?:{_PASSWORDS}|{_TOKENS})>({_VALUE})", _password),
    CandidatePattern("password", "PASSWORD", rf"(?i)\blogin [^\s]{{1,64}}\s+password ({_VALUE})", _prose_password),
    CandidatePattern(
        "password", "PASSWORD", rf"(?i)(?:{_PASSWORDS}|{_TOKENS}){_SUFFIX}[\"'] ?, ?[\"']({_VALUE})", _quoted
    ),
    CandidatePattern("login", "PASSWORD", r"\bsshpass +-p ?[\"']?([^\s\"']{6,100})", _login),
    # The programs that take a password behind a letter.
    CandidatePattern(
        "login",
        "PASSWORD",
        r"\b(?:(?:mysql(?:dump|admin|import)?|mariadb(?:-dump)?|mongo(?:sh|dump|restore)?|docker login|az login)"
        r"\b[^\n|;&]{0,120}? -p[ =]?"
        r"|redis-cli\b[^\n|;&]{0,120}? -a |(?:ldap(?:search|add|modify|passwd)|ipmitool)\b[^\n|;&]{0,120}? -[wP] "
        r"|(?:sqlcmd|bcp|zip|unzip)\b[^\n|;&]{0,120}? -P ?|smbclient\b[^\n|;&]{0,120}? -U ?[\"']?[^\s%]{1,60}%"
        r"|keytool\b[^\n|;&]{0,200}? -(?:store|key)pass |\bpass(?:in|out) pass:|net user [^\s]{1,60} )"
        r"[\"']?([^\s\"']{6,100})",
        _login,
    ),
    CandidatePattern(
        "login", "PASSWORD", r"(?i)\bConvertTo-SecureString (?:-String )?[\"']([^\s\"']{6,100})[\"']", _login
    ),
    CandidatePattern(
        "password",
        "PASSWORD",
        r"(?i)\b(?:identified(?: with [\w'\"]{1,40})? (?:by|as)(?: password)?|password(?: =)?(?: password\()?) ?"
        r"'([^\s']{6,100})'",
        _login,
    ),
    CandidatePattern(
        "login",
        "PASSWORD",
        r"(?i)(?:\bauth ?= ?\(|\.login\() ?[\"'][^\"'\n]{1,64}[\"'], ?[\"']([^\"'\s]{6,100})[\"']",
        _login,
    ),
    CandidatePattern(
        "password", "PASSWORD", rf"(?i)--?(?:password|pass|pwd)[= ][\"']?({_VALUE})", _password, overlapping=True
    ),
    CandidatePattern("password", "PASSWORD", rf"(?i){_PROSE_WORDS}({_VALUE})", _prose_password, overlapping=True),
    CandidatePattern(
        "password",
        "PASSWORD",
        rf"(?i)(?:\b(?:with|using|and|use|try) (?:the )?(?:password|passphrase|passcode|pwd?)|şifresi|şifre|hasło|"
        rf"jelszó|mit (?:dem )?passwort|avec le mot de passe|con (?:la )?contraseña|com a senha|con la password) "
        rf"({_VALUE})",
        _assigned_password,
    ),
    CandidatePattern(
        "password",
        "PASSWORD",
        r"(?:密码|密碼|口令|パスワード|비밀번호|암호|비번)[^\n0-9A-Za-z]{0,6}([!-~]{6})",
        _prose_password,
    ),
    CandidatePattern(
        "api_key",
        "SECRET",
        rf"(?i)(?:{_TOKENS}){_SUFFIX}{_IS}{_QUOTE}?({_VALUE})",
        _token,
        overlapping=True,
    ),
    CandidatePattern(
        "api_key",
        "SECRET",
        rf"(?i)(?:{_TOKENS}|api key|secret key)(?: \w{{1,12}}){{0,2}}? (?:is|was|=) [\"'`]?({_VALUE})",
        _token,
        overlapping=True,
    ),
)
