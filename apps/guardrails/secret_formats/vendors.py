"""API keys and tokens in the formats of their issuers.

Knows the forms from the issuers' documentation of their tokens (GitHub's "authentication token formats",
Stripe's "API keys", Slack's "token types", GitLab's "token overview", AWS's "unique identifiers" and so on).
Keys for a vendor's test mode are no secrets.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterator, Sequence

import re2

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.entropy import is_random

_LABEL = "SECRET"
ENOUGH, ENOUGH_HEX = 3.2, 2.7
_ENOUGH_TO_BEGIN, _ENOUGH_OF_ITS_OWN = 12, 4
_DISCORD_LEAST = 34
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# A class of characters so many times, and behind it a name.
_ANY_FIRST = compile_re2(r"^(\(\?i\))?(?:\\b)?\[[^\]]*\]\{\d+(?:,\d*)?\}(.*)$")
_SAYS_WHAT = compile_re2(r"^(?:\\?[.+_-])?(?:\(\?:)?[A-Za-z]{2}")
_TAIL = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def _is_whole(candidate: CandidateMatch) -> bool:
    before, after = candidate.before(1), candidate.after(1)
    return not ((before and before[0] in _TAIL) or (after and after[0] in _TAIL))


def random_check(least: float = ENOUGH, prefix: int = 0) -> Check:
    """Return the check of a token that is random from its `prefix`th character on.

    What begins with letters and a sign of its own counts whatever is written right behind it.
    """

    def is_random_and_whole(candidate: CandidateMatch) -> CandidateMatch | None:
        text, before = candidate.text, candidate.before(1)
        begins = prefix >= _ENOUGH_OF_ITS_OWN and text[prefix - 1] in "_-." and not (before and before[0] in _TAIL)
        return candidate if (begins or _is_whole(candidate)) and is_random(text[prefix:], least) else None

    return is_random_and_whole


def _github(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a right checksum (the last six characters) at once, and without one what is random."""
    body = candidate.text[4:]
    if len(body) == 36 and _base62(zlib.crc32(body[:30].encode())) == body[30:]:
        return candidate
    return candidate if _is_whole(candidate) and is_random(body, ENOUGH) else None


def _base62(number: int) -> str:
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def _discord(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a token whose first part is the number of an account, or whose parts are as random as tokens' are."""
    first, _, rest = candidate.text.partition(".")
    try:
        account = base64.urlsafe_b64decode(first + "=" * (-len(first) % 4))
    except (binascii.Error, ValueError):
        account = b""
    made = len(rest) >= _DISCORD_LEAST and is_random(rest, 4.0) and any(map(str.isdigit, first + rest))
    return candidate if (account.isdigit() or made) and _is_whole(candidate) else None


# Name, pattern, length of what all tokens of the form begin with, least entropy of the rest.
_TOKENS: tuple[tuple[str, str, int, float], ...] = (
    ("gateway_key", r"\bgw_(?:live|dev)_[0-9A-Za-z]{40}", 8, ENOUGH),
    ("aws_access_key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", 4, 2.5),
    ("github_fine_grained", r"\bgithub_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}", 11, ENOUGH),
    ("gitlab", r"\bgl(?:pat|dt|rt|cbt|ptt|soat|ft|imt|agent)-[0-9A-Za-z_-]{20,200}(?:\.[0-9a-z.]{6,20})?", 6, ENOUGH),
    ("slack", r"\bxox[abeoprs](?:\.xox[bp])?-[0-9A-Za-z-]{20,250}", 5, 2.7),
    ("slack", r"\bxapp-\d-[A-Z0-9]{8,15}-\d{8,15}-[0-9a-f]{30,80}", 7, ENOUGH_HEX),
    (
        "slack_webhook",
        r"https://hooks\.slack\.com/(?:services/T[A-Z0-9]{6,14}/B[A-Z0-9]{6,14}|"
        r"workflows/[A-Z0-9/]{8,40})/[0-9A-Za-z]{16,40}",
        30,
        ENOUGH,
    ),
    ("stripe", r"\b[sr]k_live_[0-9A-Za-z]{10,250}", 8, 3.0),
    ("stripe_webhook", r"\bwhsec_[0-9A-Za-z+/]{32,64}", 6, ENOUGH),
    ("openai", r"\bsk-(?:proj|svcacct|admin|None)-[0-9A-Za-z_-]{32,250}", 8, ENOUGH),
    ("openai", r"\bsk-[0-9A-Za-z]{32,64}", 3, 3.0),
    ("openrouter", r"\bsk-or-v1-[0-9a-f]{64}", 9, ENOUGH_HEX),
    ("anthropic", r"\bsk-ant-(?:api|admin|oat|ort|sid)\d{2,4}-[0-9A-Za-z_-]{40,250}", 13, ENOUGH),
    ("google_api_key", r"\bAIza[0-9A-Za-z_-]{35}", 4, ENOUGH),
    ("google_oauth", r"\bGOCSPX-[0-9A-Za-z_-]{28}", 7, ENOUGH),
    ("google_oauth", r"\bya29\.[0-9A-Za-z_-]{16,400}", 5, ENOUGH),
    ("azure_client_secret", r"[0-9A-Za-z_~.-]{3}[78]Q~[0-9A-Za-z_~.-]{31,34}", 0, ENOUGH),
    ("npm", r"\bnpm_[0-9A-Za-z]{36}", 4, ENOUGH),
    ("pypi", r"\bpypi-AgE[0-9A-Za-z_-]{50,400}", 8, ENOUGH),
    ("hugging_face", r"\b(?:hf|api_org)_[0-9A-Za-z]{34}", 3, ENOUGH),
    ("twilio", r"\bSK[0-9a-f]{32}", 2, ENOUGH_HEX),
    ("sendgrid", r"\bSG\.[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{32,64}", 3, ENOUGH),
    ("mailgun", r"\bkey-[0-9a-f]{32}(?:-[0-9a-f]{8}-[0-9a-f]{8})?", 4, ENOUGH_HEX),
    ("digitalocean", r"\bdo[opr]_v1_[0-9a-f]{64}", 7, ENOUGH_HEX),
    ("heroku", r"\bHRKU-[0-9A-Za-z_-]{36,65}", 5, 3.0),
    ("cloudflare", r"\bv1\.0-[0-9a-f]{24}-[0-9a-f]{146}", 5, ENOUGH_HEX),
    ("shopify", r"\bshp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}", 6, ENOUGH_HEX),
    ("telegram", r"\b\d{8,10}:AA[0-9A-Za-z_-]{33}", 13, ENOUGH),
    (
        "discord_webhook",
        r"https://(?:\w{2,8}\.)?discord(?:app)?\.com/api/webhooks/\d{17,20}/[0-9A-Za-z_-]{60,80}",
        50,
        ENOUGH,
    ),
    ("groq", r"\bgsk_[0-9A-Za-z]{52}", 4, ENOUGH),
    ("xai", r"\bxai-[0-9A-Za-z]{80}", 4, ENOUGH),
    ("perplexity", r"\bpplx-[0-9A-Za-z]{48}", 5, ENOUGH),
    ("replicate", r"\br8_[0-9A-Za-z]{37}", 3, ENOUGH),
    ("databricks", r"\bdapi[0-9a-f]{32}(?:-\d)?", 4, ENOUGH_HEX),
    ("linear", r"\blin_(?:api|oauth)_[0-9A-Za-z]{40,64}", 8, ENOUGH),
    ("notion", r"\b(?:ntn_[0-9A-Za-z]{46}|secret_[0-9A-Za-z]{43})", 7, ENOUGH),
    ("grafana", r"\bglsa_[0-9A-Za-z]{32}_[0-9a-f]{8}", 5, ENOUGH),
    ("new_relic", r"\bNRAK-[A-Z0-9]{27}", 5, 3.0),
    ("vault", r"\bhv[sb]\.[0-9A-Za-z_-]{24,250}", 4, ENOUGH),
    ("terraform", r"\b[0-9A-Za-z]{14}\.atlasv1\.[0-9A-Za-z_-]{60,80}", 0, ENOUGH),
    ("docker", r"\bdckr_[po]at_[0-9A-Za-z_-]{27,40}", 9, ENOUGH),
    ("atlassian", r"\bATATT3[0-9A-Za-z_=-]{180,220}", 6, ENOUGH),
    ("square", r"\bsq0(?:atp-[0-9A-Za-z_-]{22}|csp-[0-9A-Za-z_-]{43})", 7, ENOUGH),
    ("supabase", r"\bsbp_[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("netlify", r"\bnfp_[0-9A-Za-z]{36,40}", 4, ENOUGH),
    ("sentry", r"\bsntry[su]_[0-9A-Za-z+/=_-]{40,250}", 7, ENOUGH_HEX),
    ("airtable", r"\bpat[0-9A-Za-z]{14}\.[0-9a-f]{64}", 3, ENOUGH_HEX),
    ("age", r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}", 16, ENOUGH),
    ("pulumi", r"\bpul-[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("rubygems", r"\brubygems_[0-9a-f]{48}", 9, ENOUGH_HEX),
    ("figma", r"\bfig[dou]r?_[0-9A-Za-z_-]{40,50}", 5, ENOUGH),
    ("postman", r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}", 5, ENOUGH_HEX),
    ("doppler", r"\bdp\.(?:st\.[a-z0-9_-]{2,35}|pt|ct|sa|scim|audit)\.[0-9A-Za-z]{40,44}", 6, ENOUGH),
    ("posthog", r"\bphx_[0-9A-Za-z]{43}", 4, ENOUGH),
    ("hubspot", r"\bpat-(?:na|eu)\d-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", 8, ENOUGH_HEX),
    ("brevo", r"\bxkeysib-[0-9a-f]{64}-[0-9A-Za-z]{16}", 8, ENOUGH_HEX),
    ("dynatrace", r"\bdt0c01\.[A-Z2-7]{24}\.[A-Z2-7]{64}", 7, ENOUGH),
    ("prefect", r"\bpn[ub]_[0-9A-Za-z]{36}", 4, ENOUGH),
    ("sonar", r"\bsq[apu]_[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("grafana_cloud", r"\bglc_eyJ[0-9A-Za-z+/]{40,400}={0,3}", 7, ENOUGH),
    ("grafana_key", r"\beyJrIjoi[0-9A-Za-z+/]{60,400}={0,3}", 8, ENOUGH),
    ("tailscale", r"\btskey-(?:[a-z]{2,10}-)?[0-9A-Za-z]{6,32}-[0-9A-Za-z]{16,64}", 6, ENOUGH),
    ("fly", r"\bfo1_[0-9A-Za-z_-]{43}", 4, ENOUGH),
    ("sourcegraph", r"\bsgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("buildkite", r"\bbkua_[0-9a-f]{40}", 5, ENOUGH_HEX),
    ("contentful", r"\bCFPAT-[0-9A-Za-z_-]{43}", 6, ENOUGH),
    ("shippo", r"\bshippo_live_[0-9a-f]{40}", 12, ENOUGH_HEX),
    ("nvidia", r"\bnvapi-[0-9A-Za-z_-]{64}", 6, ENOUGH),
    ("langsmith", r"\blsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}", 8, ENOUGH_HEX),
    ("pinecone", r"\bpcsk_[0-9A-Za-z]{4,8}_[0-9A-Za-z]{50,70}", 5, ENOUGH),
    ("tavily", r"\btvly-(?:dev-|prod-)?[0-9A-Za-z]{32}", 5, ENOUGH),
    ("elevenlabs", r"\bsk_[0-9a-f]{48}", 3, ENOUGH_HEX),
    ("mapbox", r"\bsk\.eyJ1[0-9A-Za-z_-]{40,200}\.[0-9A-Za-z_-]{20,24}", 7, ENOUGH),
    ("bitbucket", r"\bATBB[0-9A-Za-z]{24}[0-9A-F]{8}", 4, ENOUGH),
    ("circleci", r"\bCCIP(?:AT|RJ)_[0-9A-Za-z]{20,24}_[0-9a-f]{40}", 7, ENOUGH),
    ("openshift", r"\bsha256~[0-9A-Za-z_-]{43}", 7, ENOUGH),
)


def beginning_of(pattern: str) -> str:
    """Return a pattern for how a token begins, which costs less to look for than the whole.

    Of a token that begins with any letters, it is what comes behind them, if that says what it is.
    """
    if behind := _ANY_FIRST.match(pattern):
        flags, rest = behind.groups()
        return f"{flags or ''}{beginning_of(rest)}" if _SAYS_WHAT.match(rest) else pattern
    for repeat in re2.finditer(r"\{(\d+)(?:,\d*)?\}", pattern):
        head = pattern[: repeat.start()]
        if int(repeat.group(1)) >= _ENOUGH_TO_BEGIN and head.count("(") == head.count(")"):
            return f"{head}{{{_ENOUGH_TO_BEGIN}}}"
    return pattern


def token_patterns(
    tokens: Sequence[tuple[str, str, int, float]], make: Callable[[float, int], Check] = random_check
) -> Iterator[CandidatePattern]:
    """Yield what finds the tokens of a table: name, pattern, length of the constant beginning, least entropy behind."""
    for name, pattern, prefix, least in tokens:
        yield CandidatePattern(name, _LABEL, pattern, make(least, prefix), beginning_of(pattern))


PATTERNS = (
    *token_patterns(_TOKENS),
    CandidatePattern("github", _LABEL, r"\bgh[oprsu]_[0-9A-Za-z]{36,250}", _github, r"\bgh[oprsu]_[0-9A-Za-z]{12}"),
    CandidatePattern(
        "discord",
        _LABEL,
        r"\b[MNO][0-9A-Za-z_-]{22,27}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{27,38}",
        _discord,
        r"\b[MNO][0-9A-Za-z_-]{22,27}\.[0-9A-Za-z_-]{6}\.",
    ),
    # The account's name and address around these are not secret; the span is the key.
    CandidatePattern("azure_storage", _LABEL, r"(?i:AccountKey) ?= ?([0-9A-Za-z+/]{60,88}={0,2})", random_check(4.0)),
    CandidatePattern("azure_bus", _LABEL, r"(?i:SharedAccessKey) ?= ?([0-9A-Za-z+/]{43}=)", random_check(3.8)),
    CandidatePattern(
        "azure_signature",
        _LABEL,
        r"(?i)[?&]s(?:v|e|p|r|t|s)=[^\s\"'<>]{0,400}&sig=([0-9A-Z%+/-]{40,72}(?:=|%3D)?)",
        random_check(3.5),
    ),
    CandidatePattern(
        "aws_secret",
        _LABEL,
        r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b[^\n]{0,40}?\n?[^\n]{0,30}?[\s\"'=:,>]([0-9A-Za-z/+]{40})(?:[^0-9A-Za-z/+=]|$)",
        random_check(3.8),
    ),
    CandidatePattern(
        "aws_secret",
        _LABEL,
        r"(?i:aws_?secret|secret_?access_?key|aws.{0,20}secret|secret access "
        r"key)[^\n]{0,24}?[\s\"'=:>]([0-9A-Za-z/+]{40})(?:[^0-9A-Za-z/+=]|$)",
        random_check(3.8),
    ),
)
