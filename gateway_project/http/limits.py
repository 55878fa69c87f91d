"""Limits of the HTTP server: what a client may send and hold, from the environment, and sizes of bodies by route."""

from __future__ import annotations

import re
from dataclasses import dataclass

from apps.kernel.json_bounds import FORM_ROOM, MAX_FILE_PART
from gateway_project.configuration import env

_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of one worker process. Durations are in seconds, sizes in bytes."""

    # For a model route's body; other routes have less (`route_limits`).
    body: int
    # For a file that is read as it arrives, not whole like a body.
    file: int
    # For all of a body, and what it must bring a second on average once its grace is over.
    body_timeout: float
    body_rate: int
    # For bodies above the smallest limit, held at once by one worker.
    body_memory: int
    # For a new connection's first byte.
    first_byte_timeout: float
    # Connections of one address that no trusted proxy has.
    connections_per_address: int
    # Requests being worked on, and how long one may wait for its turn.
    requests_in_progress: int
    queue_time: float
    # Proxies in front whose `X-Forwarded-For` is believed.
    proxies: int

    @classmethod
    def of_environment(cls) -> ClientLimits:
        """Read the variables. Raises ImproperlyConfigured naming the one that is wrong."""
        return cls(
            body=env.integer("BODY_LIMIT", 32 * _MEGABYTE, 1024, 1024**3),
            file=env.integer("FILE_UPLOAD_LIMIT", 200 * _MEGABYTE, 1024, 1024**4),
            body_timeout=env.seconds("BODY_TIMEOUT", 120),
            body_rate=env.integer("BODY_MIN_RATE", 1024, 1, _MEGABYTE),
            body_memory=env.integer("BODY_MEMORY_LIMIT", 512 * _MEGABYTE, _MEGABYTE, 1024**4),
            first_byte_timeout=env.seconds("FIRST_BYTE_TIMEOUT", 10),
            connections_per_address=env.integer("CONNECTIONS_PER_ADDRESS", 1024, 1, 1_000_000),
            requests_in_progress=env.integer("REQUESTS_IN_PROGRESS_LIMIT", 4000, 1, 1_000_000),
            queue_time=env.seconds("QUEUE_TIME_LIMIT", 2, high=60),
            proxies=env.integer("NUM_PROXIES", 0, 0, 10),
        )


_KILOBYTE = 1024

# The smallest limit of all: a body that is not larger needs no look at the table.
SMALLEST = 64 * _KILOBYTE
# For a path that the table does not name.
_ANY_OTHER = _MEGABYTE
# Prefixes of paths to models. Cohere's clients use `/v2/`, Ollama's `/api/`, Bedrock's `/model/`.
_MODEL_PREFIXES = ("/v1/", "/v1beta/", "/v1beta1/", "/v2/", "/api/", "/model/")
# By prefix, the first that fits; None is the setting `BODY_LIMIT`.
_LIMITS: tuple[tuple[str, int | None], ...] = (
    *((prefix, None) for prefix in _MODEL_PREFIXES),
    ("/auth/", SMALLEST),
    ("/verify-email", SMALLEST),
    ("/reset-password", SMALLEST),
    ("/change-email", SMALLEST),
    ("/mcp", 4 * _MEGABYTE),
    # A text to try guardrails on: a million characters, each written in up to six bytes.
    ("/guardrails/test/", 8 * _MEGABYTE),
    # An organization's pages, of which two take more.
    ("/app/o/", _MEGABYTE),
    # Forms that need no session: sign-in, sign-up, a new password.
    ("/app/", SMALLEST),
)

# Where bodies are read by their endpoint as they come: forms that bring a file, or a part of one.
_FILES, _FILE_PARTS = re.compile("/v1/files"), re.compile("/v1/uploads/[^/]+/parts")
# The playground's pictures, and a text to try guardrails on.
_LARGE_FORMS = re.compile("/app/o/[^/]+/(?:playground/[^/]+|guardrails/try)")
_LARGE_FORM = 8 * _MEGABYTE


def limit_of(path: str, model_limit: int) -> int:
    """Return the most bytes that a body sent to this path may have; `model_limit` holds for the routes to models."""
    if path.startswith("/app/o/") and _LARGE_FORMS.fullmatch(path):
        return min(_LARGE_FORM, model_limit)
    for prefix, limit in _LIMITS:
        if path.startswith(prefix):
            return model_limit if limit is None else min(limit, model_limit)
    return min(_ANY_OTHER, model_limit)


def streamed_limit_of(path: str, model_limit: int, file_limit: int) -> int | None:
    """Return the most bytes that a body may have whose endpoint reads it as it comes; None where it is read whole."""
    largest = max(model_limit, file_limit)
    if _FILES.fullmatch(path):
        return largest + FORM_ROOM
    return min(largest, MAX_FILE_PART) + FORM_ROOM if _FILE_PARTS.fullmatch(path) else None


def is_model_route(path: str) -> bool:
    """Tell whether a path leads to models, which always needs a credential."""
    return path.startswith(_MODEL_PREFIXES)


def is_workspace_page(path: str) -> bool:
    """Tell whether a path is an organization's page, which always needs a session."""
    return path.startswith("/app/o/")
