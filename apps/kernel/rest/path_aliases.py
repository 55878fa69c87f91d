"""Path aliases: the forms in which clients write the paths of model APIs, each led back to the one form there is.

A base URL with or without `/v1`, with `/api/v1`, with a version twice, with a slash too many, Azure OpenAI's, and those
under which Google offers OpenAI's API. Works on a path that has been decoded once, and never decodes it again; dots
mean nothing here. Pure. Must never lead to a route that is not of a model API: what guards the others looks at the path
as it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

VERSIONS = ("v1", "v1beta")
# Azure's paths, and the segments of the longest operation on a deployment (`chat/completions`).
_AZURE, _DEPLOYMENTS, _LONGEST_OPERATION = "openai", "deployments", 2
# Where Google offers OpenAI's API: Gemini's under its own version, Google Cloud's under a project's location.
_GEMINI, _CLOUD_VERSIONS = ("v1beta", _AZURE), ("v1", "v1beta1")
_CLOUD = ("projects", "", "locations", "", "endpoints", "openapi")
# Characters of a path that is looked at: more than the longest name of a model in the longest form.
_LONGEST_PATH = 1_024


class CanonicalPath(NamedTuple):
    """A route's own path, and the deployment that Azure's form names: the model."""

    path: str
    deployment: str | None = None


def canonical_path(path: str, is_model_path: Callable[[str], bool], others: frozenset[str]) -> CanonicalPath | None:
    """Return what a path stands for; None where it is canonical itself, or stands for nothing.

    `is_model_path` tells whether a path is one of a model API's routes; `others` are the first segments of all other
    routes, which have no aliases.
    """
    if len(path) > _LONGEST_PATH or not path.startswith("/"):
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
    """Return how many segments lead to Google's offer of OpenAI's API; 0 for any other path."""
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
    """Return what an operation on a deployment stands for; a deployment's name may have slashes."""
    for length in range(min(_LONGEST_OPERATION, len(segments) - 1), 0, -1):
        canonical = "/".join(("", VERSIONS[0], *segments[-length:]))
        if is_model_path(canonical):
            return CanonicalPath(canonical, "/".join(segments[:-length]))
    return None
