"""Secrets that only their name gives away: `password = "…"`, `api_key: …`, `Authorization: Bearer …`.

It covers the notations of settings, programs and people. A value counts when it could not be a word, a
type, a variable or a call; the span is the value alone.
"""

from __future__ import annotations

from functools import partial

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import (
    count_character_classes,
    entropy,
    has_letters_and_digits,
    is_made_of_letters,
    is_placeholder,
    is_random,
)

NAMES_OF_PASSWORDS = (
    r"pass(?:word|wd|phrase|wort)|(?:\b|_)pass(?:code)?|(?:\b|_)pw|pwd|kennwort|contrase[nñ]a|senha|"
    r"mot[_ ]de[_ ]passe|wachtwoord|парол[ья]|has[lł]o|heslo|l[öo]senord|passord|adgangskode|kodeord|salasana|"
    r"jelsz[oó]|[sş]ifre(?:si|niz|m)?|parola|mật khẩu|kata sandi|κωδικός|पासवर्ड|סיסמה|كلمة (?:المرور|السر)|"
    r"رمز عبور|(?:user|root|admin|db|sql|smtp|ftp|ssh|mail|bind|sudo|key|store|wifi)(?:pass|pw)\b|requirepass|"
    r"\bpsk\b|_psk\b"
)
# Only texts that contain this are searched for a password behind its name.
NAMES_A_PASSWORD = rf"(?i)(?:{NAMES_OF_PASSWORDS})"
_TOKENS = (
    r"api[_-]?(?:key|token|secret)|(?:access|auth|refresh|bearer|bot|personal)[_-]?(?:access[_-]?)?(?:key|token)|"
    r"consumer[_-]?key|(?:client|app|consumer|signing|shared|webhook|jwt|session|master|django)[_-]?(?:secret|token)(?:[_-]?key)?|"
    r"secret[_-]?(?:access[_-]?)?(?:key|token)|(?:encryption|private|account|subscription|service|license|signing|hmac|cookie|master|deploy|admin|shared|"
    r"aes|crypto)[_-]?key|"
    r"secret|token|x-api-key|credentials?|pepper"
)
# Suffixes of a name: "API_KEY_PROD", "secret_key_base".
_SUFFIX = r"s?(?:[_-](?:base|value|string|prod(?:uction)?|live|dev|staging|main|default|root|admin))?[0-9]?"
_QUOTE = r"(?:\\?[\"'`])"
_IS = rf"{_QUOTE}? ?(?::=|=>|==?|\?=|:) ?"
# How a value begins; the check takes the rest of it, which costs less than having the pattern do so.
_VALUE = r"[^\s\"'`<>]{6}"
_MAX_REST = 250
_REST = compile_re2(r"[^\s\"'`<>，。；、！？）」]*")  # noqa: RUF001 - these letters are meant
_PROSE_IS = r"is|was|lautet|ist|es|est|é|è|e|to|är|er|on|je|este|là|adalah|είναι|הוא|هي|هو|है"
# "To pass" is a verb in sentences.
_PROSE_NAMES = NAMES_OF_PASSWORDS.replace(r"(?:\b|_)pass(?:code)?", "passcode")
_PROSE_WORDS = rf"\b(?:{_PROSE_NAMES})(?: \w{{1,12}}){{0,3}}?(?: (?:{_PROSE_IS})|:|：|是| =) ?[\"'`]?"  # noqa: RUF001 - these letters are meant
# Words behind the name in a sentence about passwords.
_ABOUT_ONE = compile_re2(
    r"(?i)(?:manager|safe|vault|types?|fields?|box|policy|policies|rules?|hash\w*|length|strength|expir\w*|prompt|entry|"
    r"form|page|generator|hint|reset\w*|class|format|method|name|id)\b[^\n]{0,16}$"
)
_CODE = compile_re2(
    r"[({\[]|\)$|::|->|^(?:self|this|os|process|env|config|settings|req|request|params|args|data|user|options|props|"
    r"secrets|vault)[.\[]"
    r"|^[a-z_]+\d?(?:\.[a-z_]+)*\.[A-Za-z_]+(?:\d{1,4}[A-Za-z_]*)?$|^import\.|^(?:op|vault|ssm|arn|urn|file|secretref|projects)[:/]|^[a-z_]\w*(?:\.[A-Z][A-Za-z_]*\d?)+$|^https?://|^(?:~|\.{1,2})/|"
    r"^/[\w.-]*/|^\$[A-Za-z_]|^(?:true|false|null|none|undefined)\b|"
    r"^\w*(?:Types?|Protocol|Factory|Callback|Provider|Options?|Params?|Config|Field|Info|Settings|(?:Public|Private)Key)$|"
    r"^_[a-z]+\d?(?:_[a-z]+\d?)+$|^[a-z_]+(?::[\w,]+)?\|[a-z]"
    r"|^[a-z]+[A-Z][A-Za-z]*(?:\.[a-z][A-Za-z]*)+$|^[A-Z][a-z]+[:?]$|^,[A-Za-z]+:$|-\d+(?:\.\d+){1,3}$"
    r"|^\[?(?:String|ID|Int|Float|Boolean)!?\]?!$|^&[A-Za-z]+="
    # Constants, numbered names, settings by their path, flags, and packages with their version.
    r"|^(?:[A-Z]+\d?[A-Z]*\d{0,2})(?:_[A-Z]*\d?[A-Z]*\d{0,2})+$|^[a-z]+\d?(?:_(?:[a-z]+\d{0,3}|\d{1,3}[a-z]?))+$"
    r"|^[a-z][\w-]*(?:\.[a-z][\w-]*)+=|^\w+=(?:True|False|None|true|false|null)$|^--?[A-Za-z][\w.-]*="
    r"|^[A-Z]{2,}(?:_[A-Z]{2,})*_(?:ED|X|SHA|AES|RSA|SECP|P)\d{1,5}[A-Z]?\d?$"
    # Pointers, members of a resource, and versions.
    r"|^[*&][A-Za-z_]\w*(?:\.\w+)*$|^[a-z]+(?:_[a-z]+)+\.[\w-]+\.[a-z_]+$|^v?\d+(?:\.\d+){2,}(?:[/+-][\w./+-]*)?$|^/[A-Za-z]+$"
    r"|^[\w.-]+/[\w./-]*\.(?:py|js|ts|go|rs|rb|java|md|json|ya?ml|toml|sh|txt)\b"
    r"|^[a-z]\w*(?:\.[\w-]+)+:[a-z][\w.-]*(?::v?\d[\w.-]*)?$|^[A-Za-z][\w.-]*[=~!]=\d+(?:\.\w+)*$"
)
# Names joined by slashes, as of a test and its case, or of a function and the number of its arguments; and public
# identifiers, as of vulnerabilities.
_PATH_OF_NAMES = compile_re2(r"^[A-Za-z_]+\d{0,2}(?:/(?:[A-Za-z_]+\d{0,2}|\d))+$")
_PUBLIC_ID = compile_re2(
    r"(?i)^(?:CVE|CWE|CAN|GO|PYSEC|RUSTSEC|OSV|MAL|ALAS|RH[SBE]A|USN|DSA|ELSA|SUSE|JVN(?:DB)?|ICSA|ZDI)-\d{2,4}[-:]\d{3,7}"
    r"|^GHSA(?:-[0-9a-z]{4}){3}$|^SNYK-|^[A-Z]{4,}-\d{5,8}$"
)
# Words that only begin like the name of a password.
_PASSES = compile_re2(
    r"(?i)(?:^|[^a-z])pass(?:ing|ed|es|enger|age|ive|ion|port|through|thru|[_-]?(?:rate|count|fail|at|threshold))"
    r"[\w-]{0,16}[\"'`\]\\)}]{0,4}\s{0,3}[:=,(>]{0,3}\s{0,3}[(\[]?[$@bruf]{0,2}\\{0,3}[\"'`]?$"
)
# A quoted word with a colon behind it is the name of the next value.
_NAMES_NEXT = compile_re2(r"^\\?[\"'`]\s{0,3}:")
_HASH = compile_re2(
    r"^(?:\$2[aby]\$|\$argon2|\$6\$|\$5\$|pbkdf2_|scrypt:|sha(?:256|512|1)[-:$]|md5[-:$]|\{SSHA|bcrypt|ENC[(\[]|\{cipher\})"
)
_NAME = compile_re2(r"^[A-Za-z]+(?:[_-][A-Za-z]+)*$")
_DATE = compile_re2(r"^\d{4}-\d\d-\d\d")
_COMMON = compile_re2(
    r"(?i)^(?:password|passwd|secret|admin|welcome|letmein|qwerty|test|changeme|pass|root|user)[0-9!@#$._-]{0,4}$"
)
# Names of tokens that open nothing.
_NO_SECRET = compile_re2(
    r"(?i)(?:next|page|csrf|xsrf|continuation|cursor|sync|pagination|change|idempotency|cache|"
    r"public|mixpanel|posthog)[_-]?(?:page|api|project|project[_-]api)?[_-]?(?:token|key)\W{0,6}$|"
    r"token(?:izer|_embd|_type|_embeddings?)[\w.]{0,32}\W{0,6}$|"
    r"authorization\W{1,4}basic $|secretsmanager:[^\s]*:secret:$"
)
# Keys of test modes, and keys that are meant to be seen.
_OPEN = compile_re2(r"^(?:[prs]k_test_|pk_live_|phc_|sandbox[-_]|test[-_])")
# End of a value in a list of settings, or in the query of an address.
_NEXT_SETTING = compile_re2(r"(?:; ?[A-Za-z][A-Za-z ]{1,40}|&[A-Za-z][A-Za-z_]{1,40})=")
# Scripts written without spaces: a sentence goes on right behind what it tells.
_UNSPACED = compile_re2(r"[\p{Hiragana}\p{Katakana}\p{Han}\p{Hangul}]")
_METHOD = compile_re2(r"(?i)sha-?\d|md5|base-?64|utf-?\d|pbkdf|hmac|argon|bcrypt|scrypt|oauth|ntlm|2fa|u2f|rfc ?\d")
_SIGN_WITHIN = compile_re2(r"^[A-Za-z0-9]+[$!#%&^][A-Za-z0-9$!#%&^]*[A-Za-z0-9]$")
_LEAST_TOKEN, _LEAST_PASSWORD = 16, 8


def _whole(candidate: CandidateMatch) -> CandidateMatch:
    rest = _REST.match(candidate.utf8, candidate.end, candidate.end + _MAX_REST)
    return CandidateMatch(candidate.utf8, candidate.start, rest.end())


def _value(candidate: CandidateMatch) -> CandidateMatch | None:
    """Return the candidate without what belongs to the sentence or the program around it."""
    candidate = _whole(candidate)
    text = candidate.text
    if candidate.before(1) not in (b'"', b"'", b"`"):
        text = text.rstrip(".,;:)") if "{" in text else text.rstrip(".,;:)}")
    elif candidate.after(1) not in (b'"', b"'", b"`"):
        return None  # a quoted phrase of several words
    if (following := _NEXT_SETTING.search(text)) and following.start() > 0:
        text = text[: following.start()]
    text = text.rstrip("\\").removesuffix("\\n")
    return candidate.truncated(len(text.encode())) if text else None


def is_something_else(text: str) -> bool:
    """Tell whether a value is code, a digest, a name, a path of names, a date, a public identifier or a placeholder."""
    other = (_CODE, _HASH, _NAME, _DATE, _PATH_OF_NAMES, _PUBLIC_ID)
    return any(pattern.search(text) for pattern in other) or is_placeholder(text)


def is_name_of_next(candidate: CandidateMatch) -> bool:
    """Tell whether a quoted text is the name of the value behind it: `"type": "password", "protocol": …`."""
    return bool(_NAMES_NEXT.search(candidate.after(8)))


def is_hash(text: str) -> bool:
    """Tell whether a value is what a function for passwords made of one."""
    return bool(_HASH.search(text))


def is_harmless_name(before: bytes) -> bool:
    """Tell whether what stands before a value names a token that opens nothing."""
    return bool(_NO_SECRET.search(before))


def is_test_key(text: str) -> bool:
    """Tell whether a key is one of a test mode, or one that everybody may see."""
    return bool(_OPEN.match(text))


def is_code_or_common(text: str) -> bool:
    """Tell whether a value is code, or a password that everybody tries first."""
    return bool(_CODE.search(text) or _COMMON.match(text))


def accept_password(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a chosen password: mixed, and neither a word nor a name nor code."""
    value = _value(candidate)
    if value is None or is_name_of_next(value) or _PASSES.search(candidate.before(48)):
        return None
    text = value.text
    if len(text) < _LEAST_PASSWORD or not (has_letters_and_digits(text) or count_character_classes(text) >= 3):
        return None
    return None if _COMMON.match(text) or is_something_else(text) or entropy(text) < 2.5 else value


def _token(candidate: CandidateMatch) -> CandidateMatch | None:
    value = _value(candidate)
    if value is None or len(value.text) < _LEAST_TOKEN or not has_letters_and_digits(value.text):
        return None
    if is_harmless_name(candidate.before(48)) or is_something_else(value.text) or is_test_key(value.text):
        return None
    return value if is_random(value.text, 3.0) else None


def _prose_password(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a password in a sentence: mixed, and no word of the sentence."""
    candidate = _whole(candidate)
    text = candidate.text
    if text[0].isascii() and (prose := _UNSPACED.search(text)):
        text = text[: prose.start()]
    text = text.rstrip(".,;:?)\"'`")
    if len(text) < _LEAST_PASSWORD or not has_letters_and_digits(text) or text[0] in "-/" or "://" in text:
        return None
    if is_something_else(text) or _COMMON.match(text) or (count_character_classes(text) < 3 and entropy(text) < 3.0):
        return None
    return candidate.truncated(len(text.encode()))


def _said_password(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a password, but nothing behind words that say something of passwords: "the password type is"."""
    return None if _ABOUT_ONE.search(candidate.before(48)) else _prose_password(candidate)


def _assigned_password(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a password that only follows the word: a text that is implausible there otherwise."""
    value = _prose_password(candidate)
    if value is None or count_character_classes(value.text) < 3 or _METHOD.search(value.text):
        return None
    return value


def _short(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept six or seven letters and digits, or a word with a letter written as a sign: `super$ecret`."""
    text = candidate.text.rstrip("\\")
    if is_something_else(text) or _COMMON.match(text) or _METHOD.match(text) or text != candidate.text:
        return None
    if _SIGN_WITHIN.search(text) and len(text) >= _LEAST_PASSWORD:
        return candidate
    return candidate if has_letters_and_digits(text) and text.isalnum() and len(set(text)) >= 5 else None


def _quoted(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a value that follows its quoted name in a list or a call, where names and labels stand as well."""
    value = _prose_password(candidate)
    if value is None or is_name_of_next(value) or value.text.islower() or count_character_classes(value.text) < 3:
        return None
    return value if value.after(1) in (b'"', b"'") else None


def _is_bearer_token(text: str) -> bool:
    is_made = has_letters_and_digits(text) or is_made_of_letters(text)
    return is_made and is_random(text, 3.0) and not _CODE.search(text)


_password = partial(CandidatePattern, "password", "PASSWORD")
_api_key = partial(CandidatePattern, "api_key", "SECRET")
PATTERNS = (
    CandidatePattern(
        "bearer_token",
        "SECRET",
        r"(?i)\b(?:bearer|authorization[\"']? ?[:=] ?[\"']?"
        r"(?:token|ntlm|negotiate|apikey|api-key|key|sso-key|pat)) +([A-Z0-9._~+/-]{16,}=*)",
        text_check(_is_bearer_token),
    ),
    _password(
        rf"(?i)(?:{NAMES_OF_PASSWORDS}){_SUFFIX}{_IS}{_QUOTE}?({_VALUE})",
        accept_password,
        overlapping=True,
        often=True,
    ),
    _password(rf"(?i)<[\w.:-]{{0,40}}(?:{NAMES_OF_PASSWORDS}|{_TOKENS})>({_VALUE})", accept_password),
    _password(rf"(?i)\blogin [^\s]{{1,64}}\s+password ({_VALUE})", _prose_password),
    _password(rf"(?i)(?:{NAMES_OF_PASSWORDS}|{_TOKENS}){_SUFFIX}[\"'] ?, ?[\"']({_VALUE})", _quoted, often=True),
    # Short, but quoted: a plain word is not quoted beside that name.
    _password(rf"(?i)(?:{NAMES_OF_PASSWORDS}){_SUFFIX}{_IS}{_QUOTE}([^\s\"'`<>]{{6,40}})[\"'`]", _short, often=True),
    _password(
        rf"(?i)--?(?:password|passphrase|pass|pwd)[= ][\"']?({_VALUE})",
        accept_password,
        overlapping=True,
    ),
    _password(
        rf"(?i){_PROSE_WORDS}({_VALUE})",
        _said_password,
        overlapping=True,
        often=True,
    ),
    _password(
        rf"(?i)(?:\b(?:with|using|and|use|try) (?:the )?(?:password|passphrase|passcode|pwd?)|şifresi|şifre|hasło|"
        rf"jelszó|mit (?:dem )?passwort|avec le mot de passe|con (?:la )?contraseña|com a senha|con la password) "
        rf"({_VALUE})",
        _assigned_password,
        often=True,
    ),
    _password(
        r"(?:密码|密碼|口令|パスワード|비밀번호|암호|비번)[^\n0-9A-Za-z]{0,6}([!-~]{6})",
        _prose_password,
    ),
    _api_key(
        rf"(?i)(?:{_TOKENS}){_SUFFIX}{_IS}{_QUOTE}?({_VALUE})",
        _token,
        overlapping=True,
        often=True,
    ),
    _api_key(
        rf"(?i)(?:{_TOKENS}|api key|secret key)(?: \w{{1,12}}){{0,2}}? (?:is|was|=) [\"'`]?({_VALUE})",
        _token,
        overlapping=True,
        often=True,
    ),
)
