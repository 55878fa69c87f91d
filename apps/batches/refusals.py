"""Refusals of files and batches: one wording for each, whether it is another project's or never was. Pure."""

from __future__ import annotations

from apps.kernel.errors import InvalidRequest, NotFound

# Characters of an id that are repeated: what a client wrote may be anything.
_SHOWN = 128


def no_file(file_id: str, param: str | None = None) -> NotFound:
    """Return the refusal of a file that is not there, or not the caller's."""
    return NotFound(f"No such File object: {file_id[:_SHOWN]}", param=param)


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


def no_room(most: int, what: str) -> InvalidRequest:
    """Return the refusal of a file beyond what a project may have stored."""
    return InvalidRequest(
        f"The project's files may be {most} {what} together: delete some, or wait until they expire",
        param="file",
        code="storage_limit_exceeded",
    )
