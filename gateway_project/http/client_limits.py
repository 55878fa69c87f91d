"""Client limits of a worker: bytes, seconds, connections, each from the environment."""

from __future__ import annotations

from dataclasses import dataclass

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
