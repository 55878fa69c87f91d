"""API keys in the formats that issuers and public scanners state: a beginning of their own, then made characters.

Knows beginnings, alphabets and lengths, such as those of GoCardless, Cloudsmith, DataStax, SonarQube's scoped tokens,
Polar and Val Town. The same check as in `vendors_by_prefix`, which holds the forms that are seen more. Keys for a
vendor's test mode, and those that an issuer means to be seen, are no secrets.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.secret_formats.entropy import has_letters_and_digits, is_random, reads_like_words
from apps.guardrails.secret_formats.vendors import ENOUGH_HEX, random_check
from apps.guardrails.secret_formats.vendors_by_prefix import issued_together

_LABEL = "SECRET"

_ID = r"[0-9A-Za-z_-]"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
# Building, deploying, watching.
_BUILDING = (
    r"glsa_[0-9A-Za-z]{32}_[0-9A-Fa-f]{8}",
    r"AIK_CI_[0-9A-Za-z]{20,44}",
    r"CCIPAT_[0-9A-Za-z]{22}_[0-9a-z]{40}",
    r"csa_[0-9a-f]{30}[0-9A-Za-z]{6}",
    r"AstraCS:[0-9A-Za-z]{20,32}(?::[0-9a-f]{64})?",
    rf"dvc_(?:mobile|server)_{_ID}{{8,64}}",
    r"apk_(?:user_)?[0-9A-Za-z+/]{80,180}={0,2}",
    r"cog_[a-z2-7]{52}",
    rf"figd_{_ID}{{38,48}}",
    r"lsv2_(?:pt|sk)_[0-9A-Fa-f]{32}_[0-9A-Fa-f]{10}",
    rf"mergify_application_key_{_ID}{{40,200}}",
    r"napi_[0-9A-Za-z]{60,70}",
    rf"tskey-[a-z]{{2,10}}-{_ID}{{20,80}}",
    r"unkey_[0-9A-Za-z]{20,32}",
    r"ucat_[0-9A-Za-z]{24,32}",
    rf"vc[pkiar]_{_ID}{{24,80}}",
    rf"vtwn_{_ID}{{20,80}}",
    r"waka_[0-9a-z]{36,64}",
    r"sqco_[0-9A-Za-z]{59}",
    r"sgp_(?:local_)?[0-9a-z]{40}",
    r"nr(?:ak|aa|ii|iq|ra)-[0-9a-z_-]{19,42}",
    rf"px-dep-{_UUID}",
    r"SWMTKN-\d-[0-9a-z]{40,60}-[0-9a-z]{25}",
    r"FlyV1 [0-9A-Za-z=_,/+-]{100,}",
    rf"sbp_{_ID}{{40}}",
    r"BBFF-[0-9A-Za-z]{30}",
    rf"apikey-v2-{_ID}{{30,60}}",
)
# Payments, trade, people, messages.
_BUSINESS = (
    r"live_[0-9A-Za-z=_-]{40}",
    rf"sk_{_UUID}",
    r"PRD-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{4,12}",
    r"lip_[0-9A-Za-z_]{16,60}",
    r"mlsn\.[0-9A-Za-z]{30,100}",
    r"mercury_production_[a-z]{3,6}_[0-9A-Za-z]{40,50}_yrucrem",
    r"Mid-server-[0-9A-Za-z_]{10,24}",
    rf"sk-api-{_ID}{{100,130}}",
    rf"api_live_[a-z]{{2}}\.{_ID}{{20,80}}",
    r"persona_production_[0-9a-z_-]{20,80}",
    rf"pin[ar]_{_ID}{{20,200}}",
    rf"polar_(?:at|oat|pat|rst)_{_ID}{{20,100}}",
    rf"ph[xs]_{_ID}{{41,60}}",
    rf"prf_(?:cli_)?{_ID}{{20,80}}",
    r"apikey_[0-9a-f]{64}",
    r"ramp_(?:sec|tok)_[0-9A-Za-z]{48}",
    r"rpa_[0-9A-Za-z]{30}",
    rf"tss_{_ID}{{20,80}}",
    rf"shltm_{_ID}{{40}}",
    r"na1\.[0-9A-Za-z+/]{100}",
    r"VF\.(?:(?:DM|WS)\.)?[0-9a-fA-F]{24}\.[0-9A-Za-z]{16}",
    r"1000\.[0-9a-f]{32}\.[0-9a-f]{32}",
    r"tkn\.v1_[0-9A-Za-z]{60,80}=?",
    r"xox[ar]-(?:\d-)?[0-9A-Za-z]{12,48}",
    r"xox[os]-\d{3,14}-\d{3,14}-\d{3,14}-[0-9a-f]{6,64}",
    r"xapp-\d-[0-9A-Za-z]{4,16}-\d{3,16}-[0-9A-Za-z]{8,80}",
    r"xoxd-[0-9A-Za-z_/\\+%-]{100,}={0,2}",
    r"key-[0-9a-z]{32}",
    r"[0-9a-z]{32}-[0-9a-z]{8}-[0-9a-z]{8}",
    r"\d{15,20}-[0-9A-Za-z]{40}",
    r"SG\.[0-9A-Za-z=_.-]{66}",
    rf"SG\.{_ID}{{16,32}}\.{_ID}{{16,64}}",
    r"pat-[a-z]{2}\d-[0-9A-Za-z]{8}-(?:[0-9A-Za-z]{4}-){3}[0-9A-Za-z]{12}",
)

# Keys within the addresses that they open: nodes of chains, hooks of chats.
_IN_ADDRESSES = (
    r"(?:\.infura\.io/(?:ws/)?v3/|\.alchemy(?:api)?\.(?:com|io)/(?:v2|nft/v\d)/|\.quiknode\.pro/"
    r"|\bapi\.softlayer\.com/(?:soap|rest|xmlrpc)/v[0-9.]{1,4}/|\boutlook\.office(?:365)?\.com/webhook/"
    r"|\.tines\.(?:com|io)/webhook/|\.webhook\.office\.com/webhookb2/)"
)
_RANDOM = random_check(ENOUGH_HEX)


def _address(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a key in an address; of the hooks of a chat with two parts, those whose kind is known."""
    text = candidate.text
    if ("@" in text and "/IncomingWebhook/" not in text) or reads_like_words(text):
        return None
    return _RANDOM(candidate) if has_letters_and_digits(text) else None


def _in_quotes(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands right beside an issuer's name, or alone in quotes behind it: made, and no digest of a file."""
    text = candidate.text
    made = has_letters_and_digits(text) and is_random(text, 3.4) and not reads_like_words(text)
    return candidate if made else None


def _asaas(candidate: CandidateMatch) -> CandidateMatch | None:
    text = candidate.text
    return candidate if has_letters_and_digits(text) and is_random(text.lstrip("$"), 3.4) else None


def _named(pattern: str, gate: str, check: Check = _in_quotes) -> CandidatePattern:
    return CandidatePattern("issued_key", _LABEL, pattern, check, gate)


PATTERNS = (
    issued_together(_BUILDING),
    issued_together(_BUSINESS),
    CandidatePattern(
        "address_key",
        _LABEL,
        rf"{_IN_ADDRESSES}([0-9A-Za-z_-]{{32,64}}(?:[@/][0-9A-Za-z/_-]{{32,140}})?)",
        _address,
        gate=_IN_ADDRESSES,
    ),
    # A secret of Amazon behind any name with its issuer's, in IBM's cloud, and in pairs of which the first says what
    # the second is.
    _named(
        r"(?i)\baws[\w-]{0,32}[\"']?\s?(?:[:=(]|=>)\s?[\"']?([0-9a-z/+]{40})(?:[^0-9a-z/+=]|$)",
        r"(?i)\baws[\w-]*[\"']?\s?[:=(]",
    ),
    _named(
        r"(?i)\b(?:ibm|bluemix)[\w.-]{0,40}[\"']?\s?(?:[:=(]|=>)\s?[\"']?([0-9a-z_-]{44,64})(?:[^0-9a-z_+/-]|$)",
        r"(?i)\b(?:ibm|bluemix)[\w.-]*[\"']?\s?[:=(]",
    ),
    _named(
        r"\b\d{8,16}-[0-9a-z]{32}\.apps\.googleusercontent\.com[\"']?,?\s[^\n]{0,60}?([0-9A-Za-z_-]{24})(?:[^0-9A-Za-z_-]|$)",
        r"\.apps\.googleusercontent\.com[\"']?,?\s",
    ),
    _named(
        r"(?i)\b(?:twilio|dropbox|linkedin|facebook|discord)\b[^\n]{0,60}?\b(?:secret|auth|token|key)[\"']?(?:\s?[:=]\s?|\s)[\"']?"
        r"([0-9a-z]{15,40})\b",
        r"(?i)\b(?:twilio|dropbox|linkedin|facebook|discord)\b[^\n]*(?:secret|auth|token|key)",
    ),
    # Asaas puts a sign before the name; its other keys are for its sandbox.
    _named(r"(?:^|[^0-9A-Za-z_-])(\$aact_prod_[0-9A-Za-z_:=-]{20,200})", r"\$aact_prod_", _asaas),
    _named(
        r"(?i)\bcloudant\w{0,12}\s?\(\s?[\"'][\w-]{1,80}[\"']\s?,\s?[\"']([0-9a-z]{24,64})[\"']",
        r"(?i)\bcloudant\w*\s?\(",
    ),
    # What Maven encrypts with a master password that lies beside it, this one, and what registries keep where it is no
    # login.
    _named(
        r"<(?:master|password|passphrase)>\{([0-9A-Za-z+/]{15,200}={0,2})\}</", r"<(?:master|password|passphrase)>\{"
    ),
    _named(
        r"\\{0,6}\"auths\\{0,6}\"\s?:\s?\{[^{}]{1,160}\{\s?[^{}]{0,160}?\\{0,6}\"auth\\{0,6}\"\s?:\s?\\{0,6}\"([0-9A-Za-z+/_-]{32,}={0,2})",
        r"\"auths\\*\"\s?:",
    ),
)
