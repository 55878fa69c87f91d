"""How a credential is presented to a provider: one module a scheme that does more than fill in a header.

Nobody keeps a list: a scheme is found by the name that the catalog's provider states (`aws-sigv4` is `aws_sigv4.py`).
Must never log a credential, nor put one into a URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast


@dataclass(frozen=True, slots=True)
class Request:
    """What is about to be sent, for schemes that sign it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Scheme(Protocol):
    """A way to present a credential."""

    def authorize(self, secret: str, request: Request) -> dict[str, str]:
        """Return the headers that present the credential. Raises UpstreamFailure when it is of no use."""


def authorize(kind: str, secret: str, request: Request) -> dict[str, str]:
    """Return the headers that present a credential.

    A kind that is neither `bearer` nor a scheme of this package is the name of the header that takes the credential.
    """
    if kind == "bearer":
        return {"Authorization": f"Bearer {secret}"}
    scheme = _find_scheme(kind)
    return {kind: secret} if scheme is None else scheme.authorize(secret, request)


@cache
def _find_scheme(kind: str) -> Scheme | None:
    module = f"{__name__}.{kind.replace('-', '_')}"
    return cast(Scheme, import_module(module)) if find_spec(module) else None
