"""Lakera Guard: `POST {url}/v2/guard`, judged by the policy of the organization's project at Lakera.

`{messages: [{role, content}], project_id, breakdown, payload}` is answered with `{flagged, breakdown: [{detector_type,
detected, message_id}], payload: [{start, end, text, detector_type, labels, message_id}]}` (docs.lakera.ai,
api-reference/lakera-api/guard/screen-content). Where all that it detected has places, only these are masked or
blocked, else the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apps.guardrails.findings.scan_types import EXTERNAL_ROLES, INSTRUCTING_ROLES
from apps.guardrails.outside import (
    MAX_NAME,
    OUTPUT,
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    json_request,
    label_of,
    objects_in,
    read_member,
    read_object,
    read_url,
)

TYPE = "lakera"
JUDGES_EACH_TEXT = False
SECRETS = {"apiKey": True}


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url, projectId}`. Raises BadConfig."""
    return {"url": read_url(config, "https://api.lakera.ai"), "projectId": read_member(config, "projectId", "")}


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return one request with all texts as messages."""
    asked: dict[str, Any] = {
        "messages": [{"role": _role(question, one.role), "content": one.text} for one in question.texts],
        "breakdown": True,
        "payload": True,
    }
    if project := question.config["projectId"]:
        asked["project_id"] = project
    return [json_request(f"{question.config['url']}/v2/guard", asked, question.secrets["apiKey"])]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return the detected findings, at their places where they have some."""
    answer = read_object(answers[0])
    if not isinstance(answer.get("flagged"), bool):
        raise UnusableAnswer("`flagged` is neither true nor false")
    if not answer["flagged"]:
        return []
    placed = [_place(question, one) for one in objects_in(answer.get("payload"))]
    located = [one.get("detector_type") for one in objects_in(answer.get("payload"))]
    found = [one for one in placed if one is not None]
    detected = [one for one in objects_in(answer.get("breakdown")) if one.get("detected") is True]
    whole = [one for one in detected if one.get("detector_type") not in located or None in placed]
    found += [
        OutsideFinding(text=_index(question, one), pattern=str(one.get("detector_type"))[:MAX_NAME]) for one in whole
    ]
    return found or [OutsideFinding(text=len(question.texts) - 1, pattern="flagged")]


def _place(question: GuardQuestion, one: Mapping[str, Any]) -> OutsideFinding | None:
    """Return a match at its place, or where its text is; None where neither is right."""
    start, end, matched = one.get("start"), one.get("end"), one.get("text")
    name, index = str(one.get("detector_type") or "match")[:MAX_NAME], _index(question, one)
    text = question.texts[index].text
    if not isinstance(matched, str) or not matched:
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end <= len(text):
            return None
    else:
        if not isinstance(start, int) or text[start : start + len(matched)] != matched:
            start = text.find(matched)
        if start < 0:
            return None
        end = start + len(matched)
    return OutsideFinding(text=index, start=start, end=end, pattern=name, label=label_of(name.rpartition("/")[2]))


def _index(question: GuardQuestion, one: Mapping[str, Any]) -> int:
    """Return the message that is meant; the last one where it is not said."""
    index = one.get("message_id")
    known = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(question.texts)
    return int(index) if known and index is not None else len(question.texts) - 1


def _role(question: GuardQuestion, role: str) -> str:
    if question.direction == OUTPUT:
        return "assistant"
    if role in INSTRUCTING_ROLES or role == "tool":
        return "system"
    if role in EXTERNAL_ROLES:
        return "tool"
    return role if role in ("user", "assistant") else "user"
