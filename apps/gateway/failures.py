"""Upstream failures: what can go wrong at a provider, and whether to try elsewhere or tell the client. Pure.

`error_type` is what the routing metadata says: `none`, `timeout`, `network`, `upstream_error`, `client_error`, …
"""

from __future__ import annotations

from collections.abc import Iterable

from apps.kernel.errors import AllProvidersFailed, ApiError, Overloaded, RateLimited, UpstreamRefused, UpstreamTimeout
from apps.kernel.secrets.redaction import redact

# Statuses that say something about the provider and nothing about the request (besides 5xx and 429).
_PROVIDERS_OWN = {401, 403, 404, 408}


class UpstreamFailure(Exception):
    """An attempt that did not answer. `status` is the provider's, None when none arrived; `retry_after` in seconds."""

    def __init__(
        self,
        error_type: str,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def redact(self, secrets: Iterable[str]) -> None:
        """Take credentials out of the provider's words: those that were sent to it, and whatever looks like one."""
        secrets = list(secrets)
        self.message = redact(self.message, secrets)
        self.code = self.code and redact(self.code, secrets)
        self.param = self.param and redact(self.param, secrets)
        self.args = (self.message,)

    @property
    def retryable(self) -> bool:
        """Whether another provider may do better: 5xx, 429, no answer, no connection, no credit or no such model there.

        A refusal of the request itself would be repeated everywhere.
        """
        if self.status is None:
            return True
        return self.status >= 500 or self.status == 429 or self.status in _PROVIDERS_OWN or self.status == 402

    def as_error(self, provider: str) -> ApiError:
        """Return the client's error when no other candidate can be tried."""
        if self.status is not None and not self.retryable:
            return UpstreamRefused(self.message, status=self.status, code=self.code, param=self.param)
        error = self._as_failure(provider)
        error.from_provider = True
        return error

    def _as_failure(self, provider: str) -> ApiError:
        if self.error_type == "timeout":
            return UpstreamTimeout(f"{provider} did not answer in time: {self.message}")
        if self.status == 429:
            return RateLimited(f"{provider}: {self.message}", retry_after=self.retry_after)
        if self.status in {503, 529}:
            return Overloaded(f"{provider}: {self.message}", retry_after=self.retry_after)
        return AllProvidersFailed(f"{provider} failed: {self.message}")


class StaleConnection(UpstreamFailure):
    """A kept-alive connection was closed before the request arrived: it was not read, and may be sent again."""


def failure_from_error(error: ApiError) -> UpstreamFailure:
    """Return the failure that an error inside an answer (an error object in a stream) amounts to."""
    return UpstreamFailure(
        "upstream_error",
        error.message,
        status=error.status,
        code=error.code,
        param=error.param,
        retry_after=error.retry_after,
    )


def error_type_for_status(status: int) -> str:
    """Return the word for a provider's status."""
    if status == 429:
        return "rate_limit"
    if status in {408, 504}:
        return "timeout"
    return "upstream_error" if status >= 500 else "client_error"
