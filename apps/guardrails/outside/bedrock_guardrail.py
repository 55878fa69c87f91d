"""Amazon Bedrock Guardrails: `ApplyGuardrail` with a guardrail of the organization's AWS account.

`POST {url}/guardrail/{id}/version/{version}/apply` with `{source: INPUT | OUTPUT, content: [{text: {text}}]}` answers
`{action: NONE | GUARDRAIL_INTERVENED, outputs, assessments: [{topicPolicy, contentPolicy, wordPolicy,
sensitiveInformationPolicy}]}` (AWS API reference of Bedrock Runtime, ApplyGuardrail). Personal data that the guardrail
anonymizes is masked here at each place of its text; all else that it blocks is blocked. Signed with SigV4, or with a
Bedrock API key as bearer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from apps.guardrails.custom import BadConfig
from apps.guardrails.findings.scan_types import RuleAction
from apps.guardrails.outside import (
    INPUT,
    MAX_NAME,
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    as_dict,
    label_of,
    objects_in,
    read_member,
    read_object,
    read_url,
    require_secrets,
)
from apps.keys.aws_signature import Place, Signable, signature

TYPE = "bedrock_guardrail"
JUDGES_EACH_TEXT = False
SECRETS = dict.fromkeys(("apiKey", "accessKeyId", "secretAccessKey", "sessionToken"), False)
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]")
# Policies, and the lists of findings in each.
_POLICIES: Final = (
    ("topicPolicy", "topics", "name"),
    ("contentPolicy", "filters", "type"),
    ("wordPolicy", "customWords", "match"),
    ("wordPolicy", "managedWordLists", "type"),
    ("contextualGroundingPolicy", "filters", "type"),
)
_SENSITIVE: Final = (("piiEntities", "type"), ("regexes", "name"))


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{region, guardrailId, guardrailVersion, url}`. Raises BadConfig."""
    region = read_member(config, "region")
    if not _REGION.fullmatch(region):
        raise BadConfig("region", "Must be a region such as eu-central-1")
    return {
        "region": region,
        "guardrailId": read_member(config, "guardrailId"),
        "guardrailVersion": read_member(config, "guardrailVersion", "DRAFT"),
        "url": read_url(config, f"https://bedrock-runtime.{region}.amazonaws.com"),
    }


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raise BadConfig without either an API key or a pair of access keys."""
    if not secrets.get("apiKey"):
        require_secrets(secrets, "accessKeyId", "secretAccessKey")


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return one signed request with all texts."""
    config, secrets = question.config, question.secrets
    path = f"/guardrail/{quote(config['guardrailId'], safe='')}/version/{quote(config['guardrailVersion'], safe='')}"
    url = f"{config['url']}{path}/apply"
    body = msgspec.json.encode(
        {
            "source": "INPUT" if question.direction == INPUT else "OUTPUT",
            "content": [{"text": {"text": one.text}} for one in question.texts],
            "outputScope": "FULL",
        }
    )
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key := secrets.get("apiKey"):
        return [GuardRequest(url, {**headers, "Authorization": f"Bearer {key}"}, body)]
    headers["X-Amz-Date"] = question.now.strftime("%Y%m%dT%H%M%SZ")
    if token := secrets.get("sessionToken"):
        headers["X-Amz-Security-Token"] = token
    signed = signature(
        Signable("POST", url, headers, body),
        Place("bedrock", config["region"]),
        secrets["accessKeyId"],
        secrets["secretAccessKey"],
    )
    return [GuardRequest(url, {**headers, "Authorization": signed}, body)]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return the places of personal data, and a block for each policy that blocks."""
    answer = read_object(answers[0])
    if answer.get("action") == "NONE":
        return []
    if answer.get("action") != "GUARDRAIL_INTERVENED":
        raise UnusableAnswer("`action` is neither NONE nor GUARDRAIL_INTERVENED")
    found: list[OutsideFinding] = []
    for assessment in objects_in(answer.get("assessments")):
        for policy, group, name in _POLICIES:
            for one in objects_in(as_dict(assessment.get(policy)).get(group)):
                if one.get("action") == "BLOCKED":
                    pattern = f"{policy.removesuffix('Policy')}: {one.get(name)}"[:MAX_NAME]
                    found.append(OutsideFinding(text=_text_with(question, one.get("match")), pattern=pattern))
        for group, name in _SENSITIVE:
            for one in objects_in(as_dict(assessment.get("sensitiveInformationPolicy")).get(group)):
                found += _sensitive(question, one, str(one.get(name) or "sensitive"))
    # An intervention that is not understood is one nevertheless.
    return found or [OutsideFinding(text=len(question.texts) - 1, pattern="intervened")]


def _sensitive(question: GuardQuestion, one: Mapping[str, Any], name: str) -> Iterator[OutsideFinding]:
    """Yield each place of a match. A match that is nowhere makes the whole of every text one."""
    action, match = one.get("action"), one.get("match")
    if action not in ("ANONYMIZED", "BLOCKED"):
        return
    masked: RuleAction | None = "redact" if action == "ANONYMIZED" else None
    places: list[tuple[int, int, int | None]] = [
        (index, *place.span())
        for index, one in enumerate(question.texts)
        for place in (re.finditer(re.escape(match), one.text) if isinstance(match, str) and match else ())
    ]
    for index, start, end in places or [(index, 0, None) for index in range(len(question.texts))]:
        yield OutsideFinding(
            text=index, start=start, end=end, pattern=name[:MAX_NAME], label=label_of(name), action=masked
        )


def _text_with(question: GuardQuestion, match: Any) -> int:
    """Return the text that contains a match; the last where none does."""
    if isinstance(match, str) and match:
        for index, one in enumerate(question.texts):
            if match.lower() in one.text.lower():
                return index
    return len(question.texts) - 1
