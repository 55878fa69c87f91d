"""The error tree: every way a request can fail, with its status, type and code.

ApiError
├── InvalidRequest 400      invalid_json · invalid_parameters · model_not_found · unsupported_feature · …
├── Unauthenticated 401     invalid_api_key
├── PaymentRequired 402     insufficient_credits · usage_limit_exceeded
├── Forbidden 403           access_denied
├── NotFound 404
├── Gone 410
├── BodyTooLarge 413
├── UnsupportedMediaType 415
├── RateLimited 429
├── ClientGone 499
├── InternalError 500
├── UpstreamRefused         an upstream's own 4xx, with its status and message
├── AllProvidersFailed 502
├── Overloaded 503
└── UpstreamTimeout 504
"""

from __future__ import annotations

# 4xx statuses that may succeed when the request is repeated.
_PASSING = frozenset({408, 409, 425, 429, 499})
# The header that stops retries in the SDKs of OpenAI and Anthropic, and in software based on them.
NO_RETRY = ("x-should-retry", "false")
# Seconds that a client library may wait in silence. Anthropic's waits for as long as `Retry-After` says, be it a month;
# OpenAI's does not wait longer than this either.
_MAX_SILENT_WAIT = 120.0


def is_final(status: int) -> bool:
    """Return whether a status is final, so that repeating the request is pointless."""
    return 400 <= status < 500 and status not in _PASSING


class ApiError(Exception):
    """A failed request. `message` is for people, `code` for programs.

    `param` names the invalid field as the client wrote it; `retry_after` is in seconds; `headers` are added to the
    response.
    """

    status = 500
    type = "api_error"
    code = "internal_error"
    # Whether a provider failed, as opposed to the gateway or the client.
    from_provider = False
    # Default seconds until a retry; None if a retry is pointless.
    retry_after: float | None = None

    @property
    def is_final(self) -> bool:
        """Whether the same request would always be refused again."""
        return is_final(self.status)

    @property
    def forbids_retry(self) -> bool:
        """Whether client libraries must not repeat the request: the answer stays the same, for good or for long."""
        return self.is_final or (self.retry_after is not None and self.retry_after > _MAX_SILENT_WAIT)

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers = headers or []
        if retry_after is not None:
            self.retry_after = retry_after
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status


class InvalidRequest(ApiError):
    """The request is malformed, out of range, or asks for something unsupported."""

    status, type, code = 400, "invalid_request_error", "invalid_parameters"


class Unauthenticated(ApiError):
    """No key, an unknown key, or one that no longer works."""

    status, type, code = 401, "authentication_error", "invalid_api_key"


class PaymentRequired(ApiError):
    """The credits or the key's usage limit do not cover the request."""

    status, type, code = 402, "billing_error", "insufficient_credits"


class Forbidden(ApiError):
    """The caller is known and lacks the permission."""

    status, type, code = 403, "permission_error", "access_denied"


class NotFound(ApiError):
    """The resource does not exist, or the caller must not know of it."""

    status, type, code = 404, "invalid_request_error", "not_found"


class RequestTimeout(ApiError):
    """The client did not send its whole request in time."""

    status, type, code = 408, "invalid_request_error", "request_timeout"


class Gone(ApiError):
    """The resource existed and is archived, deactivated or deleted."""

    status, type, code = 410, "invalid_request_error", "gone"


class BodyTooLarge(ApiError):
    """The request body is over the limit."""

    status, type, code = 413, "invalid_request_error", "request_too_large"


class UnsupportedMediaType(ApiError):
    """A POST without a content type that the endpoint supports."""

    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class RateLimited(ApiError):
    """Too many requests; `retry_after` is the time to wait."""

    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"


class ClientGone(ApiError):
    """The client closed the connection before its answer was complete."""

    status, type, code = 499, "request_cancelled", "request_cancelled"


class InternalError(ApiError):
    """A defect of the gateway; the message never has details."""

    status, type, code = 500, "api_error", "internal_error"


class UpstreamRefused(ApiError):
    """A provider refused the request because of its content (its own 4xx)."""

    status, type, code = 400, "invalid_request_error", "upstream_refused"


class AllProvidersFailed(ApiError):
    """No provider could answer."""

    status, type, code = 502, "upstream_error", "all_providers_failed"


class Overloaded(ApiError):
    """The gateway cannot accept the request right now; `retry_after` is always set."""

    status, type, code = 503, "api_error", "overloaded"
    retry_after = 2.0


class UpstreamTimeout(ApiError):
    """The provider did not answer in time."""

    status, type, code = 504, "timeout_error", "upstream_timeout"
