"""Google generateContent, client side: writes errors as `google.rpc.Status`. Must never decide what follows."""

from __future__ import annotations

from apps.gateway.dialects.chat.google.shared.wire import Record, encode
from apps.gateway.dialects.reading.context_overflow import google_message
from apps.kernel.errors import ApiError, NotFound
from apps.kernel.rest.envelopes import Family


def error_for_clients(error: ApiError) -> ApiError:
    """Return an error with the status that Google has for it: a model that does not exist is not found."""
    if error.code == "model_not_found" and error.status == 400:
        return NotFound(error.message, code=error.code, param=error.param)
    return error


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return encode({"error": write_error_object(error)})


def write_error_object(error: ApiError) -> Record:
    """Return what clients of this format look for in an error: the reason, the field at fault, when to come back."""
    status: Record = Family.GOOGLE.body_of(error)["error"]
    return status | {"message": google_message(error)}
