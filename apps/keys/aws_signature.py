"""AWS Signature Version 4 (SigV4) with botocore: the `Authorization` header of a request. Pure.

The signing key never leaves this module, and nothing is logged. Object storage has a different signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_ALGORITHM = "AWS4-HMAC-SHA256"
STORAGE = "s3"


class Signable(NamedTuple):
    """A request to sign: all given headers are signed, including `X-Amz-Date`, and so is the host."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Place(NamedTuple):
    """The service and region of a signature."""

    service: str
    region: str


def signature(request: Signable, place: Place, access_key: str, signing_key: str) -> str:
    """Return the value of `Authorization`.

    It runs the steps of AWS's SDK one by one, because `add_auth` would write the headers, and with them a session
    token, to its log. Object storage (`s3`) needs `X-Amz-Content-SHA256` among the headers.
    """
    # Imported on first use, because it takes 40 ms.
    from botocore.auth import S3SigV4Auth, SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    kind = S3SigV4Auth if place.service == STORAGE else SigV4Auth
    signer = kind(Credentials(access_key, signing_key), place.service, place.region)
    made = AWSRequest(request.method, request.url, headers=dict(request.headers), data=request.body)
    made.context["timestamp"] = request.headers["X-Amz-Date"]
    signed = signer.signature(signer.string_to_sign(made, signer.canonical_request(made)), made)
    names = signer.signed_headers(signer.headers_to_sign(made))
    return f"{_ALGORITHM} Credential={signer.scope(made)}, SignedHeaders={names}, Signature={signed}"
