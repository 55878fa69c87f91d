"""Presidio: personal data that a Presidio analyzer finds; its places are masked or blocked, as the rule says.

`POST {url}/analyze` with `{text: [...], language, entities, score_threshold}` answers a list for each text of
`{entity_type, start, end, score}` (presidio-analyzer's app.py and openapi `api-docs.yml`, microsoft/presidio).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from apps.guardrails.custom import BadConfig
from apps.guardrails.outside import (
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    objects_in,
    read_json,
    read_member,
    read_threshold,
    read_url,
)

TYPE = "presidio"
JUDGES_EACH_TEXT = True
SECRETS = ("apiKey",)
_ENTITY = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
_MAX_ENTITIES = 100


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url, language, entities, scoreThreshold}`; no entities means all that it knows. Raises BadConfig."""
    entities = config.get("entities", [])
    if not isinstance(entities, list) or len(entities) > _MAX_ENTITIES:
        raise BadConfig("entities", f"Must be a list of at most {_MAX_ENTITIES} names such as PERSON")
    for index, one in enumerate(entities):
        if not isinstance(one, str) or not _ENTITY.fullmatch(one):
            raise BadConfig(f"entities[{index}]", "Must be a name such as PERSON or US_SSN")
    return {
        "url": read_url(config),
        "language": read_member(config, "language", "en"),
        "entities": entities,
        "scoreThreshold": read_threshold(config, "scoreThreshold", 0.5, 1),
    }


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Accept any: an analyzer has no keys of its own, a proxy before it may want one."""


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return one request with all texts."""
    config = question.config
    asked: dict[str, Any] = {
        "text": [one.text for one in question.texts],
        "language": config["language"],
        "score_threshold": config["scoreThreshold"],
    }
    if config["entities"]:
        asked["entities"] = config["entities"]
    headers = {"Content-Type": "application/json"}
    if key := question.secrets.get("apiKey"):
        headers["Authorization"] = f"Bearer {key}"
    return [GuardRequest(f"{config['url']}/analyze", headers, msgspec.json.encode(asked))]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return each entity at its place."""
    lists = read_json(answers[0])
    if not isinstance(lists, list) or len(lists) != len(question.texts):
        raise UnusableAnswer("the answer is not a list for each text")
    found = []
    for index, entities in enumerate(lists):
        if not isinstance(entities, list):
            raise UnusableAnswer("the answer is not a list for each text")
        for one in objects_in(entities):
            name, start, end = one.get("entity_type"), one.get("start"), one.get("end")
            if not isinstance(name, str) or not isinstance(start, int) or not isinstance(end, int):
                raise UnusableAnswer("an entity has no type or place")
            label = name if _ENTITY.fullmatch(name) else ""
            found.append(OutsideFinding(text=index, start=start, end=end, pattern=name[:80], label=label))
    return found
