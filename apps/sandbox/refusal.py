"""A refused request: the status and message of its error, which a format writes as its body."""

from __future__ import annotations


class SandboxRefusal(Exception):
    """An HTTP error, `status` 400 to 599. `param` names the field at fault; `retry_after` is in seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after
