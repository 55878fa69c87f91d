"""Path aliases: maps the forms in which clients write the paths of model APIs to the canonical form.

Supported are base URLs with or without `/v1`, with `/api/v1`, with a doubled version, extra slashes, Azure OpenAI's
paths, and Google's paths of OpenAI's API. The path was decoded once and is not decoded again; dots have no meaning.
Pure. Aliases only lead to model APIs, because the guards of other routes check the path as it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

VERSIONS = ("v1", "v1beta")
# Azure's paths, and the segments of the longest operation on a deployment (`chat/completions`).
_AZURE, _DEPLOYMENTS, _MAX_OPERATION = "openai", "deployments", 2
# Google's paths of OpenAI's API: Gemini's under its own version, Google Cloud's under a project's location.
_GEMINI, _CLOUD_VERSIONS = ("v1beta", _AZURE), ("v1", "v1beta1")
_CLOUD = ("projects", "", "locations", "", "endpoints", "openapi")
# Maximum characters of a path: more than the longest model name in the longest form.
_MAX_PATH = 1_024


class CanonicalPath(NamedTuple):
    """A route's own path, and the deployment (the model) in Azure's form."""

    path: str
    deployment: str | None = None


def canonical_path(path: str, is_model_path: Callable[[str], bool], others: frozenset[str]) -> CanonicalPath | None:
    """Return the canonical path; None if the path is canonical itself, or unknown.

    `is_model_path` tells whether a path belongs to a model API's route; `others` are the first segments of all other
    routes, which have no aliases.
    """
    if len(path) > _MAX_PATH or not path.startswith("/"):
        return None
    segments = [segment for segment in path.split("/") if segment]
    if not segments:
        return None
    length = _googles_prefix(segments)
    if length:
        segments = [VERSIONS[0], *segments[length:]]
    elif segments[0] in others:
        return None
    if segments[0] == "api" and segments[1:2] and segments[1] in VERSIONS:
        del segments[0]
    if segments[0] == _AZURE:
        del segments[0]
        if segments[:1] == [_DEPLOYMENTS]:
            return _of_deployment(segments[1:], is_model_path)
    if len(segments) > 1 and segments[0] in VERSIONS and segments[1] in VERSIONS:
        del segments[0]
    if segments and segments[0] not in VERSIONS:
        segments.insert(0, VERSIONS[0])
    canonical = "/" + "/".join(segments)
    return CanonicalPath(canonical) if canonical != path and is_model_path(canonical) else None


def _googles_prefix(segments: list[str]) -> int:
    """Return the number of segments before Google's OpenAI paths; 0 for any other path."""
    if tuple(segments[:2]) == _GEMINI:
        return 2
    place = segments[1 : 1 + len(_CLOUD)]
    is_cloud = (
        segments[0] in _CLOUD_VERSIONS
        and len(place) == len(_CLOUD)
        and all(fixed in ("", said) for fixed, said in zip(_CLOUD, place, strict=True))
    )
    return 1 + len(_CLOUD) if is_cloud else 0


def _of_deployment(segments: list[str], is_model_path: Callable[[str], bool]) -> CanonicalPath | None:
    """Return the canonical path of an operation on a deployment, whose name may contain slashes."""
    for length in range(min(_MAX_OPERATION, len(segments) - 1), 0, -1):
        canonical = "/".join(("", VERSIONS[0], *segments[-length:]))
        if is_model_path(canonical):
            return CanonicalPath(canonical, "/".join(segments[:-length]))
    return None
