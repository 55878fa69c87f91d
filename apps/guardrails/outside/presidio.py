"""Presidio: personal data that a Presidio analyzer finds; its places are masked or blocked, as the rule says.

`POST {url}/analyze` with `{text: [...], language, entities, score_threshold}` answers a list for each text of
`{entity_type, start, end, score}` (presidio-analyzer's app.py and openapi `api-docs.yml`, microsoft/presidio).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from apps.guardrails.outside import (
    MAX_NAME,
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    json_request,
    objects_in,
    read_json,
    read_member,
    read_names,
    read_number,
    read_url,
)

TYPE = "presidio"
JUDGES_EACH_TEXT = True
# An analyzer has no keys of its own, a proxy before it may want one.
SECRETS = {"apiKey": False}
_ENTITY = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
_MAX_ENTITIES = 100


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url, language, entities, scoreThreshold}`; no entities means all that it knows. Raises BadConfig."""
    return {
        "url": read_url(config),
        "language": read_member(config, "language", "en"),
        "entities": read_names(config, "entities", _ENTITY, "PERSON or US_SSN", _MAX_ENTITIES),
        "scoreThreshold": read_number(config, "scoreThreshold", 0.5, 1),
    }


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
    return [json_request(f"{config['url']}/analyze", asked, question.secrets.get("apiKey"))]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return each entity at its place."""
    lists = read_json(answers[0])
    is_list = isinstance(lists, list) and all(isinstance(entities, list) for entities in lists)
    if not is_list or len(lists) != len(question.texts):
        raise UnusableAnswer("the answer is not a list for each text")
    found = []
    for index, entities in enumerate(lists):
        for one in objects_in(entities):
            name, start, end = one.get("entity_type"), one.get("start"), one.get("end")
            if not isinstance(name, str) or not isinstance(start, int) or not isinstance(end, int):
                raise UnusableAnswer("an entity has no type or place")
            label = name if _ENTITY.fullmatch(name) else ""
            found.append(OutsideFinding(text=index, start=start, end=end, pattern=name[:MAX_NAME], label=label))
    return found
