"""Passwords that only their place in a call gives away: `getConnection(url, "anja", "…")`, `fill("#password", "…")`.

Knows which argument of functions that connect, sign in, set and compare is the password: those of databases,
directories, servers of files and mail, stores of keys, in a dozen languages. Any word counts there. What stands for
one, a method and a variable pass.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.chosen_passwords import is_no_password, is_no_value, is_other_name, is_stand_in
from apps.guardrails.secret_formats.entropy import entropy, has_letters_and_digits
from apps.guardrails.secret_formats.stand_in_words import has_word_of_its_own

_LEAST, _LEAST_BITS = 5, 1.9
OPEN = r"[$@bruf]{0,2}\\{0,3}[\"'`]"
LITERAL = rf"{OPEN}([^\s\"'`<>\\]{{5,80}})\\{{0,3}}[\"'`]"
# What is handed to a function that signs or encrypts may be several words.
PHRASE = rf"{OPEN}([^\s\"'`<>\\][^\"'`<>\\\n]{{3,78}}[^\s\"'`<>\\])\\{{0,3}}[\"'`]"
STRING = r"[$@bruf]{0,2}[\"'`][^\"'`\n]{0,60}[\"'`]"
# How a literal begins, for what texts must hold: without the lengths that an automaton would have to count.
BEGINS = r"[$@bruf]*\\*[\"'`][^\s\"'`<>\\]"
# An argument that says nothing: a literal, a variable, a call.
ARGUMENT = rf"(?:{STRING}|[\w.$@>:&*-]{{1,40}})(?:\.?\w{{0,12}}\([^()\n]{{0,40}}\))?"
NEXT = r"\s{0,3},\s{0,12}"
_WORD = r"(?:password|passwd|pwd|passphrase|pass(?:word)?_?(?:hash|phrase)?)"
# What a name of a password ends with, and what may stand behind it.
_NAMED = rf"[\w.$>\[\]\"'-]{{0,40}}(?:{_WORD}|secret|api_?key)\d?[\"'\]]{{0,2}}"
_METHOD = compile_re2(
    r"(?i)^(?:aes|3?des|rc[245]|rsa|dsa|ec|ed25519|blowfish|chacha\w*|[hrep]s|hmac|sha|md5|pbkdf2?|bcrypt|argon2\w*"
    r"|oauth\w*|bearer|digest|ntlm|kerberos|negotiate|pkcs\d*|ripemd|whirlpool|tiger|snefru|haval|gost"
    r"|utf|ascii|latin|base|hex|binary|jwt|cbc|gcm|ecb|ctr|none|x?\d+)[\w./-]{0,24}$"
)
# Names that have a password's in them and mean something else: a way around, a traveller, what tells of one.
_OTHER_WORD = compile_re2(
    r"(?i)(?:by|com|sur|tres|season_?|boarding_?|\badd_?\w{0,16})pass\W|pass(?:key|enger|port|age|ive)"
    r"|(?:password|passwd|pwd|passphrase)[ _-]?(?:hint|key|length|strength|policy|name|label|age|reminder)"
)
_NAME = compile_re2(r"^[a-z]+(?:[A-Z][a-z]+)+\d{0,2}$")
_DIRECTIVE = compile_re2(
    r"(?i)(?:reset|forgot|change|confirm|new|show|hide|toggle|repeat|retype|enter|verify|invalid|wrong|missing|no|has"
    rf"|is|check|validate|require[sd]?|ask|prompt|field|label|error|message|hint)[ _-]?{_WORD}\s?\($"
)


def accept_argument_of_call(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept any literal that stands where nothing but a password or a key can."""
    text = candidate.text
    if len(text) < _LEAST or _METHOD.search(text) or is_no_value(text) or entropy(text) < _LEAST_BITS:
        return None
    return candidate if has_word_of_its_own(text) or not is_no_password(text) else None


def _set(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what is set as a password, unless the name tells of something else: a label, a field."""
    text, before = candidate.text, candidate.before(48)
    named = _DIRECTIVE.search(before.rstrip(b"\"'`")) or _OTHER_WORD.search(before) or is_other_name(before)
    if is_stand_in(text) or named:
        return None
    return None if text[0].isupper() and text[1:].islower() else accept_argument_of_call(candidate)


def _compared(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what is compared with a password; of words that signs join, only those with a digit."""
    named = is_stand_in(candidate.text) and not has_letters_and_digits(candidate.text)
    return None if named else accept_argument_of_call(candidate)


def _typed(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a test types for a password: no name of a field or a text."""
    other = _NAME.search(candidate.text) or _OTHER_WORD.search(candidate.before(64))
    return None if other else _compared(candidate)


def _password(pattern: str, check: Check, gate: str) -> CandidatePattern:
    return CandidatePattern("password_argument", "PASSWORD", f"(?i){pattern}", check, f"(?i){gate}")


# Functions by what stands before the password: a host or an address and a user; or the user alone.
_HOST_FIRST = (
    r"(?:mysql_(?:real_|p)?connect|mysqli(?:_(?:real_)?connect)?|maxdb(?:_connect)?|pdo|odbc_p?connect|mssql_p?connect"
    r"|db2_p?connect|ifx_p?connect|fbsql_p?connect|imap_open|sequelize|getconnection|forurl|newinstance|singleton"
    r"|(?:pymysql|mysqldb|psycopg2?|pgdb|jaydebeapi|mariadb)\.connect|connections\.connection|dbi->connect|ldap_bind"
    r"|ftp\.open|ftp_login|ssh2_auth_password|sftp\.start|ssh\.start|plainauth|create_?(?:super)?user|pscredential)"
)
_USER_FIRST = (
    r"(?:getconnection|getpooledconnection|getxaconnection|oci_(?:p|new_)?connect|(?:cx_oracle|oracledb)\.connect"
    r"|userauth_password|auth_password|basic_?auth|digest_?auth|basic_?authentication|basicauthorization"
    r"|simple_?bind(?:_s)?|login_with_password|sign_?in_?with_?email\w{0,16}|create(?:queue|topic)?connection|userpassauth"
    r"|passwordcredentials?|basicauthinterceptor|usernamepassword\w{0,24}|credentials(?:\.basic|::new)|pkey::\w{2,3}\.new"
    r"|x509certificate2?|wifi\.begin(?:multi)?|addap)"
)
_SETS = (
    rf"\b(?:(?:set|with|use|add)_?\w{{0,32}}(?:{_WORD}|secret)|(?:(?:trust_?|key_?)?store|key|db|user|admin|root|ssl|bind)?_?"
    rf"{_WORD}|client_?secret)\s?\(\s?"
)

PATTERNS = (
    # Databases, directories, mail.
    _password(
        rf"\b{_HOST_FIRST}\s?\(\s{{0,12}}{ARGUMENT}{NEXT}{ARGUMENT}{NEXT}{LITERAL}\s{{0,12}}[,)]",
        accept_argument_of_call,
        rf"\b{_HOST_FIRST}\s?\(",
    ),
    _password(
        rf"\b{_USER_FIRST}[ (]\s{{0,12}}(?:{OPEN}[^\"'`\n:]{{1,60}}[\"'`]|[\w.$@>-]{{1,60}})(?:\.?\w{{0,12}}\([^()\n]"
        rf"{{0,40}}\))?{NEXT}(?:Some\()?{LITERAL}(?:\.\w{{1,14}}\(\)|\))?\s{{0,12}}(?:[,)]|$)",
        accept_argument_of_call,
        rf"\b{_USER_FIRST}[ (]",
    ),
    # A host, a port, a user.
    _password(
        rf"\bconnect\(\s?{ARGUMENT}{NEXT}\d{{2,5}}{NEXT}{STRING}{NEXT}{LITERAL}",
        accept_argument_of_call,
        r"\bconnect\([^\n]*,\s?\d+,\s?[\"'`]",
    ),
    # A distinguished name, then its password.
    _password(
        rf"\bbind\w{{0,8}}\s?\(\s{{0,12}}{OPEN}\w{{1,12}}=[^\"'`\n]{{1,120}}[\"'`]{NEXT}{LITERAL}",
        accept_argument_of_call,
        rf"\bbind\w*\s?\(\s*{BEGINS}\w*=",
    ),
    _password(
        rf"\bauth\s?[=:]\s?[(\[]\s?{OPEN}[^\"'`\n]{{1,60}}[\"'`]{NEXT}{LITERAL}\s?[)\]]",
        accept_argument_of_call,
        rf"\bauth\s?[=:]\s?[(\[]\s?{BEGINS}",
    ),
    _password(rf"\bcredentialwithuser:{STRING} password:{LITERAL}", accept_argument_of_call, r"\bcredentialwithuser:"),
    # Both in one: what becomes basic authentication.
    _password(
        r"(?:btoa|b64encode|base64_encode|encode64|base64encode|userpwd[\"']?|\bauth)\s?(?:\(|,|=>?)\s?"
        rf"{OPEN}[\w.@-]{{1,40}}:([^\s\"'`<>:]{{5,60}})[\"'`]",
        accept_argument_of_call,
        rf"(?:btoa|b64encode|base64_encode|encode64|base64encode|userpwd[\"']?|\bauth)\s?(?:\(|,|=>?)\s?{BEGINS}",
    ),
    # Setters, and what settings take.
    _password(rf"{_SETS}{LITERAL}(?:\.\w{{1,14}}\(\w{{0,12}}\))?\s?[,)]", _set, rf"(?:{_WORD}|secret)\s?\(\s?{BEGINS}"),
    _password(
        rf"(?:curlopt_(?:proxy)?password|security_credentials|naming\.security\.credentials)[\"']?{NEXT}{LITERAL}",
        accept_argument_of_call,
        r"(?:curlopt_(?:proxy)?password|security[_.]credentials)[\"']?\s*,",
    ),
    _password(
        rf"\b(?:j?edis|red|redis\w{{0,12}}|commands|client|conn\w{{0,8}})(?:\.|->|:)auth\(\s?{LITERAL}\s?\)",
        _set,
        rf"(?:\.|->|:)auth\(\s?{BEGINS}",
    ),
    # Constants of C, a file that builds apps, arrays of characters.
    _password(
        r"(?:#define[ \t]{1,4}\w{0,30}(?:pass(?:word|wd|phrase)?|pwd|psk|secret)|\b(?:store|key)password)[ \t]{1,4}"
        rf"{LITERAL}",
        _set,
        r"(?:#define[ \t]+\w*(?:pass(?:word|wd|phrase)?|pwd|psk|secret)|\b(?:store|key)password)[ \t]",
    ),
    _password(
        rf"(?:pass|password|passwd|pwd|passphrase|secret)\d?\s?\[\w{{0,12}}\]\s?=\s?{LITERAL}",
        _set,
        r"(?:pass|password|passwd|pwd|passphrase|secret)\d?\s?\[\w*\]\s?=",
    ),
    # Key stores and keys that are made of passwords.
    _password(
        r"(?:\.load|getkey|\.init|\.store|keyentry|pbekeyspec|passwordprotection|passwordauthentication|passwordcallback)"
        rf"\s?\((?:\s{{0,12}}{ARGUMENT}\s{{0,3}},){{0,3}}\s{{0,12}}{LITERAL}\.to_?char_?array\(",
        accept_argument_of_call,
        r"\.to_?char_?array\(",
    ),
    # What tests type into a page.
    _password(
        rf"(?:\.(?:fill|type|send_?keys|set_?value)\(|\bfill_in[ (])\s?[\"'`][^\"'`\n]{{0,40}}{_WORD}"
        rf"[^\"'`\n]{{0,12}}[\"'`]{NEXT}(?:with: ?)?{LITERAL}",
        _typed,
        rf"(?:\.(?:fill|type|send_?keys|set_?value)\(|\bfill_in[ (])\s?[\"'`][^\"'`\n]*{_WORD}",
    ),
    _password(
        rf"[#.\"'\[=]{_WORD}[\"'`\])]{{1,5}}\s?\.\s?(?:type|fill|send_?keys|set_?value)\(\s?{LITERAL}",
        _typed,
        rf"{_WORD}[\"'`\])]+\s?\.\s?(?:type|fill|send_?keys|set_?value)\(",
    ),
    # Comparisons, either way round.
    _password(
        rf"(?:strn?(?:case)?cmp|equals|compare\w{{0,12}}|timingsafeequal)\s?\(\s?(?:\[\]byte\()?{_NAMED}\)?{NEXT}"
        rf"(?:\[\]byte\()?{LITERAL}",
        _compared,
        r"(?:strn?(?:case)?cmp|equals|compare\w*|timingsafeequal)\s?\([^\n]*(?:pass|pwd|secret|api_?key)",
    ),
    _password(
        rf"{LITERAL}\.equals\(\s?[\w.]{{0,40}}{_WORD}\d?(?:\(\))?\s?\)",
        _compared,
        rf"[\"'`]\.equals\([^\n]*{_WORD}",
    ),
    _password(
        rf"(?:\.secret(?:\(\))?\s?[!=]={{1,2}}\s?|{_WORD}\d?(?:\(\))?\.equals(?:ignorecase)?\(){LITERAL}",
        accept_argument_of_call,
        rf"\.secret(?:\(\))?\s?[!=]=|{_WORD}\d?(?:\(\))?\.equals",
    ),
    # `user == "anja" && pass == "…"`.
    _password(
        rf"(?:user\w{{0,8}}|\bu|login|name)\s?={{2,3}}\s?{STRING}\s?(?:&&|and)\s?[\w.]{{0,24}}\b(?:p|pw|pass\w{{0,8}}|secret)"
        rf"\s?={{2,3}}\s?{LITERAL}",
        _compared,
        r"={2,3}\s?[\"'`][^\"'`\n]*[\"'`]\s?(?:&&|and)\s?[\w.]*(?:p|pw|pass\w*|secret)\s?={2,3}",
    ),
    # Settings with points in their names, to the end of the line.
    _password(
        r"(?m)^[ \t]*(?:(?:spring|quarkus|jdbc|hibernate|javax|jakarta|mail|datasource|server\.ssl)[\w.-]{1,48}[.-]"
        r"password|ansible_\w{0,16}pass(?:word)?)\s?[=:]\s?[\"']?([a-z0-9][^\s\"'`<>{}$]{4,60})[\"']?[ \t\r]*$",
        _compared,
        r"(?:spring|quarkus|jdbc|hibernate|javax|jakarta|mail|datasource|server\.ssl)[\w.-]+password\s?[=:]"
        r"|ansible_\w*pass(?:word)?\s?[=:]",
    ),
)
