"""Passwords and keys that only their place in a call gives away: `getConnection(url, "anja", "…")`, `jwt.sign(x, "…")`.

Knows which argument of functions that connect, sign in, sign, encrypt and compare is the secret: those of databases,
directories, servers of files and mail, key stores, signed tokens (JWT), ciphers and sessions, in a dozen languages. Any
word counts there. What stands for one, a method and a variable pass.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.chosen_passwords import is_no_password, is_other_name, is_stand_in
from apps.guardrails.secret_formats.entropy import entropy, has_letters_and_digits

_LEAST, _LEAST_BITS = 5, 1.9
_OPEN = r"[$@bruf]{0,2}\\{0,3}[\"'`]"
_LITERAL = rf"{_OPEN}([^\s\"'`<>\\]{{5,80}})\\{{0,3}}[\"'`]"
_STRING = r"[$@bruf]{0,2}[\"'`][^\"'`\n]{0,60}[\"'`]"
# An argument that says nothing: a literal, a variable, a call, an object.
_ARGUMENT = rf"(?:{_STRING}|[\w.$@>:&*-]{{1,40}}(?:\([^()\n]{{0,40}}\))?)"
_OBJECT = r"\{[^{}]{0,160}(?:\{[^{}]{0,60}\}[^{}]{0,60})?\}"
_NEXT = r"\s{0,3},\s{0,12}"
_WORD = r"(?:password|passwd|pwd|passphrase|pass(?:word)?_?(?:hash|phrase)?)"
# What a name of a password or a secret ends with, and what may stand behind it.
_NAMED = rf"[\w.$>\[\]\"'-]{{0,40}}(?:{_WORD}|secret|token|api_?key)(?:\d?[\"'\]]{{0,2}})"
_METHOD = compile_re2(
    r"(?i)^(?:aes|3?des|rc[245]|rsa|dsa|ec|ed25519|blowfish|chacha\w*|[hrep]s|hmac|sha|md5|pbkdf2?|bcrypt|argon2\w*|pkcs\d*"
    r"|utf|ascii|latin|base|hex|binary|jwt|cbc|gcm|ecb|ctr|none|x?\d+)[\w./-]{0,24}$"
)
_DIRECTIVE = compile_re2(
    r"(?i)(?:reset|forgot|change|confirm|new|show|hide|toggle|repeat|retype|enter|verify|invalid|wrong|missing|no|has"
    r"|is|check|validate|require[sd]?|ask|prompt|field|label|error|message|hint)[ _-]?" + _WORD + r"\s?\($"
)


def _given(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept any literal that stands where nothing but a password or a key can."""
    text = candidate.text
    if len(text) < _LEAST or _METHOD.search(text) or is_no_password(text) or entropy(text) < _LEAST_BITS:
        return None
    return candidate


def _set(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what is set as a password, unless the name tells of something else: a label, a field."""
    text, before = candidate.text, candidate.before(48)
    if is_stand_in(text) or _DIRECTIVE.search(before.rstrip(b"\"'`")) or is_other_name(before):
        return None
    return None if text[0].isupper() and text[1:].islower() else _given(candidate)


def _compared(candidate: CandidateMatch) -> CandidateMatch | None:
    return None if is_stand_in(candidate.text) else _given(candidate)


def _vector(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a cipher begins with, where it was made: letters and digits."""
    return _given(candidate) if has_letters_and_digits(candidate.text) else None


def _password(pattern: str, check: Check, gate: str) -> CandidatePattern:
    return CandidatePattern("password_argument", "PASSWORD", f"(?i){pattern}", check, f"(?i){gate}")


def _key(pattern: str, check: Check, gate: str) -> CandidatePattern:
    return CandidatePattern("key_argument", "SECRET", f"(?i){pattern}", check, f"(?i){gate}")


_HOST_FIRST = (
    r"(?:mysql_p?connect|mysqli(?:_(?:real_)?connect)?|maxdb(?:_connect)?|pdo|odbc_p?connect|mssql_p?connect|db2_p?connect"
    r"|ifx_p?connect|fbsql_p?connect|imap_open|sequelize|getconnection|(?:pymysql|mysqldb|psycopg2?|pgdb|cx_oracle|oracledb"
    r"|jaydebeapi|mariadb)\.connect|connections\.connection|dbi->connect|ldap_bind|ftp\.open|sftp\.start|ssh\.start"
    r"|digest_auth|createmysqlconnection|plainauth)"
)
_USER_FIRST = (
    r"(?:getconnection|getpooledconnection|getxaconnection|oci_(?:p|new_)?connect|userauth_password|auth_password"
    r"|basic_?auth|digest_?auth|basic_?authentication|basicauthorization|simple_?bind(?:_s)?|login_with_password"
    r"|create(?:queue|topic)?connection|ftp_login|ssh2_auth_password|userpassauth|passwordcredentials?|basicauthinterceptor"
    r"|usernamepassword\w{0,24}|credentials\.basic)"
)
_LITERAL_GATE = r"[$@bruf]*\\*[\"'`][^\s\"'`<>\\]"

PATTERNS = (
    # Databases, directories, mail: a host or an address, a user, a password.
    _password(
        rf"\b{_HOST_FIRST}\s?\(\s{{0,12}}{_ARGUMENT}{_NEXT}{_ARGUMENT}{_NEXT}{_LITERAL}\s{{0,12}}[,)]",
        _given,
        rf"\b{_HOST_FIRST}\s?\(",
    ),
    _password(
        rf"\b{_USER_FIRST}[ (]\s{{0,12}}(?:{_OPEN}[^\"'`\n:/]{{1,60}}[\"'`]|[\w.$@>-]{{1,60}}){_NEXT}{_LITERAL}"
        r"(?:\.\w{1,14}\(\))?\s{0,12}(?:[,)]|$)",
        _given,
        rf"\b{_USER_FIRST}[ (]",
    ),
    # A distinguished name, then its password.
    _password(
        rf"\bbind\w{{0,8}}\s?\(\s{{0,12}}{_OPEN}\w{{1,12}}=[^\"'`\n]{{1,120}}[\"'`]{_NEXT}{_LITERAL}",
        _given,
        rf"\bbind\w*\s?\(\s*{_LITERAL_GATE}\w*=",
    ),
    _password(
        rf"\bauth\s?[=:]\s?[(\[]\s?{_OPEN}[^\"'`\n]{{1,60}}[\"'`]{_NEXT}{_LITERAL}\s?[)\]]",
        _given,
        rf"\bauth\s?[=:]\s?[(\[]\s?{_LITERAL_GATE}",
    ),
    # Both in one: what becomes basic authentication.
    _password(
        r"(?:btoa|b64encode|base64_encode|encode64|base64encode|userpwd[\"']?|\bauth)\s?(?:\(|,|=>?)\s?"
        rf"{_OPEN}[\w.@-]{{1,40}}:([^\s\"'`<>:]{{5,60}})[\"'`]",
        _given,
        rf"(?:btoa|b64encode|base64_encode|encode64|base64encode|userpwd[\"']?|\bauth)\s?(?:\(|,|=>?)\s?{_LITERAL_GATE}",
    ),
    # Setters, and stores of servers and settings.
    _password(
        rf"\b(?:(?:set|with|use|add)_?\w{{0,32}}(?:{_WORD}|secret)|{_WORD}|client_?secret)\s?\(\s?{_LITERAL}"
        r"(?:\.\w{1,14}\(\w{0,12}\))?\s?[,)]",
        _set,
        rf"(?:{_WORD}|secret)\s?\(\s?{_LITERAL_GATE}",
    ),
    _password(
        rf"\b(?:j?edis|redis\w{{0,12}}|commands|client|conn\w{{0,8}})\.auth\(\s?{_LITERAL}\s?\)",
        _set,
        rf"\.auth\(\s?{_LITERAL_GATE}",
    ),
    # Key stores and keys that are made of passwords.
    _password(
        r"(?:\.load|getkey|\.init|\.store|keyentry|pbekeyspec|passwordprotection|passwordauthentication|passwordcallback)"
        rf"\s?\((?:\s{{0,12}}{_ARGUMENT}\s{{0,3}},){{0,3}}\s{{0,12}}{_LITERAL}\.to_?char_?array\(",
        _given,
        r"\.to_?char_?array\(",
    ),
    # Signed tokens.
    _key(
        r"\b(?:jwt|jsonwebtoken|jsonwt|jws|njwt|jose|jwt_?\w{1,12})(?:\.|::)(?:sign|verify|encode|decode|create|parse)\w{0,10}"
        rf"[ (]\s{{0,12}}(?:{_OBJECT}|{_ARGUMENT}){_NEXT}(?:\w{{1,8}}\.as_?key\(|new key\()?{_LITERAL}",
        _given,
        r"\b(?:jwt|jsonwebtoken|jsonwt|jws|njwt|jose|jwt_?\w+)(?:\.|::)(?:sign|verify|encode|decode|create|parse)",
    ),
    _key(
        rf"(?:(?:signedstring|\bhmac\.new)\s?\((?:\s?[\w.]{{1,24}},)?\s?\[\]byte\(\s?|\bhash_hmac\(\s?{_STRING},"
        rf"\s?[^,\n]{{1,60}},\s?){_LITERAL}",
        _given,
        r"(?:signedstring|\bhmac\.new)\s?\(|\bhash_hmac\(",
    ),
    # Ciphers, encoders and sessions.
    _key(
        r"\b(?:(?:iv|gcm)parameterspec\(\s?(?:\d{2,3},\s?)?|(?:pbkdf2|standard|scrypt)passwordencoder\(\s?|create_?secret_?key"
        rf"\(\s?|new.?encrypter\(\s?|secretbox\(\s?){_LITERAL}",
        _given,
        r"\b(?:(?:iv|gcm)parameterspec|(?:pbkdf2|standard|scrypt)passwordencoder|create_?secret_?key|new.?encrypter"
        r"|secretbox)\(",
    ),
    _key(
        rf"\b\w{{0,12}}(?:cipher|crypt|aes|des|hmac)\w{{0,8}}\.(?:key|iv|password)\s?=\s?(?:\[?\w{{1,12}}[.(\[]{{1,2}})?{_LITERAL}",
        _given,
        r"(?:cipher|crypt|aes|des|hmac)\w*\.(?:key|iv|password)\s?=",
    ),
    _key(
        rf"\b(?:iv|initiali[sz]ation_?vector|nonce)[\"']?\s?[:=]\s?(?:[\w.]{{1,40}}\(\s?)?{_OPEN}([0-9A-Za-z+/=]{{12,64}})[\"'`]",
        _vector,
        r"\b(?:iv|initiali[sz]ation_?vector|nonce)[\"']?\s?[:=]",
    ),
    _key(
        r"session(?:\s?\(\s{0,12}\{[^{}]{0,240}?\bkeys[\"']?\s?:\s?\[\s?|\w{0,12}[^\n]{0,40}?\bsecret[\"']?\s?(?::|=>)\s?)"
        rf"{_LITERAL}",
        _given,
        r"session[^\n]*\bsecret[\"']?\s?(?::|=>)|session\s?\(\s*\{",
    ),
    # Comparisons, either way round.
    _password(
        rf"(?:strn?(?:case)?cmp|equals|compare\w{{0,12}}|timingsafeequal)\s?\(\s?(?:\[\]byte\()?{_NAMED}\)?{_NEXT}"
        rf"(?:\[\]byte\()?{_LITERAL}",
        _compared,
        r"(?:strn?(?:case)?cmp|equals|compare\w*|timingsafeequal)\s?\([^\n]*(?:pass|pwd|secret|token|api_?key)",
    ),
    _password(
        rf"{_LITERAL}\.equals\(\s?[\w.]{{0,40}}{_WORD}(?:\(\))?\s?\)",
        _compared,
        rf"[\"'`]\.equals\([^\n]*{_WORD}",
    ),
    _password(
        rf"(?:\.secret(?:\(\))?\s?[!=]={{1,2}}\s?|\b{_WORD}(?:\(\))?\.equals(?:ignorecase)?\(){_LITERAL}",
        _given,
        rf"\.secret(?:\(\))?\s?[!=]=|{_WORD}(?:\(\))?\.equals",
    ),
)
