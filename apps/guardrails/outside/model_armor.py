"""Google Model Armor: `sanitizeUserPrompt` and `sanitizeModelResponse` by a template of the organization's project.

`POST {url}/v1/projects/{p}/locations/{l}/templates/{t}:sanitizeUserPrompt` with `{userPromptData: {text}}` (or
`:sanitizeModelResponse`, `{modelResponseData: {text}}`) answers `{sanitizationResult: {filterMatchState,
invocationResult, filterResults: {rai, pi_and_jailbreak, malicious_uris, csam, sdp}}}` (Model Armor REST reference, v1).
Text that its Sensitive Data Protection template de-identified takes the place of the text. Signed with a JWT of the
service account itself, which Google's APIs take without a token exchange (google.aip.dev/auth/4111).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from apps.guardrails.custom import BadConfig
from apps.guardrails.outside import (
    INPUT,
    MAX_NAME,
    OUTPUT,
    SEPARATOR,
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    Pack,
    UnusableAnswer,
    as_dict,
    json_request,
    objects_in,
    packs_of,
    read_member,
    read_object,
    read_url,
)

TYPE = "model_armor"
JUDGES_EACH_TEXT = True
SECRETS = {"serviceAccount": True}
_TEMPLATE: Final = re.compile(r"projects/[a-z0-9:.-]+/locations/([a-z0-9-]+)/templates/[A-Za-z0-9_-]+")
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_LIFETIME: Final = 600
# Characters of one request: its limit is in tokens of the smallest filter.
_MAX_CHARACTERS: Final = 30_000
_FOUND: Final = "MATCH_FOUND"
_REQUESTED: Final = {
    INPUT: ("sanitizeUserPrompt", "userPromptData"),
    OUTPUT: ("sanitizeModelResponse", "modelResponseData"),
}


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{template, url}`. Raises BadConfig."""
    template = read_member(config, "template")
    found = _TEMPLATE.fullmatch(template)
    if found is None:
        raise BadConfig("template", "Must be a name such as projects/acme/locations/europe-west4/templates/strict")
    url = read_url(config, f"https://modelarmor.{found[1]}.rep.googleapis.com")
    return {"template": template, "url": url}


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raise BadConfig unless there is a service account whose key can sign, or an access token."""
    if not secrets["serviceAccount"].startswith("ya29."):
        try:
            _signer_of(secrets["serviceAccount"])
        except ValueError as error:
            raise BadConfig("serviceAccount", "Must be the JSON of a service account's key") from error


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return a request for each pack of texts; Model Armor takes one text at a time."""
    verb, member = _REQUESTED[question.direction]
    url, token = f"{question.config['url']}/v1/{question.config['template']}:{verb}", _token(question)
    packs = packs_of(question.texts, _MAX_CHARACTERS)
    return [json_request(url, {member: {"text": pack.text}}, token) for pack in packs]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return the filters that match each text, and de-identified texts."""
    found: list[OutsideFinding] = []
    for pack, body in zip(packs_of(question.texts, _MAX_CHARACTERS), answers, strict=True):
        result = as_dict(read_object(body).get("sanitizationResult"))
        if result.get("filterMatchState") not in (_FOUND, "NO_MATCH_FOUND"):
            raise UnusableAnswer("the answer has no `filterMatchState`")
        if result.get("invocationResult", "SUCCESS") != "SUCCESS":
            raise UnusableAnswer("not all filters ran")
        matched = list(_matches(as_dict(result.get("filterResults"))))
        if not matched and result["filterMatchState"] == _FOUND:
            matched = [("match", None)]
        for name, changed in matched:
            found += _findings_in(question, pack, name, changed)
    return found


def _findings_in(question: GuardQuestion, pack: Pack, name: str, changed: str | None) -> Iterator[OutsideFinding]:
    """Yield a match in each text of a pack; with the de-identified text where each of them can be identified."""
    parts = [] if changed is None or not pack.is_whole else changed.split(SEPARATOR)
    if len(parts) != len(pack.indexes):
        yield from (OutsideFinding(text=index, pattern=name) for index in pack.indexes)
        return
    for index, part in zip(pack.indexes, parts, strict=True):
        if part == question.texts[index].text:
            continue
        is_changed = question.texts[index].is_replaceable
        yield OutsideFinding(
            text=index,
            pattern=name,
            action="redact" if is_changed else None,
            replacement=part if is_changed else None,
        )


def _matches(results: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each filter that matched, and the de-identified text where there is one."""
    for name, wrapped in results.items():
        for inner in objects_in(list(as_dict(wrapped).values())):
            deidentified = as_dict(inner.get("deidentifyResult"))
            if deidentified.get("matchState") == _FOUND:
                text = as_dict(deidentified.get("data")).get("text")
                yield name[:MAX_NAME], text if isinstance(text, str) else None
            elif _FOUND in (inner.get("matchState"), as_dict(inner.get("inspectResult")).get("matchState")):
                types = as_dict(inner.get("raiFilterTypeResults"))
                named = [one for one, state in types.items() if as_dict(state).get("matchState") == _FOUND]
                yield ": ".join((name, ", ".join(named)) if named else (name,))[:MAX_NAME], None


def _token(question: GuardQuestion) -> str:
    """Return a bearer token: the one that is stored, or a JWT signed by the account's key."""
    secret = question.secrets["serviceAccount"]
    if secret.startswith("ya29."):
        return secret
    # Imported on first use: few need it.
    from google.auth import jwt

    signer, email = _signer_of(secret)
    issued = int(question.now.timestamp())
    claims = {
        "iss": email,
        "sub": email,
        "scope": _SCOPE,
        "iat": issued,
        "exp": issued + _LIFETIME,
    }
    token: bytes = jwt.encode(signer, claims)  # type: ignore[no-untyped-call]  # the library has no types
    return token.decode()


def _signer_of(secret: str) -> tuple[Any, str]:
    """Return the signer of a service account, and the account's address. Raises ValueError."""
    from google.auth import crypt

    try:
        account = msgspec.json.decode(secret, type=dict[str, Any])
        email = str(account["client_email"])
    except (msgspec.MsgspecError, UnicodeError, KeyError) as error:
        raise ValueError("no service account") from error
    return crypt.RSASigner.from_service_account_info(account), email  # type: ignore[no-untyped-call]  # the library has no types
