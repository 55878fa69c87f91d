"""OpenAI moderation: texts that OpenAI's moderation model flags, in any category or in those named.

`POST {url}/v1/moderations` with `{model, input: [...]}` answers `{results: [{flagged, categories, category_scores}]}`,
one for each text (openai-openapi, `CreateModerationRequest` and `CreateModerationResponse`).
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
    as_dict,
    objects_in,
    pieces_of,
    read_member,
    read_object,
    read_url,
    require_secrets,
)

TYPE = "openai_moderation"
JUDGES_EACH_TEXT = True
SECRETS = ("apiKey",)
# Characters and texts of one request.
_MAX_CHARACTERS, _MAX_TEXTS = 30_000, 32
_CATEGORY = re.compile(r"[a-z-]+(/[a-z-]+)?")


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url, model, categories}`; no categories means all. Raises BadConfig."""
    categories = config.get("categories", [])
    if not isinstance(categories, list) or len(categories) > 50:
        raise BadConfig("categories", "Must be a list of at most 50 names such as hate/threatening")
    for index, one in enumerate(categories):
        if not isinstance(one, str) or not _CATEGORY.fullmatch(one):
            raise BadConfig(f"categories[{index}]", "Must be a name such as hate/threatening")
    return {
        "url": read_url(config, "https://api.openai.com"),
        "model": read_member(config, "model", "omni-moderation-latest"),
        "categories": categories,
    }


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raise BadConfig without a key."""
    require_secrets(secrets, "apiKey")


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return requests with a few dozen texts each; long texts are judged in pieces."""
    pieces = [text for _, _, text in pieces_of(question.texts, _MAX_CHARACTERS)]
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {question.secrets['apiKey']}"}
    return [
        GuardRequest(
            f"{question.config['url']}/v1/moderations",
            headers,
            msgspec.json.encode({"model": question.config["model"], "input": pieces[start : start + _MAX_TEXTS]}),
        )
        for start in range(0, len(pieces), _MAX_TEXTS)
    ]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return each flagged text with its categories."""
    pieces = pieces_of(question.texts, _MAX_CHARACTERS)
    results = [one for answer in answers for one in objects_in(read_object(answer).get("results"))]
    if len(results) != len(pieces):
        raise UnusableAnswer("the answer has not one result for each text")
    wanted = set(question.config["categories"])
    found: dict[tuple[int, str], None] = {}
    for (index, _, _), result in zip(pieces, results, strict=True):
        flagged = sorted(name for name, is_flagged in as_dict(result.get("categories")).items() if is_flagged is True)
        if result.get("flagged") is True and not wanted:
            found |= dict.fromkeys((index, name) for name in flagged or ["flagged"])
        found |= dict.fromkeys((index, name) for name in flagged if name in wanted)
    return [OutsideFinding(text=index, pattern=name) for index, name in found]
