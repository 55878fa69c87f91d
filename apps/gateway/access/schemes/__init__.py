"""Authentication schemes: how a credential is presented to a provider; one module per scheme that does more.

Here are those that only write a header. No list of the others is kept: a scheme is found by the name that the catalog's
provider states (`aws-sigv4` is `aws_sigv4.py`). Must never log a credential, nor put one into a URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import msgspec

from apps.gateway.failures import UpstreamFailure

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_ANTHROPICS = "/anthropic/"


class SignableRequest(msgspec.Struct, frozen=True):
    """A request before it is sent, for schemes that sign it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class AuthScheme(Protocol):
    """A way to present a credential."""

    def authorize(self, secret: str, request: SignableRequest) -> dict[str, str]:
        """Return the headers that present the credential. Raises UpstreamFailure when it is of no use.

        Optional beside it: `split_secrets(value)`, the credentials in an environment variable; `FILLED_PLACEHOLDERS`,
        the names of the placeholders that a credential fills in an address, and `fill_base_url(secret, base_url,
        own=…)`, which fills them.
        """


def authorize(kind: str, secret: str, request: SignableRequest) -> dict[str, str]:
    """Return the headers that present a credential.

    `bearer` is most providers' scheme, `token` Deepgram's, `api-key` Azure's. A kind that is none of these, nor a
    module of this package, is the name of the header that takes the credential. An organization's own server may want
    no credential: then there is no header.
    """
    if kind == "bearer":
        return {"Authorization": f"Bearer {secret}"} if secret else {}
    if kind == "token":
        return {"Authorization": f"Token {secret}"}
    if kind == "api-key":
        return _azure_headers(secret, request)
    scheme = _find_scheme(kind)
    return {kind: secret} if scheme is None else scheme.authorize(secret, request)


def _azure_headers(secret: str, request: SignableRequest) -> dict[str, str]:
    """Return the key of an Azure resource; where Anthropic's models are, as Anthropic's own client sends it, too."""
    headers = {"api-key": secret}
    if _ANTHROPICS in urlsplit(request.url).path:
        headers["x-api-key"] = secret
    return headers


def collect_secrets(secret: str, presented: Mapping[str, str]) -> list[str]:
    """Return the secrets of a credential, which no error may quote: itself, and an access token made from it."""
    found = [secret]
    for name, value in presented.items():
        scheme, _, rest = value.partition(" ")
        if rest and scheme.lower() in {"bearer", "basic"}:
            found.append(rest)
        elif name.lower().endswith(("key", "token")):
            found.append(value)
    return list(dict.fromkeys(found))


def split_secrets(kind: str, value: str) -> list[str]:
    """Return the credentials that an environment variable of the operator's holds, with commas between them unless the
    scheme has its own way."""
    split = getattr(_find_scheme(kind), "split_secrets", None)
    return [word.strip() for word in value.split(",") if word.strip()] if split is None else list(split(value))


def service_secrets(kind: str, variable: str, environ: Mapping[str, str]) -> list[str]:
    """Return the operator's credentials: those in a provider's own variable, else the one that the scheme makes up from
    the variables that are usual for it (its optional `service_secret(environ)`)."""
    find = getattr(_find_scheme(kind), "service_secret", None)
    secrets = split_secrets(kind, environ.get(variable, ""))
    if not secrets and find is not None and (secret := find(environ)):
        return [str(secret)]
    return secrets


def can_fill_placeholders(kind: str, base_url: str) -> bool:
    """Return whether every placeholder of an address is one that the credential itself fills."""
    return set(_PLACEHOLDER.findall(base_url)) <= getattr(_find_scheme(kind), "FILLED_PLACEHOLDERS", frozenset())


def fill_base_url(kind: str, secret: str, base_url: str, *, own: bool) -> str:
    """Return the address at which a credential is of use; `own` tells that it is a tenant's, not the operator's.

    Raises UpstreamFailure where the credential does not say what the address lacks.
    """
    fill = _filler_of(kind)
    address = base_url if fill is None else str(fill(secret, base_url, own=own))
    if _PLACEHOLDER.search(address):
        raise UpstreamFailure("client_error", "the credential does not say where the provider is", status=401)
    return address


@cache
def _filler_of(kind: str) -> Any:
    return getattr(_find_scheme(kind), "fill_base_url", None)


@cache
def _find_scheme(kind: str) -> AuthScheme | None:
    module = f"{__name__}.{kind.replace('-', '_')}"
    return cast(AuthScheme, import_module(module)) if find_spec(module) else None
