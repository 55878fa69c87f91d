"""The deployment's CORS origins, from the environment: the pages that may call the model APIs with any key."""

from __future__ import annotations

from typing import Final, NamedTuple

from apps.keys.origins import WRITTEN_AS, is_origin
from gateway_project.configuration import env

ANY: Final = "*"


class CorsOrigins(NamedTuple):
    """The deployment's origins: all, or those of a list."""

    every: bool
    named: frozenset[str]

    @classmethod
    def of_environment(cls) -> CorsOrigins:
        """Read CORS_ALLOWED_ORIGINS. Raises ImproperlyConfigured."""
        stated = env.words("CORS_ALLOWED_ORIGINS")
        if ANY in stated and len(stated) > 1:
            return env.refuse("CORS_ALLOWED_ORIGINS must be * alone, or a list of origins", cls(False, frozenset()))
        for origin in stated:
            if origin != ANY and not is_origin(origin):
                return env.refuse(f"CORS_ALLOWED_ORIGINS: {WRITTEN_AS}; it has {origin!r}", cls(False, frozenset()))
        return cls(stated == [ANY], frozenset(stated) - {ANY})

    def admit(self, origin: str) -> bool:
        """Tell whether the deployment's list has an origin."""
        return self.every or origin in self.named
