"""Refusals by key: whom an error that a client is answered is counted for.

It makes no query: a key that this process has not seen is not counted.
"""

from __future__ import annotations

from apps.gateway.access.policy import find_known_policy
from apps.gateway.client.http_request import ClientRequest
from apps.kernel.errors import ApiError, UpstreamRefused
from apps.logs import refusals


def count_refusal(call: ClientRequest, error: ApiError) -> None:
    """Count an error that is a refusal of ours, for its key's owner to see. Raises nothing.

    A stream that a guardrail ends has begun, and is not counted: the log and the violations have it.
    """
    if not refusals.is_counted(error.status, error.code):
        return
    if error.from_provider or isinstance(error, UpstreamRefused):
        return
    try:
        policy = find_known_policy(call.presented_key)
    except ApiError:
        # There is no key to count it for.
        return
    if policy is not None:
        refusals.count(policy.organization_id, policy.api_key_id, error.status, error.code)
