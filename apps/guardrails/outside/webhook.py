"""Webhook: an endpoint of the organization judges texts, masks parts of them or rewrites them.

The request is signed as in Standard Webhooks (`apps/kernel/secrets/webhook_signature.py`). The answer is
`{"action": "allow" | "block" | "redact" | "replace"}`: with `reason` (block), with `redactions`, a list of
`{index, start, end, label}` in characters (redact), or with `replacements`, a list of `{index, text}` (replace).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from apps.guardrails.custom import BadConfig
from apps.guardrails.outside import (
    MAX_REASON,
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    label_of,
    objects_in,
    read_object,
    read_url,
)
from apps.kernel.secrets.webhook_signature import secret_key, signed_headers

TYPE = "webhook"
JUDGES_EACH_TEXT = False
SECRETS = {"secret": True}
VERSION = 1


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url}`. Raises BadConfig."""
    return {"url": read_url(config)}


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raise BadConfig unless there is a secret that can sign."""
    try:
        secret_key(secrets["secret"])
    except ValueError as error:
        raise BadConfig("secret", "Must be whsec_ followed by 24 to 64 bytes in base64") from error


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return one signed request with all texts."""
    body = msgspec.json.encode(
        {
            "version": VERSION,
            "id": question.id,
            "direction": question.direction,
            "rule": {"id": question.rule_id, "name": question.rule_name},
            "organizationId": question.facts.organization_id,
            "apiKeyId": question.facts.api_key_id,
            "model": question.facts.model,
            "session": question.facts.session or None,
            "texts": [
                {
                    "index": index,
                    "role": one.role,
                    "place": one.place,
                    "text": one.text,
                    "replaceable": one.is_replaceable,
                }
                for index, one in enumerate(question.texts)
            ],
        }
    )
    signed = signed_headers(secret_key(question.secrets["secret"]), question.id, question.now, body)
    return [GuardRequest(question.config["url"], {"Content-Type": "application/json", **signed}, body)]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return what the endpoint decided. Raises UnusableAnswer for anything but a valid decision."""
    answer = read_object(answers[0])
    match answer.get("action"):
        case "allow":
            return []
        case "block":
            reason = answer.get("reason")
            words = " ".join(reason.split())[:MAX_REASON] if isinstance(reason, str) else ""
            index = answer.get("index", len(question.texts) - 1)
            return [OutsideFinding(text=_index(index), pattern=words or "blocked", action="block")]
        case "redact":
            return [
                OutsideFinding(
                    text=_index(one.get("index")),
                    start=_index(one.get("start")),
                    end=_index(one.get("end")),
                    pattern=_label(one) or "redacted",
                    label=_label(one),
                    action="redact",
                )
                for one in _list(answer, "redactions")
            ]
        case "replace":
            return [_replacement(question, one) for one in _list(answer, "replacements")]
    raise UnusableAnswer("`action` is none of allow, block, redact, replace")


def _replacement(question: GuardQuestion, one: Mapping[str, Any]) -> OutsideFinding:
    index, text = _index(one.get("index")), one.get("text")
    if not isinstance(text, str):
        raise UnusableAnswer("a replacement has no `text`")
    if index < len(question.texts) and not question.texts[index].is_replaceable:
        raise UnusableAnswer(f"text {index} is not replaceable")
    return OutsideFinding(text=index, pattern="replaced", action="redact", replacement=text)


def _list(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = answer.get(name)
    found = list(objects_in(value))
    if not isinstance(value, list) or len(found) != len(value):
        raise UnusableAnswer(f"`{name}` is not a list of objects")
    return found


def _index(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnusableAnswer("an index is not a whole number")
    return value


def _label(one: Mapping[str, Any]) -> str:
    label = one.get("label", "")
    if not isinstance(label, str):
        raise UnusableAnswer("a label is not a text")
    return label_of(label)
