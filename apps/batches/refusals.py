"""Refusals of files and batches: one wording for each, whether it is another project's or never was. Pure."""

from __future__ import annotations

from apps.kernel.errors import BodyTooLarge, InvalidRequest, NotFound, PaymentRequired, RateLimited

# Characters of an id that are repeated: what a client wrote may be anything.
_SHOWN = 128


def no_file(file_id: str, param: str | None = None) -> NotFound:
    """Return the refusal of a file that is not there, or not the caller's."""
    return NotFound(f"No such File object: {file_id[:_SHOWN]}", param=param)


def no_file_in_form(field: str) -> InvalidRequest:
    """Return the refusal of a form without its file."""
    return InvalidRequest(f"{field} is required, as a file with a name", param=field)


def too_large_file(most: int, param: str) -> BodyTooLarge:
    """Return the refusal of a file, or of a part of one, that is larger than it may be."""
    return BodyTooLarge(f"{param} is larger than {most} bytes", param=param)


def no_upload(upload_id: str) -> NotFound:
    """Return the refusal of an upload that is not there, or not the caller's."""
    return NotFound(f"No such Upload object: {upload_id[:_SHOWN]}")


def upload_is_over(upload_id: str, status: str) -> InvalidRequest:
    """Return the refusal of what can only be done with a pending upload."""
    return InvalidRequest(f"Upload {upload_id} is {status}: this can only be done while it is pending")


def too_many_parts(most: int, size: int) -> InvalidRequest:
    """Return the refusal of a part beyond what an upload takes."""
    return InvalidRequest(
        f"An upload may have {most} parts, and this one was created with {size} bytes: its parts may not have more "
        "than twice that",
        param="data",
    )


def no_batch(batch_id: str) -> NotFound:
    """Return the refusal of a batch that is not there, or not the caller's."""
    return NotFound(f"No batch found with id '{batch_id[:_SHOWN]}'.")


def nothing_is_kept() -> InvalidRequest:
    """Return the refusal of what needs content to be kept, in an organization whose retention keeps none."""
    return InvalidRequest(
        "Files and batches cannot be used for this organization due to Zero Data Retention: its retention level keeps "
        "no content. An owner may set it to `retain`.",
        code="zero_data_retention",
    )


def no_links() -> InvalidRequest:
    """Return the refusal of links to pictures, in an organization whose retention keeps none."""
    return InvalidRequest(
        "image_links: links need images to be kept for a while, and this organization's retention level keeps no "
        "content (Zero Data Retention); leave the field out to get b64_json",
        code="zero_data_retention",
        param="image_links",
    )


def no_room_for_pictures(most: int, param: str) -> InvalidRequest:
    """Return the refusal of links beyond what an organization may have at a time."""
    return InvalidRequest(
        f"The images behind this organization's links may be {most} bytes together: wait until some expire, or "
        "leave image_links out to get b64_json",
        param=param,
        code="storage_limit_exceeded",
    )


def no_room_in_project(most: int, what: str) -> InvalidRequest:
    """Return the refusal of a file beyond what a project may have stored."""
    return InvalidRequest(
        f"The project's files may be {most} {what} together: delete some, or wait until they expire",
        param="file",
        code="storage_limit_exceeded",
    )


def no_room_in_organization(most: int, stored: int, *, pays_nothing: bool) -> InvalidRequest:
    """Return the refusal of a file, or of a batch's results, beyond what an organization may have stored."""
    whose = "an organization on the free plan without credits" if pays_nothing else "this organization"
    remedy = "delete some, wait until they expire, or " + ("add credits" if pays_nothing else "choose a larger plan")
    return InvalidRequest(
        f"The files of {whose} may be {most} bytes together, and {stored} are stored: {remedy}",
        param="file",
        code="storage_limit_exceeded",
    )


def no_credits_for_batch() -> PaymentRequired:
    """Return the refusal of a batch whose lines nothing would pay for."""
    return PaymentRequired("The organization has no credits, and nothing would pay for the batch's lines; add credits")


def too_many_batches(most: int) -> RateLimited:
    """Return the refusal of a batch beyond those that an organization may have in progress."""
    return RateLimited(
        f"The organization has {most} batches in progress, as many as its plan allows; try again when one has ended",
        code="batches_in_progress_exceeded",
        retry_after=60,
    )


def too_many_lines(most: int, open_lines: int, lines: int) -> RateLimited:
    """Return the refusal of a batch whose lines are more than an organization may have in progress."""
    return RateLimited(
        f"The organization's batches in progress may have {most} lines together; they have {open_lines}, and this "
        f"batch has {lines}: try again when one of them has ended, or send fewer lines",
        code="batch_lines_in_progress_exceeded",
        retry_after=60,
    )
