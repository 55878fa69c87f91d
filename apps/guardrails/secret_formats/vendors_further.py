"""API keys of further issuers, whose forms public scanners and the issuers' own pages state.

The same table as in `vendors`, and keys that need the issuer's name or a neighbour beside them: pairs of Google's
HMAC keys, sets of Tink, recovery codes, what Jenkins encrypts. Keys for a vendor's test mode are no secrets.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.secret_formats.entropy import is_placeholder, is_random
from apps.guardrails.secret_formats.vendors import ENOUGH, ENOUGH_HEX, random_check, token_patterns

_LABEL = "SECRET"
# Name, pattern, length of what all tokens of the form begin with, least entropy of the rest.
_TOKENS: tuple[tuple[str, str, int, float], ...] = (
    ("lob", r"\blive_(?:pub_)?[0-9a-f]{31,35}", 5, ENOUGH_HEX),
    ("cursor", r"\bkey_[0-9a-f]{64}", 4, ENOUGH_HEX),
    ("elastic_cloud", r"\bessu_[0-9A-Za-z+/_-]{40,120}={0,2}", 5, ENOUGH),
    ("google_express", r"\bAQ\.Ab8[0-9A-Za-z_-]{40,80}", 6, ENOUGH),
    ("facebook", r"\bEAACEdEose0cBA[0-9A-Za-z]{8,}", 14, ENOUGH_HEX),
    ("google_hmac", r"\bGOOG(?:1[0-9A-Z]{56,60}|[0-9A-Z]{20})", 4, 3.0),
    ("packagist", r"\bpackagist_(?:o[ru]t|uut|ack|[a-z]{3})_[0-9a-f]{60,70}", 14, ENOUGH_HEX),
    ("salesforce_refresh", r"\b5Aep861[0-9A-Za-z._]{40,120}", 7, ENOUGH),
    ("onepassword", r"\b1PRK(?:-[A-Z0-9]{4}){13}", 5, ENOUGH),
    ("artifactory", r"\bAP[0-9A-F][0-9A-Za-z]{70,75}", 3, ENOUGH),
    ("runpod", r"\brpa_[0-9A-Z]{40}[0-9A-Za-z]{2,8}", 4, ENOUGH),
    ("mailersend", r"\bmlsn\.[0-9a-f]{64}", 5, ENOUGH_HEX),
    ("vault", r"\bhvr\.[0-9A-Za-z_-]{24,400}", 4, ENOUGH),
    ("paseto", r"\bv[1-4]\.local\.[0-9A-Za-z_-]{60,}", 9, ENOUGH),
    ("new_relic", r"\b(?:eu01x{1,2}[0-9a-f]{28,36}|[0-9a-f]{36})NRAL", 0, ENOUGH_HEX),
    ("aws_mws", r"\bamzn\.mws\.[0-9a-z]{8}-(?:[0-9a-z]{4}-){3}[0-9a-z]{12}", 9, ENOUGH),
    ("aws_bedrock", r"\bbedrock-api-key-[0-9A-Za-z+/=]{28,}", 16, ENOUGH),
    ("settlemint", r"\bsm_[aps]at_[0-9A-Za-z]{16}", 7, 3.0),
    ("planetscale", r"\bpscale_(?:tkn|pw|oauth)_[0-9A-Za-z=_.-]{32,64}", 11, ENOUGH),
    ("square", r"\bEAAA[0-9A-Za-z_-]{28,64}", 4, 3.6),
    ("llama", r"\bllx-[0-9A-Za-z_-]{40,60}", 4, 3.6),
    ("launchdarkly", r"\b(?:api|sdk)-[0-9a-z]{8}-(?:[0-9a-z]{4}-){3}[0-9a-z]{12}", 4, 3.0),
    ("zapier_webhook", r"\bhooks\.zapier\.com/hooks/catch/[0-9A-Za-z]{12,24}", 20, ENOUGH),
    ("litellm", r"\bsk-(?:[a-z]{2,8}-)?[0-9A-Za-z]{32,80}", 3, ENOUGH_HEX),
)
_WITH_NAME = (
    (
        "mailgun",
        r"(?i)mailgun[^\n]{0,24}?[ \"'=:>]([0-9a-z]{32}-[0-9a-z]{8}-[0-9a-z]{8})",
        3.2,
        r"(?i)mailgun",
    ),
    (
        "scrapingbee",
        r"(?i)\bscraping_?bee[^\n]{0,60}?(?:\n[^\n]{0,20}){0,4}?\b([0-9A-Z]{80})\b",
        3.4,
        r"(?i)scraping_?bee",
    ),
    (
        "sonar",
        r"(?i)(?:\b|-D)sonar.{0,5}(?:login|token).{0,5}?\b([0-9a-f]{40}|sq[apu]_[0-9a-f]{40})",
        2.7,
        r"(?i)sonar",
    ),
    ("thingsboard", r"\b(thingsboard\.(?:cloud|io)/api/v1/[0-9A-Za-z]{20})\b", 3.0, "thingsboard"),
    ("okta", r"(?i)okta[^\n]{0,60}\n[^\n]{0,24}\b(00[0-9A-Za-z_-]{40})\b", ENOUGH, r"(?i)okta"),
    (
        "google_hmac",
        r"\bGOOG[0-9A-Z]{20,60}\b[^\n]{0,60}?\n?[^\n]{0,40}?[\s\"'=:,>]([0-9A-Za-z/+]{40})"
        r"(?:[^0-9A-Za-z/+=]|$)",
        3.8,
        "GOOG[0-9A-Z]",
    ),
    (
        "aws_secret",
        r"\bLTAI[0-9A-Za-z]{12,20}\b[^\n]{0,40}?[\s\"'=:,>]([0-9A-Za-z]{30})(?:[^0-9A-Za-z]|$)",
        3.6,
        "LTAI",
    ),
    (
        "softlayer",
        r"(?i)\bapi\.softlayer\.com/(?:soap|rest)/v3(?:\.1)?/([0-9a-z]{64})",
        3.0,
        r"(?i)softlayer",
    ),
    (
        "cloudant",
        r"(?i)\bcloudant[a-z0-9_-]{0,24}[\"'\])]{0,3}\s{0,2}[:=]{1,2}>?\s{0,2}[\"'`]?([a-z]{24}|[0-9a-f]{64})\b",
        2.7,
        r"(?i)cloudant",
    ),
    (
        "artifactory",
        r"(?i)\b(?:artif\w*|jfrog|x-jfrog-art-api)[^\n]{0,24}?[\s\"'=:](?-i:(A(?:KC|P[0-9A-F])[0-9A-Za-z]{10,80}))",
        ENOUGH_HEX,
        r"(?i)artif|jfrog",
    ),
    # Pairs, of which the first says what the second is: the point of a curve and its key, an id and its secret.
    (
        "vapid",
        r"\bB[A-P][0-9A-Za-z_-]{85}[^0-9A-Za-z_-][^\n]{0,40}?\n?\n?[^\n]{0,40}?\b([0-9A-Za-z_-]{43})"
        r"(?:[^0-9A-Za-z_-]|$)",
        3.8,
        r"\bB[A-P][0-9A-Za-z_-]{12}",
    ),
    (
        "bitwarden",
        r"\buser\.[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b[^\n]{0,40}?\n?"
        r"[^\n]{0,40}?\b([0-9A-Za-z]{30})\b",
        3.6,
        r"\buser\.[0-9a-f]",
    ),
    (
        "salesforce",
        r"\b3MVG9[0-9A-Za-z._]{60,120}[^\n]{0,40}?\n?[^\n]{0,40}?\b([0-9A-F]{64}|\d{15,19})\b",
        2.6,
        "3MVG9",
    ),
    # A token in the place of the user, as `git clone` takes it.
    (
        "address_token",
        r"\bhttps?://([0-9a-f]{40}|[0-9A-Za-z_-]{32,255})(?::x-oauth-basic)?@[a-z0-9.-]{4,100}",
        2.9,
        r"://[0-9A-Za-z_-]+(?::x-oauth-basic)?@",
    ),
    (
        "address_token",
        r"\bhttps?://(?:x-token-auth|oauth2|x-access-token|git):([^\s@/\"'<>]{16,255})@",
        2.9,
        r"://(?:x-token-auth|oauth2|x-access-token|git):",
    ),
)


def _jenkins(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what Jenkins encrypted: who has the master key of the same disk reads it."""
    return None if is_placeholder(candidate.text) else candidate


def _material(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if is_random(candidate.text, 3.0) else None


PATTERNS = (
    *token_patterns(_TOKENS),
    *(CandidatePattern(name, _LABEL, pattern, random_check(least), gate) for name, pattern, least, gate in _WITH_NAME),
    CandidatePattern("jenkins", _LABEL, r"\{(AQAAABAAA[0-9A-Za-z+/]{20,}={0,2})\}", _jenkins),
    CandidatePattern("jenkins", _LABEL, r"<secret>\{[^{}<>\n]{0,40}?AQAAABAAA ([^{}<>\n]{8,})\}</", _jenkins),
    # Sets of keys that Tink writes in clear, whichever member comes first.
    CandidatePattern(
        "tink",
        "PRIVATE_KEY",
        r"\"value\\{0,6}\"\s*:\s*\\{0,6}\"([0-9A-Za-z+/_-]{12,}={0,2})\\{0,6}\"[^{}]{0,300}?(?:SYMMETRIC|ASYMMETRIC_PRIVATE)\\{0,6}\"",
        _material,
        gate=r"\"(?:A?SYMMETRIC|ASYMMETRIC_PRIVATE)\\{0,6}\"",
    ),
    CandidatePattern(
        "tink",
        "PRIVATE_KEY",
        r"\"(?:SYMMETRIC|ASYMMETRIC_PRIVATE)\\{0,6}\"[^{}]{0,300}?\"value\\{0,6}\"\s*:\s*\\{0,6}\"([0-9A-Za-z+/_-]{12,}={0,2})\\{0,6}\"",
        _material,
    ),
)
