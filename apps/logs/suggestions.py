"""Suggestions for the log's search box: a request by its id, and filters whose value contains the typed text.

Models and providers come from daily sums; sessions, sources and tags from the newest requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.utils.translation import gettext

from apps.kernel.ids import find_id
from apps.kernel.postgres.replica import PRIMARY
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.query import LogFilters, read_object
from apps.logs.search import find_page, find_row, find_used_models

# Suggestions of each kind, and requests whose values are read.
MAX_OF_KIND: Final = 5
MAX_ROWS: Final = 2_000
# Prefix of answer ids.
ANSWER_ID: Final = "gen-"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggestion: its kind in words, its value, and the query parameters of the log that it stands for."""

    kind: str
    value: str
    parameters: dict[str, str]


def find_suggestions(scope: LogScope, text: str, using: str = PRIMARY) -> list[Suggestion]:
    """Return suggestions for a text in the log of one organization; none for an empty text."""
    wanted = text.strip()
    if not wanted or "\0" in wanted:
        return []
    models, providers = find_used_models(scope, using)
    found = [*_requests(scope, wanted)]
    found += [Suggestion(gettext("Model"), one, {"model": one}) for one in _containing(models, wanted)]
    found += [Suggestion(gettext("Provider"), one, {"provider": one}) for one in _containing(providers, wanted)]
    sessions, sources, tags = _newest_values(scope, using)
    if wanted not in sessions and _has_session(scope, wanted, using):
        found.append(Suggestion(gettext("Session"), wanted, {"sessionId": wanted}))
    found += [Suggestion(gettext("Session"), one, {"sessionId": one}) for one in _containing(sessions, wanted)]
    found += [Suggestion(gettext("Source"), one, {"source": one}) for one in _containing(sources, wanted)]
    matching = [tag for tag in tags if wanted.lower() in f"{tag[0]}: {tag[1]}".lower()][:MAX_OF_KIND]
    return [
        *found,
        *(
            Suggestion(gettext("Tag"), f"{name}: {value}", {"customHeaderKey": name, "customHeaderValue": value})
            for name, value in matching
        ),
    ]


def find_request(scope: LogScope, text: str) -> UUID | None:
    """Return the id of the request that a text names as an answer id or a log id, None if the scope has none."""
    identifier = find_id(text.strip().removeprefix(ANSWER_ID))
    return identifier if identifier is not None and find_row(scope, identifier) is not None else None


def _requests(scope: LogScope, wanted: str) -> Iterator[Suggestion]:
    identifier = find_request(scope, wanted)
    if identifier is not None:
        yield Suggestion(gettext("Request"), str(identifier), {"id": str(identifier)})


def _containing(values: Iterable[str], wanted: str) -> list[str]:
    """Return the first values that contain a text, those that begin with it first."""
    text = wanted.lower()
    found = [value for value in values if text in value.lower()]
    return sorted(found, key=lambda value: not value.lower().startswith(text))[:MAX_OF_KIND]


def _has_session(scope: LogScope, session_id: str, using: str) -> bool:
    """Return whether the log has a session of this id, however old."""
    filters = LogFilters(session_id=session_id)
    return bool(find_page(scope, filters, count=1, after=None, ascending=False, using=using))


def _newest_values(scope: LogScope, using: str) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Return the sessions, sources and tags of the newest requests, each once, the newest first."""
    sessions: dict[str, None] = {}
    sources: dict[str, None] = {}
    tags: dict[tuple[str, str], None] = {}
    for organization_id, since in scope.since.items():
        rows = RequestLog.objects.using(using).filter(organization_id=organization_id, created_at__gte=since)
        newest = rows.order_by("-created_at", "-id").values_list("session_id", "source", "custom_headers")[:MAX_ROWS]
        for session_id, source, headers in newest:
            sessions |= {session_id: None} if session_id else {}
            sources |= {source: None} if source else {}
            tags |= {(name, str(value)): None for name, value in read_object(headers).items()}
    return list(sessions), list(sources), list(tags)
