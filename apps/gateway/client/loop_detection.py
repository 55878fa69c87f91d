"""Loop detection: recognize a request that a tenant's provider sends back here, by the `CDN-Loop` header (RFC 8586).

The header goes to addresses that tenants give, and nowhere else. A token stands for a deployment: the deployment
recognizes it, and it means nothing to others. It carries no address, version, or content of a request.
"""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from typing import Final

from django.conf import settings

from apps.gateway.client.http_request import ClientRequest
from apps.kernel.errors import InvalidRequest

HEADER: Final = "CDN-Loop"
# Deployments of this product that a request may have passed before it comes here.
MAX_HOPS: Final = 5
_TOKEN = re.compile(r"gw-[0-9a-f]{24}")


def read_cdn_loop(request: ClientRequest) -> str:
    """Return the `CDN-Loop` tokens of the deployments that a request has passed; other tokens are left out.

    Raises InvalidRequest when it has passed this one, or too many.
    """
    tokens_header = request.header("cdn-loop")
    if tokens_header is None:
        return ""
    tokens = _TOKEN.findall(tokens_header)
    if own_token() in tokens:
        raise _looping("This request has passed through this gateway before: a provider key's baseUrl leads back to it")
    if len(tokens) > MAX_HOPS:
        raise _looping(f"This request has passed through more than {MAX_HOPS} gateways: a baseUrl leads in a circle")
    return ", ".join(tokens)


def append_own_token(cdn_loop: str) -> str:
    """Return the header's value to send, with this deployment's token at its end."""
    return f"{cdn_loop}, {own_token()}" if cdn_loop else own_token()


def own_token() -> str:
    """Return this deployment's token: the same in all of its processes, and impossible to forge."""
    return _token_of(settings.SECRET_KEY)


@lru_cache(maxsize=2)
def _token_of(secret: str) -> str:
    return "gw-" + hmac.digest(secret.encode(), b"a request of this deployment", "sha256").hex()[:24]


def _looping(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="loop_detected", param="model")
