"""Refusals of stored state: one wording for each, so that another project's objects look like unknown ones.

Source of the words: OpenAI's API, whose clients look for some of them. Pure.
"""

from __future__ import annotations

from apps.kernel.errors import InvalidRequest, NotFound


def no_response(response_id: str) -> NotFound:
    """Return the refusal of a response that is not there, or not the caller's."""
    return NotFound(f"Response with id '{_shown(response_id)}' not found.")


def no_previous_response(response_id: str) -> InvalidRequest:
    """Return the refusal to go on from a response that is not there, or not the caller's."""
    return InvalidRequest(
        f"Previous response with id '{_shown(response_id)}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def no_conversation(conversation_id: str, param: str | None = None) -> NotFound:
    """Return the refusal of a conversation that is not there, or not the caller's."""
    return NotFound(f"Conversation with id '{_shown(conversation_id)}' not found.", param=param)


def no_item(item_id: str, param: str | None = None) -> NotFound:
    """Return the refusal of an item that is not there, or not the caller's."""
    return NotFound(
        f"Item with id '{_shown(item_id)}' not found. Items are not persisted when `store` is set to false. Try again "
        "with `store` set to true, or remove this item from your input.",
        param=param,
    )


def no_conversation_item(item_id: str) -> NotFound:
    """Return the refusal of an item that its conversation has not."""
    return NotFound(f"Conversation item with id '{_shown(item_id)}' not found.")


def nothing_is_kept(param: str, what: str) -> InvalidRequest:
    """Return the refusal of what needs content to be kept, in an organization whose retention keeps none."""
    return InvalidRequest(
        f"{what} cannot be used for this organization due to Zero Data Retention: its retention level keeps no "
        "content. An owner may set it to `retain`.",
        param=param,
        code="zero_data_retention",
    )


def _shown(identifier: str) -> str:
    """Return an id as it may be shown: what a client wrote may be anything."""
    return identifier if len(identifier) <= 128 else f"{identifier[:125]}..."
