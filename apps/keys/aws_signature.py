"""AWS Signature Version 4 (SigV4), by botocore: the header `Authorization` of a request. Pure.

Knows what is signed, and that object storage signs in a way of its own. Must never send a key that signs, nor log
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_ALGORITHM = "AWS4-HMAC-SHA256"
STORAGE = "s3"


class Signable(NamedTuple):
    """A request to be signed: all of its given headers, `X-Amz-Date` among them, are signed, and so is its host."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Place(NamedTuple):
    """For which service, in which region, a signature holds."""

    service: str
    region: str


def signature(request: Signable, place: Place, access_key: str, signing_key: str) -> str:
    """Return the value of `Authorization`.

    Takes the steps of AWS's own SDK one by one: taken at once (`add_auth`), they write the headers, and with them a
    session's token, to its log. Object storage (`s3`) wants `X-Amz-Content-SHA256` among the headers.
    """
    # Not before somebody signs: 40 ms that others do without.
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
