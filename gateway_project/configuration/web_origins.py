"""Origins of pages: those that may call the model APIs with any key (CORS), and those that may use passkeys, by domain.

Browsers require a domain name for passkeys (the RP ID, no IP address), and HTTPS except on the machine itself. Reads
PASSKEY_RP_ID and PASSKEY_ORIGINS, and takes both from PUBLIC_URL where they are not set.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

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


_LOCAL = "localhost"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class PasskeyDomain:
    """Without an `rp_id` there are no passkeys."""

    rp_id: str
    origins: tuple[str, ...]

    @classmethod
    def of_environment(cls, public_url: str) -> PasskeyDomain:
        """Return what the variables say. Raises ImproperlyConfigured naming the one that cannot be."""
        usual = cls._of_url(public_url)
        rp_id = env.text("PASSKEY_RP_ID", usual.rp_id).strip().lower()
        origins = tuple(origin.rstrip("/") for origin in env.words("PASSKEY_ORIGINS", usual.origins))
        if not rp_id:
            return cls("", ())
        if _is_address(rp_id) or rp_id.strip(".") != rp_id or not _is_host(rp_id):
            return env.refuse(
                f"PASSKEY_RP_ID must be a domain such as example.com, without scheme and port; it is {rp_id!r}",
                cls("", ()),
            )
        if not origins:
            return env.refuse("PASSKEY_ORIGINS must name the origins whose pages use passkeys", cls("", ()))
        for origin in origins:
            if not _may_use(origin, rp_id):
                return env.refuse(
                    f"PASSKEY_ORIGINS must be origins such as https://{rp_id}, on {rp_id} or below it, over HTTPS "
                    f"unless on {_LOCAL}; one is {origin!r}",
                    cls("", ()),
                )
        return cls(rp_id, origins)

    @classmethod
    def _of_url(cls, public_url: str) -> PasskeyDomain:
        """Return what goes without saying; none for what browsers refuse."""
        parts = urlsplit(public_url)
        host = parts.hostname or ""
        if _is_address(host) and ip_address(host).is_loopback:
            # Browsers make no passkeys for addresses, and take the same machine's name.
            host = _LOCAL
        if _is_address(host) or not host or (parts.scheme != "https" and host != _LOCAL):
            return cls("", ())
        port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
        return cls(host, (f"{parts.scheme}://{host}{port}",))


def _may_use(origin: str, rp_id: str) -> bool:
    """Tell whether a browser shows this origin, and lets its pages use passkeys of the domain."""
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    written = f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS.get(parts.scheme)) else f":{port}")
    secure = parts.scheme == "https" or (parts.scheme == "http" and host == _LOCAL)
    return secure and origin == written and (host == rp_id or host.endswith(f".{rp_id}"))


def _is_host(text: str) -> bool:
    return urlsplit(f"https://{text}").hostname == text and ":" not in text


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
