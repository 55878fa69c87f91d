"""OpenAI moderation: texts that OpenAI's moderation model flags, in any category or in those named.

`POST {url}/v1/moderations` with `{model, input: [...]}` answers `{results: [{flagged, categories, category_scores}]}`,
one for each text (openai-openapi, `CreateModerationRequest` and `CreateModerationResponse`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apps.guardrails.outside import (
    GuardQuestion,
    GuardRequest,
    OutsideFinding,
    UnusableAnswer,
    as_dict,
    json_request,
    objects_in,
    pieces_of,
    read_member,
    read_names,
    read_object,
    read_url,
    whole_texts,
)

TYPE = "openai_moderation"
JUDGES_EACH_TEXT = True
SECRETS = {"apiKey": True}
# Characters and texts of one request.
_MAX_CHARACTERS, _MAX_TEXTS = 30_000, 32
_CATEGORY = re.compile(r"[a-z-]+(/[a-z-]+)?")


def read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{url, model, categories}`; no categories means all. Raises BadConfig."""
    return {
        "url": read_url(config, "https://api.openai.com"),
        "model": read_member(config, "model", "omni-moderation-latest"),
        "categories": read_names(config, "categories", _CATEGORY, "hate/threatening", 50),
    }


def requests_of(question: GuardQuestion) -> Sequence[GuardRequest]:
    """Return requests with a few dozen texts each; long texts are judged in pieces."""
    pieces = [text for _, _, text in pieces_of(question.texts, _MAX_CHARACTERS)]
    url, model, key = f"{question.config['url']}/v1/moderations", question.config["model"], question.secrets["apiKey"]
    return [
        json_request(url, {"model": model, "input": pieces[start : start + _MAX_TEXTS]}, key)
        for start in range(0, len(pieces), _MAX_TEXTS)
    ]


def read_answers(question: GuardQuestion, answers: Sequence[bytes]) -> list[OutsideFinding]:
    """Return each flagged text with its categories."""
    return whole_texts(_found(question, answers))


def _found(question: GuardQuestion, answers: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    pieces = pieces_of(question.texts, _MAX_CHARACTERS)
    results = [one for answer in answers for one in objects_in(read_object(answer).get("results"))]
    if len(results) != len(pieces):
        raise UnusableAnswer("the answer has not one result for each text")
    wanted = set(question.config["categories"])
    for (index, _, _), result in zip(pieces, results, strict=True):
        flagged = sorted(name for name, is_flagged in as_dict(result.get("categories")).items() if is_flagged is True)
        if result.get("flagged") is True and not wanted:
            yield from ((index, name) for name in flagged or ["flagged"])
        yield from ((index, name) for name in flagged if name in wanted)
