"""API keys by what they begin with: issuers that are seen less, and the form that most new issuers choose.

Knows beginnings and lengths that the issuers state. They are searched for in a few patterns together, since each
pattern costs every text something; a check tells made values from identifiers. Keys for a vendor's test mode are no
secrets.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import has_letters_and_digits, is_random, reads_like_words
from apps.guardrails.secret_formats.vendors import beginning_of

_LABEL = "SECRET"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_ID = r"[0-9A-Za-z_-]"
# Models, tools of developers, stores, feature flags, watching.
_TOOLS = (
    rf"waka_{_UUID}",
    rf"xa[ap]t-{_UUID}",
    r"ptr_[0-9A-Za-z+/=_-]{20,64}",
    r"ory_(?:[a-z]{2,3})_[0-9A-Za-z_-]{32,100}",
    rf"aph0_{_ID}{{40,100}}",
    r"esecret_[0-9a-z]{24,60}",
    r"as-[0-9A-Za-z]{22}",
    r"scp-live-[0-9a-f]{32}",
    r"hc[a-z]{1,2}ik_[0-9a-z]{50,64}",
    r"m0-[0-9A-Za-z]{40}",
    rf"BSA{_ID}{{27,28}}",
    r"flp_[0-9A-Za-z]{30,60}",
    r"dtn_[0-9a-f]{64}",
    rf"bb_live_{_ID}{{20,40}}",
    r"arc_[0-9A-Za-z]{40,80}",
    r"opk_[0-9a-f]{40,64}",
    r"xau_[0-9A-Za-z]{32,60}",
    rf"fnA{_ID}{{37}}",
    rf"configcat-(?:sdk|proxy)-1/{_ID}{{22}}/{_ID}{{22}}",
    r"secret-[0-9A-Za-z]{32,64}",
    r"ser\.[0-9A-Za-z]{20,32}",
    r"hbp_[0-9A-Za-z]{30,40}",
    r"cu_[0-9a-f]{32}",
    rf"hc[wr]_{_ID}{{28}}",
    r"fhb-[0-9a-f]{32,64}",
    rf"snyk_[a-z]{{3}}\.[0-9a-f]{{8}}\.{_ID}{{30,}}",
    r"sktsec_[0-9A-Za-z_-]{40,80}",
    r"endr\+[0-9A-Za-z-]{16}",
    r"AIK_[A-Z]{2,12}_[0-9A-Za-z_]{30,80}",
    rf"censys_[0-9A-Za-z]{{8}}_{_ID}{{24,40}}",
    r"ucat_[0-9A-Z]{26}",
    r"d(?:ose|kea|sapi)[0-9a-f]{32}",
    r"QN_[0-9a-f]{32}",
    r"(?:pat|sat)_[0-9A-Za-z]{40,80}",
    rf"st\.[0-9a-f]{{24}}\.[0-9a-f]{{32}}\.{_ID}{{20,64}}",
    rf"0\.{_UUID}\.[0-9A-Za-z]{{30}}:[0-9A-Za-z+/]{{22}}==",
    r"perm[:-][0-9A-Za-z+/=]{8,40}\.[0-9A-Za-z+/=]{4,24}\.[0-9A-Za-z]{30,40}",
    r"sk[0-9A-Za-z]{80,}",
)
# Clouds, business, people.
_BUSINESS = (
    r"c[ks]_[0-9a-f]{40}",
    r"pk_\d{1,12}_[0-9A-Z]{32}",
    r"pk_[0-9a-f]{34}",
    r"pk_prod_[0-9A-Z]{28}",
    r"ES_[0-9a-f]{32}",
    rf"0x4AAAAAAA{_ID}{{26,32}}",
    r"K00\d[0-9A-Za-z+/]{27}",
    r"pdl_live_apikey_[0-9a-z]{26}_[0-9A-Za-z]{22}_[0-9A-Za-z]{3}",
    r"live_[0-9A-Za-z]{30,64}",
    r"sk_[0-9A-Za-z]{24,64}",
    r"AQE[a-z]hmf[0-9A-Za-z+/=._-]{60,}",
    r"dG9rO[0-9A-Za-z+/]{40,80}={0,2}",
    r"syt_[0-9A-Za-z]{4,80}_[0-9A-Za-z]{20}_[0-9A-Za-z]{6}",
    r"tk_[0-9a-z]{29}",
    r"o\.[0-9A-Za-z]{32}",
    rf"4/0A{_ID}{{40,90}}",
    r"A3T[0-9A-Z]{17}",
    r"da2-[0-9a-z]{26}",
    r"amzn1\.oa2-cs\.v1\.[0-9a-f]{64}",
    r"(?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz)[0-9A-Za-z+/=]{60,}",
    rf"AQ[A-Z]{_ID}{{60,}}",
    r"pin[ar]_[0-9A-Z]{50,}",
    rf"cnvca{_ID}{{40,60}}",
    r"os_v2_(?:app|org)_[a-z2-7]{60,}",
    r"KEY[0-9A-F]{32}_[0-9A-Za-z]{22}",
    r"bxt_[0-9A-Za-z]{40,60}",
    r"v[1-4]\.public\.[0-9A-Za-z_-]{60,}",
    rf"wrk[a-z]{{2,3}}-eyJ{_ID}{{40,}}(?:\.{_ID}{{20,}}){{0,2}}",
    rf"p\.eyJ{_ID}{{60,}}(?:\.{_ID}{{20,}})?",
    r"[xyz]prv[1-9A-HJ-NP-Za-km-z]{60,}",
    r"nsec1[02-9ac-hj-np-z]{58}",
    r"S[A-Z2-7]{55}",
)
# What shows in the middle what it is, and how the middle is written.
_BY_MIDDLE = (
    (
        r"[0-9A-Za-z+/]{33}(?:AIoT|\+ASb|\+AEh|\+ARm|AZEG)[0-9A-Za-z+/]{5}=",
        r"(?:AIoT|\+ASb|\+AEh|\+ARm|AZEG)[0-9A-Za-z+/]{5}=",
    ),
    (r"[0-9A-Za-z+/]{76}(?:\+ABa|ACDb|\+AMC|APIM)[0-9A-Za-z+/]{6}==", r"(?:\+ABa|ACDb|\+AMC|APIM)[0-9A-Za-z+/]{6}=="),
    (r"\b[a-z2-7]{52}\b", r"\b[a-z2-7]{52}\b"),
    (r"[0-9a-f]{24}:[0-9a-f]{64}", r"[0-9a-f]{12}:[0-9a-f]{12}"),
    (r"[0-9a-f]{32}\.[0-9A-Za-z]{16}", r"[0-9a-f]{12}\.[0-9A-Za-z]{12}"),
)
# A word, what kind of key it is, and random letters: how new issuers write theirs. A hyphen also joins words of
# addresses and files, so that fewer kinds count behind it.
_OWN_FORM = (
    r"\b[a-z][a-z0-9]{1,15}_(?:[a-z0-9]{1,10}_){0,2}?(?:live|prod|production|sk|pat|sat|oat|api|apikey|secret"
    r"|token|key|v\d)_"
    r"[0-9A-Za-z]{20,200}(?:_[0-9A-Za-z]{3,64})?"
    r"|\b[a-z][a-z0-9]{1,15}-(?:[a-z0-9]{1,10}-)?(?:live|prod|sk|pat|apikey|secret|token)-[0-9A-Za-z]{24,200}"
)
_WORDS = compile_re2(r"[_.:/-]")
# Numbers that no word can be part of.
_PLAIN = compile_re2(rf"{_UUID}|[0-9a-f]{{32,}}$")
_TEST_MODE = compile_re2(r"(?:^|[_-])(?:test|sandbox|sdbx|dev|public|publishable)[_-]|^pk_live")
_TAIL = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_LEAST, _LEAST_DIGITS, _HEX_DIGEST = 3.0, 2, compile_re2(r"^(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})$")


def _made(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands alone, is random, and is put together from no words."""
    text, before, after = candidate.text, candidate.before(1), candidate.after(2)
    if (
        (before and before[0] in _TAIL)
        or before in (b".", b"/", b"+")
        or after[:1] in (b"/", b"+")
        or (after and after[0] in _TAIL)
    ):
        return None
    if after[:1] == b"." and after[1:].isalpha():
        return None  # the name of a file
    plain = _PLAIN.search(text)
    body = plain.group() if plain else max(_WORDS.split(text), key=len)
    if sum(map(str.isdigit, text)) < _LEAST_DIGITS or not has_letters_and_digits(body) or _TEST_MODE.search(text):
        return None
    return candidate if is_random(body, _LEAST) and not reads_like_words(body) else None


def _own_form(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a made value behind such words, unless it could be the digest of a file that they name."""
    text = candidate.text
    if "-" in text and _HEX_DIGEST.search(text.rpartition("-")[2]):
        return None
    return _made(candidate)


def _signed_file(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if is_random(candidate.text, _LEAST) else None


def issued_together(forms: tuple[str, ...]) -> CandidatePattern:
    """Return one pattern for all these forms; texts are searched where one of them begins."""
    gate = "|".join(map(beginning_of, forms))
    return CandidatePattern("issued_key", _LABEL, rf"\b(?:{'|'.join(forms)})", _made, rf"\b(?:{gate})")


# What the words of a recovery phrase take on average (BIP-39), with the blank behind each: few of its words are short.
_LEAST_OF_A_WORD, _LEAST_DIFFERENT = 5, 10


def _recovery_phrase(candidate: CandidateMatch) -> CandidateMatch | None:
    words = candidate.text.split()
    long = len(candidate.text) >= len(words) * _LEAST_OF_A_WORD
    return candidate if long and len(set(words)) >= _LEAST_DIFFERENT else None


PATTERNS = (
    issued_together(_TOOLS),
    issued_together(_BUSINESS),
    *(CandidatePattern("issued_key", _LABEL, pattern, _made, gate) for pattern, gate in _BY_MIDDLE),
    CandidatePattern(
        "issued_key",
        _LABEL,
        _OWN_FORM,
        _own_form,
        gate=r"[a-z0-9][_-](?:live|prod|production|sk|pat|sat|oat|api|apikey|secret|token|key|v\d)[_-][0-9A-Za-z]{20}",
    ),
    CandidatePattern(
        "private_key",
        "PRIVATE_KEY",
        r"untrusted comment: [^\n]{0,80}secret key\s{1,2}([0-9A-Za-z+/]{80,300}={0,2})",
        _signed_file,
    ),
    # The words from which wallets make their keys; no sentence has so many in a row without a shorter one.
    CandidatePattern(
        "seed_phrase",
        "PRIVATE_KEY",
        r"(?i)(?:mnemonic|seed|(?:seed|recovery|backup|secret)[ _-]?(?:recovery )?phrase)[a-z_\"' ]{0,20}?"
        r"(?: is)?[:=]?\s{0,3}"
        r"[\"'`]?((?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b",
        _recovery_phrase,
        gate=r"(?i)(?:mnemonic|seed|phrase)[^\n]*[a-z] [a-z]",
    ),
)
