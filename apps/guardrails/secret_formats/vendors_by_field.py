"""API keys and tokens by the field of their issuers: clouds, building software, business, models.

Their documents say how tokens begin and how long they are.

The same table as in `vendors`, which holds the ones that are seen most. Keys for a vendor's test mode are no secrets.
"""

from __future__ import annotations

import base64
import binascii

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.secret_formats.entropy import has_letters_and_digits, is_placeholder, is_random, reads_like_words
from apps.guardrails.secret_formats.vendors import ENOUGH, ENOUGH_HEX, random_check, token_patterns

_LABEL = "SECRET"
# From so many characters on, words would be a sentence.
_LONG = 36
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_GROUPED = r"[0-9A-Za-z]{8}-(?:[0-9A-Za-z-]{4}-){3}[0-9A-Za-z-]{12}"

# Name, pattern, length of what all tokens of the form begin with, least entropy of the rest.
_CLOUD: tuple[tuple[str, str, int, float], ...] = (
    ("onepassword", r"\bops_eyJ[0-9A-Za-z+/_-]{100,}={0,3}", 7, ENOUGH),
    ("onepassword", r"\bA3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}", 3, ENOUGH),
    ("aws_bedrock", r"\bABSK[0-9A-Za-z+/]{109,269}={0,2}", 4, ENOUGH),
    ("alibaba", r"\bLTAI[0-9A-Za-z]{12,20}", 4, ENOUGH_HEX),
    ("tencent", r"\bAKID[0-9A-Za-z]{32}", 4, ENOUGH),
    ("yandex", r"\bt1\.[0-9A-Za-z_-]{20,400}={0,2}\.[0-9A-Za-z_-]{86}", 3, ENOUGH),
    ("yandex", r"\b(?:AQVN[0-9A-Za-z_-]{35,38}|YC[A-Z][0-9A-Za-z_-]{37})", 4, ENOUGH),
    ("azure_key", r"\b[0-9A-Za-z]{40,80}(?:AzSe|AzFu|AzCa|ACog|AQoJ99)[0-9A-Za-z+/]{5,60}={0,2}", 0, ENOUGH),
    ("azure_storage", r"\b[0-9A-Za-z+/]{76}\+ASt[0-9A-Za-z+/]{6}==", 0, ENOUGH),
    ("artifactory", r"\bAKC[a-zA-Z0-9]{10,90}", 4, ENOUGH_HEX),
    ("artifactory", r"\bcmVmd[0-9A-Za-z]{40,70}", 5, ENOUGH),
    ("fly", r"\bfm[12][ar]?_[0-9A-Za-z+/]{80,}={0,3}", 4, ENOUGH),
    ("scalingo", r"\btk-us-[0-9A-Za-z_-]{48}", 6, ENOUGH),
    ("clickhouse", r"\b4b1d[0-9A-Za-z]{38}", 4, ENOUGH),
    ("neon", r"\bnapi_[0-9a-z]{60,70}", 5, ENOUGH),
    ("render", r"\brnd_[0-9A-Za-z]{28,40}", 4, ENOUGH),
    ("vercel", r"\bvc[pkiar]_[0-9A-Za-z]{24,80}", 4, ENOUGH),
    ("netlify", r"\bnf[couk]_[0-9A-Za-z]{36,40}", 4, ENOUGH),
    ("supabase", r"\bsbp_v0_[0-9a-f]{40}", 7, ENOUGH_HEX),
    ("supabase", r"\bsb_secret_[0-9A-Za-z_-]{24,48}", 10, ENOUGH),
    ("mongodb", r"\bmdb_sa_sk_[0-9A-Za-z_-]{40}", 10, ENOUGH),
    ("deno", r"\bdd[opw]_[0-9A-Za-z]{36}", 4, ENOUGH),
    ("cloudflare", r"\b(?:cfut|cfat|cfk)_[0-9A-Za-z_-]{40,60}", 5, ENOUGH),
    ("ibm", r"\bApiKey-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", 7, ENOUGH_HEX),
    ("salesforce", r"\b00D[0-9A-Za-z]{12,15}![0-9A-Za-z._]{60,120}", 15, ENOUGH),
    ("dynatrace", r"(?i)\bdt0[a-z]\d\d\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}", 7, ENOUGH),
    ("terraform", r"(?i)\b[0-9a-z]{14}\.atlasv1\.[0-9a-z=_-]{60,80}", 0, ENOUGH),
    ("vault", r"\b[sb]\.[0-9A-Za-z]{24}", 2, 3.6),
    ("azure_devops", r"\b[0-9A-Za-z]{76}AZDO[0-9A-Za-z]{4}", 0, ENOUGH),
    ("aiven", r"\bAVNS_[0-9A-Za-z_-]{19}", 5, ENOUGH),
    ("cockroach", r"\bCCDB1_[0-9A-Za-z]{22}_[0-9A-Za-z]{40}", 6, ENOUGH),
    ("snowflake", r"\bver:1-hint:\d{4,20}-ETMsDgAAA[0-9A-Za-z+/=]{40,400}", 12, ENOUGH),
)
_BUILDING: tuple[tuple[str, str, int, float], ...] = (
    ("adobe", r"\bp8e-[0-9A-Za-z]{32}", 4, ENOUGH),
    ("gitlab", r"\bgl(?:oas|ffct|rtr|wt)-[0-9A-Za-z_-]{20,80}", 6, ENOUGH_HEX),
    ("gitlab", r"\bglcbt-[0-9A-Za-z]{1,5}_[0-9A-Za-z_-]{20}", 7, ENOUGH),
    ("gitlab", r"\bGR1348941[0-9A-Za-z_-]{20,50}", 9, ENOUGH),
    ("gitlab_session", r"\b_gitlab_session=[0-9a-z]{32}", 16, ENOUGH_HEX),
    ("bitbucket", r"\bBBDC-[0-9A-Za-z+/@_-]{40,50}", 5, ENOUGH),
    ("gitea", r"\bgta_[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("clojars", r"\bCLOJARS_[0-9a-zA-Z]{60}", 8, ENOUGH_HEX),
    ("crates_io", r"\bcio[0-9A-Za-z]{32}", 3, ENOUGH),
    ("nuget", r"\boy2[0-9a-z]{43}", 3, ENOUGH),
    ("pypi", r"\bpypi-[0-9A-Za-z_-]{85,}", 5, ENOUGH),
    ("atlassian", r"\bAT[ACS]TT3[0-9A-Za-z_=-]{60,250}", 6, ENOUGH),
    ("trello", r"\bATTA[0-9a-f]{64}[0-9A-F]{8}", 4, ENOUGH_HEX),
    ("harness", r"\b[ps]at\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z]{24}\.[0-9A-Za-z]{20}", 4, ENOUGH),
    ("infracost", r"\bico-[0-9A-Za-z]{32}", 4, ENOUGH),
    ("readme", r"\brdme_[0-9a-z]{70}", 5, ENOUGH),
    ("octopus", r"\bAPI-[A-Z0-9]{25,26}", 4, ENOUGH),
    (
        "new_relic",
        r"\b(?:NRII-[0-9A-Za-z_-]{25,32}|NRJS-[0-9a-f]{19}|NRRA-[0-9a-f]{42}|NR[IB][QBR]-[0-9A-Za-z_-]{19,32})",
        5,
        2.6,
    ),
    ("dbt", r"\bdbt[uc]_[0-9A-Za-z_-]{40,60}", 5, ENOUGH),
    ("buildkite", r"\bbk(?:ua|aj|ct|pt)_[0-9a-zA-Z]{36,80}", 5, ENOUGH_HEX),
    ("stackhawk", r"\bhawk\.[0-9A-Za-z_-]{20}\.[0-9A-Za-z_-]{20}", 5, ENOUGH),
    ("sauce", r"\bhapi-[0-9A-Za-z]{40}", 5, ENOUGH),
    ("figma", r"\bfig(?:d|o|u|or|oh|ph|ur|uh)_[0-9A-Za-z_-]{40,50}", 5, ENOUGH),
    ("postman", r"(?i)\bpmak-[0-9a-f]{24}-[0-9a-f]{34}", 5, ENOUGH_HEX),
    ("postman", r"\bPMAT-[0-9A-Z]{26}", 5, ENOUGH),
    ("ionic", r"\b(?:ion|odt)_[0-9A-Za-z]{32,48}", 4, ENOUGH),
    ("twilio", r"\bSK[0-9A-Fa-f]{32}", 2, ENOUGH_HEX),
    ("grafana_cloud", r"\bglc_[0-9A-Za-z+/]{32,400}={0,3}", 4, ENOUGH),
    ("sentry", r"\bsntr(?:ys|yu|ya|yi)_[0-9A-Za-z+/=_-]{40,400}", 7, ENOUGH_HEX),
    ("sourcegraph", r"\bsl[kw]_[0-9a-f]{64}", 4, ENOUGH_HEX),
    ("pulumi", r"\bpul-[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("wandb", r"\bwandb_v1_[0-9A-Za-z_]{40,100}", 9, ENOUGH),
    ("zuplo", r"\bzpka_[0-9A-Za-z]{32}_[0-9a-f]{8}", 5, ENOUGH),
    ("apify", r"\bapify_api_[0-9A-Za-z]{32,40}", 10, ENOUGH),
    ("defined", r"\bdnkey-[0-9A-Za-z=_-]{26}-[0-9A-Za-z=_-]{52}", 6, ENOUGH),
    (
        "authress",
        r"\b(?:sc|ext|scauth|authress)_[0-9A-Za-z]{5,30}\.[0-9A-Za-z]{4,6}\.acc[_-][0-9a-z-]{10,32}\.[0-9A-Za-z+/_=-]{30,120}",
        3,
        ENOUGH,
    ),
    ("intra42", r"\bs-s4t2(?:ud|af)-[0-9a-f]{64}", 9, ENOUGH_HEX),
    ("maxmind", r"\b[0-9A-Za-z]{6}_[0-9A-Za-z]{29}_mmk", 0, ENOUGH),
    ("rootly", r"\brootly_[0-9a-f]{64}", 7, ENOUGH_HEX),
    ("inngest", r"\bsignkey-prod-[0-9a-f]{64}", 13, ENOUGH_HEX),
    ("sourcegraph", r"\bsgp_(?:[0-9a-fA-F]{16}_|local_)?[0-9a-fA-F]{40}", 4, ENOUGH_HEX),
    ("contentful", r"\bCFPAT-[0-9A-Za-z_-]{40,46}", 6, ENOUGH),
    ("okta", r"\bSSWS +00[0-9A-Za-z_-]{40}", 7, ENOUGH),
)
_MORE: tuple[tuple[str, str, int, float], ...] = (
    ("gitlab", r"\bgl[a-z]{2,6}-[0-9A-Za-z_.-]{20,250}", 6, ENOUGH),
    ("github", r"\bgh[us]_\d{3,12}_eyJ[0-9A-Za-z_-]{16,300}(?:\.[0-9A-Za-z_-]{16,400}){1,2}", 4, ENOUGH),
    ("twitch", r"\blive_\d{8,12}_[0-9A-Za-z]{28,36}", 5, ENOUGH),
    ("teamcity", r"\beyJ0eXAiOiAiVENWMiJ9\.[0-9A-Za-z_-]{36}\.[0-9A-Za-z_-]{48}", 21, ENOUGH),
    ("truenas", r"\b\d{1,5}-[0-9A-Za-z]{64}", 0, 4.0),
    ("nats_seed", r"\bS[ACNOUX][A-Z2-7]{56}", 2, ENOUGH),
    ("docker_swarm", r"\bSWMTKN-1-[0-9a-z]{40,60}-[0-9a-z]{25}", 9, ENOUGH),
    ("docker_swarm", r"\bSWMKEY-1-[0-9A-Za-z+/]{43}", 9, ENOUGH),
    ("wundergraph", r"\bcosmo_[0-9a-f]{32}", 6, ENOUGH_HEX),
    ("akamai", r"\bakab-[0-9a-z]{16}-[0-9a-z]{16}", 5, ENOUGH),
    ("llama", r"\bLLM\|\d{12,20}\|[0-9A-Za-z_-]{24,40}", 4, ENOUGH),
    ("mailgun", r"\b[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}", 0, ENOUGH_HEX),
    ("plaid", rf"\baccess-development-{_UUID}", 19, ENOUGH_HEX),
    ("beamer", r"\bb_[0-9A-Za-z+/=_-]{44}", 2, 4.0),
    ("scaleway", r"\bSCW[A-Z0-9]{17}", 3, ENOUGH),
    ("expo", r"\bexpo_[0-9A-Za-z_-]{36,60}", 5, ENOUGH),
    ("depot", r"\bdepot_(?:org|project)_[0-9a-f]{60,70}", 6, ENOUGH_HEX),
    ("convex", r"\bprod:[a-z]+-[a-z]+-\d{1,4}\|eyJ[0-9A-Za-z+/=]{40,400}", 5, ENOUGH),
    ("upstash", r"\bUPSTASH_[A-Z_]{4,40}=[0-9A-Za-z=_-]{32,120}", 8, ENOUGH),
    ("coda", rf"\bcoda(?:key|token)?-{_UUID}", 5, ENOUGH_HEX),
)
_BUSINESS: tuple[tuple[str, str, int, float], ...] = (
    ("facebook", r"\bEAA[A-Za-z0-9]{60,400}", 4, ENOUGH),
    ("facebook", r"\b\d{15,16}(?:\||%7C)[0-9A-Za-z_-]{27,40}", 18, ENOUGH),
    ("instagram", r"\bIGQ[A-Za-z0-9_-]{60,400}", 3, ENOUGH),
    ("mailchimp", r"\b[0-9a-f]{32}-us\d{1,2}", 0, ENOUGH_HEX),
    ("mandrill", r"\bmd-[0-9A-Za-z_-]{22}", 3, ENOUGH),
    ("dropbox", r"\bsl\.(?:u\.)?[0-9A-Za-z_-]{60,}", 3, ENOUGH),
    ("dropbox", r"\b[0-9A-Za-z]{11}AAAAAAAAAA[0-9A-Za-z_=-]{43}", 0, 3.0),
    ("slack", r"\bxox[a-z]-(?:\d-)?[0-9A-Za-z-]{20,400}", 5, 2.6),
    ("slack", r"\bxoxe\.xox[bp]-\d-[0-9A-Za-z]{100,400}", 12, ENOUGH),
    ("slack_webhook", r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[0-9A-Za-z/+_-]{30,90}", 25, ENOUGH),
    (
        "teams_webhook",
        rf"\b(?:[a-z0-9-]{{1,60}}\.webhook\.office\.com/webhookb2|outlook\.office"
        rf"(?:365)?\.com/webhook)/{_GROUPED}@{_GROUPED}"
        rf"/IncomingWebhook/[0-9A-Za-z]{{32}}/{_GROUPED}",
        60,
        ENOUGH_HEX,
    ),
    ("zapier_webhook", r"\bhooks\.zapier\.com/hooks/catch/\d{5,12}/[0-9a-z]{6,16}", 20, 2.5),
    (
        "google_chat_webhook",
        r"\bchat\.googleapis\.com/v1/spaces/[0-9A-Za-z_-]{8,20}/messages\?key=[0-9A-Za-z_-]{20,60}&token=[0-9A-Za-z_%-]{20,80}",
        40,
        ENOUGH,
    ),
    ("google_refresh", r"\b1//0[0-9A-Za-z_-]{40,200}", 4, ENOUGH),
    ("square", r"\bsq0[a-z]{3}-[0-9A-Za-z_-]{22,60}", 7, ENOUGH),
    ("stripe", r"\b(?:sk|rk)_prod_[0-9A-Za-z]{16,250}", 8, 3.0),
    ("paypal", r"\baccess_token\$production\$[0-9a-z]{13,20}\$[0-9a-z]{32}", 24, ENOUGH_HEX),
    ("plaid", rf"\baccess-production-{_UUID}", 18, ENOUGH_HEX),
    ("razorpay", r"\brzp_live_[0-9A-Za-z]{10,40}", 9, 3.0),
    ("flutterwave", r"\bFLWSECK(?:_LIVE)?-[0-9A-Za-z]{32}-X", 8, ENOUGH_HEX),
    ("duffel", r"\bduffel_live_[0-9A-Za-z_=-]{43}", 12, ENOUGH),
    ("easypost", r"\bEZAK[0-9A-Za-z]{54}", 4, ENOUGH),
    ("shopify", r"(?i)\bshp(?:tka|ua|it|rt)_[0-9a-f]{32}", 6, ENOUGH_HEX),
    ("frameio", r"\bfio-u-[0-9A-Za-z_=-]{64}", 6, ENOUGH),
    ("typeform", r"\btfp_[0-9A-Za-z_.=-]{40,64}", 4, ENOUGH),
    ("brevo", r"\bx(?:keysib|smtpsib)-[0-9a-fA-F]{64}-[0-9A-Za-z]{16}", 9, ENOUGH_HEX),
    ("resend", r"\bre_[0-9A-Za-z]{8}_[0-9A-Za-z]{24}", 3, ENOUGH),
    ("asana", r"\b[12]/\d{10,20}(?:/\d{10,20})?:[0-9a-f]{32}", 12, ENOUGH_HEX),
    ("twitter", r"\bA{10,22}[0-9A-Za-z%]{60,120}", 22, ENOUGH),
    ("discord", r"\bmfa\.[0-9A-Za-z_-]{80,100}", 4, ENOUGH),
    ("telegram", r"\b\d{5,12}:AA[0-9A-Za-z_-]{32,34}", 8, ENOUGH),
    ("posthog", r"\bph[asrx]_[0-9A-Za-z]{40,64}", 4, ENOUGH),
    ("tines_webhook", r"\b[a-z0-9-]{1,60}\.tines\.com/webhook/[0-9a-z]{32}/[0-9a-z]{32}", 40, ENOUGH),
    ("adafruit", r"\baio_[0-9A-Za-z]{28}", 4, ENOUGH),
    ("hubspot", rf"\bpat-[a-z]{{2}}\d-{_UUID}", 8, ENOUGH_HEX),
    ("onfido", r"\bapi_live(?:_[a-z]{2})?\.[0-9A-Za-z_-]{11}\.[0-9A-Za-z_-]{32}", 8, ENOUGH),
    ("bannerbear", r"\bbb_(?:ma|pr)_[0-9a-f]{30}", 6, ENOUGH_HEX),
    ("besttime", r"\bpri_[0-9a-f]{32}", 4, ENOUGH_HEX),
    ("linkedin", r"\bWPL_AP\d\.[0-9A-Za-z]{16}\.[0-9A-Za-z+/]{6}={0,2}", 8, ENOUGH),
    ("nylas", r"\bnyk_v0_[0-9A-Za-z]{64}", 7, ENOUGH),
    ("firebase", r"\bAAAA[0-9A-Za-z_-]{7}:APA91[0-9A-Za-z_-]{129}", 4, ENOUGH),
    ("pubnub", rf"\bsec-c-{_UUID}", 6, ENOUGH_HEX),
)
_MODELS: tuple[tuple[str, str, int, float], ...] = (
    ("fireworks", r"\bfw_[0-9A-Za-z]{22,28}", 3, ENOUGH),
    ("together", r"\btgp_v1_[0-9A-Za-z_-]{43}", 7, ENOUGH),
    ("cerebras", r"\bcsk-[0-9a-z]{48}", 4, ENOUGH),
    ("voyage", r"\bpa-[0-9A-Za-z_-]{43}", 3, 3.6),
    ("jina", r"\bjina_[0-9A-Za-z_-]{40,64}", 5, ENOUGH),
    ("firecrawl", r"\bfc-[0-9a-f]{32}", 3, ENOUGH_HEX),
    ("langfuse", rf"\bsk-lf-{_UUID}", 6, ENOUGH_HEX),
    ("openai", r"\bsk-(?:[a-z]{2,12}-){0,3}[0-9A-Za-z_-]{10,120}T3BlbkFJ[0-9A-Za-z_-]{16,120}", 3, ENOUGH),
    ("litellm", r"\bsk-[0-9A-Za-z_-]{20,31}", 3, 3.7),
    ("xai", r"\bxai-[0-9A-Za-z_-]{60,100}", 4, ENOUGH),
    ("e2b", r"\be2b_[0-9a-f]{40}", 4, ENOUGH_HEX),
    ("cursor", r"\bcrsr_[0-9a-f]{64}", 5, ENOUGH_HEX),
    ("weaviate", r"\bWCS_[0-9A-Za-z_-]{30,60}", 4, ENOUGH),
    ("baseten", r"\b[0-9A-Za-z]{8}\.[0-9A-Za-z]{32}", 0, 4.2),
    ("hugging_face", r"\b(?:hf|api_org)_[A-Za-z]{30,40}", 3, ENOUGH),
)


def _atlassian(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a personal token of a data center: the number of its row, a colon, and random bytes."""
    try:
        number, colon, rest = base64.b64decode(candidate.text).partition(b":")
    except binascii.Error:
        return None
    return candidate if colon and number.isdigit() and len(number) >= 10 and len(rest) >= 16 else None


def _registry(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a registry's settings keep, unless it is a variable of a program."""
    text = candidate.text
    made = text.endswith("=") or (has_letters_and_digits(text) and not text.islower()) or is_random(text, 3.6)
    return candidate if made and not is_placeholder(text) and not text.isidentifier() else None


def _made(least: float, prefix: int) -> Check:
    """Return the check of a token that no identifier or file's name can be: with digits, and not of words."""
    check = random_check(least, prefix)

    def is_made(candidate: CandidateMatch) -> CandidateMatch | None:
        rest = candidate.text[prefix:]
        if candidate.before(1) == b"." or not any(map(str.isdigit, rest)):
            return None
        return None if len(rest) < _LONG and reads_like_words(rest) else check(candidate)

    return is_made


PATTERNS = (
    *token_patterns((*_CLOUD, *_BUILDING, *_MORE, *_BUSINESS, *_MODELS), _made),
    # Workflows of Power Automate and links to stored files: who has the signature may call or read them.
    CandidatePattern("signed_link", _LABEL, r"[?&](?:sig|signature)=([0-9A-Za-z_%+/-]{40,120}=?)", random_check(3.5)),
    # Behind a slash, where the tokens of a chat's hooks stand.
    CandidatePattern(
        "telegram_hook", _LABEL, r"api\.telegram\.org/bot(\d{5,12}:[0-9A-Za-z_-]{30,40})", random_check(3.0, 8)
    ),
    CandidatePattern(
        "npm_auth",
        "PASSWORD",
        r"(?m)^//[^\s:]{4,200}:_(?:auth|password|authToken) ?= ?\"?([^\s\"'$<>{}]{6,200})\"?[ \t\r]*$",
        lambda candidate: None if is_placeholder(candidate.text) else candidate,
        gate=r":_(?:auth|password|authToken) ?=",
    ),
    # The same for all registries: base64, which has a capital, a digit or a sign of its end.
    CandidatePattern(
        "npm_auth",
        "PASSWORD",
        r"(?m)^[ \t]*_(?:auth|password|authToken) ?= ?\"?([0-9A-Za-z+/_-]{7,200}={0,2})\"?[ \t\r]*$",
        _registry,
        gate=r"(?m)^[ \t]*_(?:auth|password|authToken) ?= ?\"?[0-9A-Za-z+/_-]",
    ),
    CandidatePattern(
        "npm_auth", _LABEL, r"_(?:authToken|auth|password) ?= ?\"?([0-9A-Za-z+/_=-]{16,200})", _made(3.0, 0)
    ),
    CandidatePattern("account_json", _LABEL, r"\"private_key_id\": ?\"([0-9a-f]{40})\"", random_check(ENOUGH_HEX)),
    CandidatePattern("atlassian_server", _LABEL, r"\b([MNO][A-Za-z0-9+/]{43})(?:[^A-Za-z0-9+/=]|$)", _atlassian),
    CandidatePattern(
        "okta",
        _LABEL,
        r"\b(?i:okta|ssws)[^\n]{0,40}?\b(00[0-9A-Za-z_-]{40})\b",
        random_check(ENOUGH),
        gate=r"(?i)\b(?:okta|ssws)",
    ),
)
