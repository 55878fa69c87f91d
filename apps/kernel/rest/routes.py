"""Routes: a row of the route table, the table, which maps paths to endpoints and error families, and path aliases.

The rows are in `gateway_project.routes`. No framework is imported, because the HTTP server reads this before its worker
is patched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from apps.kernel.near_names import NearNames
from apps.kernel.rest.envelopes import Family

VERSIONS = ("v1", "v1beta")
# Azure's paths, and the segments of the longest operation on a deployment (`chat/completions`).
_AZURE, _DEPLOYMENTS, _MAX_OPERATION = "openai", "deployments", 2
_API = "api"
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
    elif segments[0] == _API and segments[1:2] and segments[1] in VERSIONS:
        # OpenRouter's form of a path; what else is there is Ollama's.
        del segments[0]
    elif segments[0] in others:
        return None
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


# Patterns of parameters, by the names of Django's converters.
_CONVERTERS = {"str": "[^/]+", "path": ".+"}
# WSGI environment key of the deployment in Azure's form of a path.
DEPLOYMENT = "gateway.deployment"
# Characters of a path for which suggestions are made.
_MAX_GUESSED = 100
# Segments of a path that are compared for its family; no prefix with a family is longer.
_MAX_SEGMENTS = 4


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint: its path, and its properties.

    A model endpoint has a `method`: its endpoint is a function from a client's request to the response, which is called
    ahead of Django. Any other endpoint is a Django view, or a list of them, with their own methods.
    """

    # In Django's notation: without the first slash, parameters as `<str:name>`.
    path: str
    endpoint: Any
    # The format of its errors.
    family: Family
    # The family of routes that share a rate limit; None if no request is admitted.
    rate_family: str | None = None
    method: str | None = None

    @property
    def has_parameters(self) -> bool:
        """Whether the path has parameters."""
        return "<" in self.path

    @property
    def prefix(self) -> tuple[str, ...]:
        """The segments before the first parameter."""
        fixed = self.path.partition("<")[0].rpartition("/")[0] if self.has_parameters else self.path
        return tuple(part for part in fixed.split("/") if part)


class RouteTable:
    """The rows, found by path."""

    def __init__(self, rows: Iterable[Route], unknown: Mapping[str, Family], otherwise: Family) -> None:
        """Create the table, with the families of paths without a row: by first segments, and a default.

        Raises ValueError for two rows with the same method and path.
        """
        self.rows = tuple(rows)
        keys = [(row.method, row.path) for row in self.rows]
        if len(set(keys)) < len(keys) or not {row.path for row in self.rows if row.method is None}.isdisjoint(
            row.path for row in self.rows if row.method is not None
        ):
            raise ValueError("Two routes have the same path")
        model_rows = [row for row in self.rows if row.method is not None]
        # Model endpoints by method and complete path.
        self.exact: dict[tuple[str, str], Route] = {
            (row.method or "", f"/{row.path}"): row for row in model_rows if not row.has_parameters
        }
        self._patterns = [(row, _pattern_of(row.path)) for row in model_rows if row.has_parameters]
        self._methods: dict[str, list[str]] = {}
        for method, path in self.exact:
            self._methods.setdefault(path, []).append(method)
        api_rows = [row for row in self.rows if row.prefix[:1] and row.prefix[0] in VERSIONS]
        self._api_paths = {f"/{row.path}" for row in api_rows if not row.has_parameters}
        self._api_patterns = [_pattern_of(row.path) for row in api_rows if row.has_parameters]
        self._view_patterns = [_pattern_of(row.path) for row in api_rows if row.method is None]
        # Pages are for browsers only: the same path may be another form of an API's path for programs.
        others = [row for row in self.rows if row.prefix and row.family is not Family.PAGES]
        self._other_roots = frozenset(row.prefix[0] for row in others) - frozenset(VERSIONS)
        self._page_roots = frozenset(row.prefix[0] for row in self.rows if row.prefix and row.family is Family.PAGES)
        self._otherwise = otherwise
        self._families = {tuple(prefix.split("/")): family for prefix, family in unknown.items()}
        for prefix, family in _families_of_prefixes(self.rows):
            self._families.setdefault(prefix, family)
        # Routes whose family differs from the paths around them are matched by their whole pattern.
        self._apart = [
            (row.family, pattern)
            for row, pattern in self._patterns
            if self._family_around(row.prefix) is not row.family
        ]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, Any]] | None:
        """Return the model endpoint of a request with its path parameters, None if there is none."""
        exact = self.exact.get((method, path))
        if exact is not None:
            return exact, {}
        for row, pattern in self._patterns:
            if row.method == method and (match := pattern.fullmatch(path)):
                return row, {name: _as_utf8(text) for name, text in match.groupdict().items()}
        return None

    def methods(self, path: str) -> list[str] | None:
        """Return the methods of the model endpoints at a path of the model APIs, an empty list for an unknown path.

        None for every other path: Django serves it, or refuses it.
        """
        if path[1:].partition("/")[0] not in VERSIONS or any(view.fullmatch(path) for view in self._view_patterns):
            return None
        found = [*self._methods.get(path, ())]
        found += [row.method or "" for row, pattern in self._patterns if pattern.fullmatch(path)]
        return list(dict.fromkeys([*found, "HEAD"] if "GET" in found else found))

    def is_api_path(self, path: str) -> bool:
        """Return whether a model API's route has the path, with any method."""
        return path in self._api_paths or any(pattern.fullmatch(path) for pattern in self._api_patterns)

    def is_page(self, path: str) -> bool:
        """Return whether the path, or its first segment, belongs to pages."""
        return path.lstrip("/").partition("/")[0] in self._page_roots

    def canonical(self, path: str) -> CanonicalPath | None:
        """Return the canonical path of an alias; None for any other path."""
        return canonical_path(path, self.is_api_path, self._other_roots)

    def normalize(self, environ: dict[str, Any]) -> None:
        """Replace an alias by the canonical path, and store the deployment in it."""
        canonical = self.canonical(environ["PATH_INFO"])
        if canonical is not None:
            environ["PATH_INFO"] = canonical.path
            if canonical.deployment is not None:
                environ[DEPLOYMENT] = _as_utf8(canonical.deployment)

    def near(self, path: str) -> list[str]:
        """Return suggestions of model API paths for a misspelled path, the nearest first; parameters as `{}`."""
        if len(path) > _MAX_GUESSED:
            return []
        meant = "/".join(("", *(part for part in path.split("/") if part)))
        return self._near_paths.find(meant, ignored=meant.find("/", 1) + 1)

    @cached_property
    def _near_paths(self) -> NearNames:
        spelled = {re.sub(r"<\w+:(\w+)>", r"{\1}", f"/{row.path}") for row in self.rows if row.prefix}
        return NearNames(shown for shown in sorted(spelled) if shown.split("/")[1] in VERSIONS)

    def family_of(self, path: str) -> Family:
        """Return the family of the path's errors: its route's, or that of the routes around it."""
        segments = [part for part in path.split("/", _MAX_SEGMENTS + 2)[: _MAX_SEGMENTS + 2] if part]
        family = self._families.get(tuple(segments))
        if family is not None:
            return family
        for family, pattern in self._apart:
            if pattern.fullmatch(path):
                return family
        if (canonical := self.canonical(path)) is not None:
            return self.family_of(canonical.path)
        return self._family_around(segments)

    def _family_around(self, segments: Sequence[str]) -> Family:
        """Return the family of the longest matching prefix."""
        for length in range(min(len(segments), _MAX_SEGMENTS), 0, -1):
            family = self._families.get(tuple(segments[:length]))
            if family is not None:
                return family
        return self._otherwise


def _as_utf8(text: str) -> str:
    """Return a part of a WSGI path, whose characters are bytes, as text."""
    return text.encode("latin-1").decode("utf-8", "replace")


def _pattern_of(path: str) -> re.Pattern[str]:
    """Return a pattern for a route's path, as Django would match it. Raises KeyError for an unknown converter."""
    pieces = re.split(r"<(\w+):(\w+)>", path)
    texts = [re.escape(text) for text in pieces[::3]]
    groups = [f"(?P<{name}>{_CONVERTERS[kind]})" for kind, name in zip(pieces[1::3], pieces[2::3], strict=True)]
    return re.compile("/" + "".join(text + group for text, group in zip(texts, [*groups, ""], strict=True)))


def _families_of_prefixes(rows: Iterable[Route]) -> Iterator[tuple[tuple[str, ...], Family]]:
    """Yield each prefix whose routes share one family, and each route's own path."""
    families: dict[tuple[str, ...], set[Family]] = {}
    for row in rows:
        for length in range(1, len(row.prefix) + 1):
            families.setdefault(row.prefix[:length], set()).add(row.family)
    for row in rows:
        if not row.has_parameters:
            families[row.prefix] = {row.family}
    for prefix, several in families.items():
        if len(several) == 1:
            yield prefix, next(iter(several))


# The table of this process, empty until the project sets it; and what sets it when it is first asked for.
_in_force = RouteTable((), {}, Family.LOGS)
_load: Callable[[], object] | None = None


def put_in_force(table: RouteTable) -> RouteTable:
    """Set this process's table, and return it."""
    global _in_force, _load
    _in_force, _load = table, None
    return table


def load_when_asked(load: Callable[[], object]) -> None:
    """Have the table set by `load` when it is first asked for: with it come all endpoints and pages."""
    global _load
    _load = load


def route_table() -> RouteTable:
    """Return this process's table."""
    if _load is not None:
        _load()
    return _in_force


def family_of(path: str) -> Family:
    """Return the family of the path's errors."""
    return route_table().family_of(path)


# Headers, as WSGI names them, of all of Anthropic's clients, and of Google's clients only.
_OF_ANTHROPIC, _OF_GOOGLE = "HTTP_ANTHROPIC_VERSION", ("HTTP_X_GOOG_API_KEY", "HTTP_X_GOOG_API_CLIENT")
_OF_SEVERAL = (Family.OPENAI, Family.LOGS)


def family_of_client(path: str, environ: Mapping[str, Any]) -> Family:
    """Return the family whose errors the client of a request reads. Paths that several APIs share (`/v1/models`), and
    unknown paths, depend on the client's headers."""
    family = family_of(path)
    if family is Family.OPENAI and _OF_ANTHROPIC in environ:
        return Family.ANTHROPIC
    if family in _OF_SEVERAL and any(name in environ for name in _OF_GOOGLE):
        return Family.GOOGLE
    return family
