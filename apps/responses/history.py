"""History: what came before a request's own input, from earlier responses, conversations and references; compaction.

Bounded in responses and bytes before anything is opened: what it expands to counts as if the client had sent it. Must
never reach beyond the caller's project. A compaction item is a summary of earlier items, encrypted for the project that
asked for it: a client sends it back unchanged, and a model reads it as the conversation so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.gateway.access.policy import Policy
from apps.gateway.dialects.chat.responses.wire import REASONING_ID
from apps.kernel.errors import BodyTooLarge, InvalidRequest
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_json, encrypt_json
from apps.responses import public_ids
from apps.responses.access import access_conversation, find_response, visible_responses
from apps.responses.items import Item, is_reference, referred_ids
from apps.responses.models import FINAL_STATUSES, ConversationItem, ResponseStatus, StoredResponse
from apps.responses.public_ids import is_public_id, new_item_id
from apps.responses.response_rows import conversation_place, input_of, output_of, response_of
from apps.responses.retention import keeps

TYPE: Final = "compaction"
_PREFIX: Final = "gwc1:"
_PLACE: Final = "compaction"
_INTRODUCTION: Final = "Summary of the conversation so far, which it replaces:\n\n"


def compaction_item(project_id: UUID, summary: str) -> Item:
    """Return the item that stands for a summary."""
    sealed = encrypt_json({"summary": summary}, project_id, _PLACE)
    return {"id": new_item_id(TYPE), "type": TYPE, "encrypted_content": f"{_PREFIX}{sealed}"}


def has_any(items: list[Any]) -> bool:
    """Tell whether there are compaction items that this gateway made."""
    return any(_is_own(item) for item in items)


def opened(project_id: UUID, items: list[Any]) -> list[Any]:
    """Return the items with each compaction item replaced by its summary. Raises InvalidRequest naming one."""
    return [_open(project_id, item, index) if _is_own(item) else item for index, item in enumerate(items)]


def _is_own(item: Any) -> bool:
    """Tell whether an item was made here: a provider's own goes to that provider."""
    if not isinstance(item, dict) or item.get("type") != TYPE:
        return False
    content = item.get("encrypted_content")
    return isinstance(content, str) and content.startswith(_PREFIX)


def _open(project_id: UUID, item: Item, index: int) -> Item:
    try:
        sealed = decrypt_json(item["encrypted_content"].removeprefix(_PREFIX), project_id, _PLACE)
    except UnreadableSecretError:
        param = f"input[{index}].encrypted_content"
        raise InvalidRequest(f"{param} was not made for this project, or was changed", param=param) from None
    text = f"{_INTRODUCTION}{sealed['summary']}"
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


# Responses in one chain; a longer chain is compacted (`/v1/responses/compact`) or restarted.
MAX_CHAIN_LENGTH: Final = 500
# Items of a conversation that a request may continue: as many as a request may have.
MAX_ITEMS: Final = 10_000
# References to items in a request.
MAX_REFERENCES: Final = 1_000
_GOES_ON = frozenset({ResponseStatus.COMPLETED, ResponseStatus.INCOMPLETE})

# Only the columns that bound it: contents are read once the total is known to be small enough.
_CHAIN = """
    WITH RECURSIVE chain AS (
        SELECT id, previous_id, 1 AS depth, context_size AS total FROM stored_response
        WHERE id = %(id)s AND project_id = %(project)s AND expires_at > now()
        UNION ALL
        SELECT row.id, row.previous_id, chain.depth + 1, chain.total + row.context_size
        FROM chain JOIN stored_response AS row
        ON row.id = chain.previous_id AND row.project_id = %(project)s AND row.expires_at > now()
        WHERE chain.depth <= %(longest)s AND chain.total <= %(most)s
    )
    SELECT id, previous_id, total FROM chain ORDER BY depth
"""


class _Link(NamedTuple):
    """A response in a chain, with the bytes of the chain from its newest response to this one."""

    id: str
    previous_id: str | None
    total: int


def items_before(policy: Policy, previous_id: str) -> list[Item]:
    """Return what led to a response and what it answered, oldest first. Raises as `chain_before`."""
    return items_of_chain(chain_before(policy, previous_id))


def items_of_chain(chain: Sequence[StoredResponse]) -> list[Item]:
    """Return the items of a chain of responses, in order."""
    return [item for row in chain for item in (*input_of(row), *output_of(response_of(row)))]


def chain_before(policy: Policy, previous_id: str) -> list[StoredResponse]:
    """Return the chain of responses that ends with a response, oldest first.

    Raises InvalidRequest for one that is not there or cannot be gone on from, BodyTooLarge, DatabaseError.
    """
    newest = find_response(policy, previous_id)
    if newest is None:
        raise public_ids.no_previous_response(previous_id)
    if newest.conversation_id is not None:
        raise InvalidRequest(
            f"Response '{previous_id}' belongs to a conversation; go on with `conversation` instead",
            param="previous_response_id",
        )
    if newest.status not in _GOES_ON:
        how = newest.status if newest.status in FINAL_STATUSES else f"still {newest.status}"
        raise InvalidRequest(
            f"Previous response with id '{previous_id}' is {how}; only a completed one can be gone on from",
            param="previous_response_id",
            code="previous_response_not_completed",
        )
    return [*_rows_before(policy, newest), newest]


def items_used_by(policy: Policy, row: StoredResponse) -> list[Item]:
    """Return the items that a response was made of, oldest first. Raises as `items_before`."""
    before = items_before(policy, row.previous_id) if row.previous_id is not None else []
    return resolved(policy, [*before, *input_of(row)])


def items_in(policy: Policy, conversation_id: Any) -> list[Item]:
    """Return the items of a conversation, oldest first. Raises NotFound, BodyTooLarge, DatabaseError."""

    def read() -> list[str]:
        row = access_conversation(policy, conversation_id, param="conversation")
        kept = ConversationItem.objects.filter(conversation=row, expires_at__gt=timezone.now())
        # One more than fits is enough to know that it does not.
        sizes = kept.order_by("position").values_list("size", flat=True)[: MAX_ITEMS + 1]
        if len(sizes) > MAX_ITEMS or sum(sizes) > settings.BODY_LIMIT:
            raise _too_large("conversation")
        return list(kept.order_by("position").values_list("sealed_item", flat=True)[:MAX_ITEMS])

    place = conversation_place(conversation_id) if is_public_id(conversation_id) else ""
    return [decrypt_json(sealed, policy.project_id, place) for sealed in database.read(read)]


def resolved(policy: Policy, items: Sequence[Any]) -> list[Any]:
    """Return the items with each reference replaced by its item.

    Raises NotFound for an item that is not there, InvalidRequest, BodyTooLarge, DatabaseError.
    """
    wanted = list(dict.fromkeys(referred_ids(items)))
    if not wanted:
        return list(items)
    if len(wanted) > MAX_REFERENCES:
        raise InvalidRequest(f"More than {MAX_REFERENCES} items are referred to", param="input")
    # Items that the request contains need no query.
    found = {
        item["id"]: item
        for item in items
        if isinstance(item, dict) and not is_reference(item) and is_public_id(item.get("id"))
    }
    if missing := [item_id for item_id in wanted if item_id not in found]:
        found |= _stored_items(policy, missing)
    for index, item in enumerate(items):
        if is_reference(item) and item["id"] not in found and not item["id"].startswith(REASONING_ID):
            raise public_ids.no_item(item["id"], f"input[{index}].id")
    # Reasoning that is not stored is repeated: the reader drops its reference, and reports that.
    return [found.get(item["id"], item) if is_reference(item) else item for item in items]


def _rows_before(policy: Policy, newest: StoredResponse) -> list[StoredResponse]:
    if newest.previous_id is None:
        return []
    links = database.read(partial(_read_chain, policy, newest.previous_id))
    if newest.context_size + (links[-1].total if links else 0) > settings.BODY_LIMIT:
        raise _too_large("previous_response_id")
    if len(links) >= MAX_CHAIN_LENGTH:
        raise InvalidRequest(
            f"More than {MAX_CHAIN_LENGTH} responses go on from one another; sum them up with /v1/responses/compact",
            param="previous_response_id",
            code="chain_too_long",
        )
    missing = links[-1].previous_id if links else newest.previous_id
    if missing is not None:
        # Deleted or expired since: half a history would be another one.
        raise public_ids.no_previous_response(missing)
    rows = database.read(partial(visible_responses(policy).in_bulk, [link.id for link in links]))
    for link in links:
        if link.id not in rows:
            raise public_ids.no_previous_response(link.id)
    return [rows[link.id] for link in reversed(links)]


def _read_chain(policy: Policy, newest_id: str) -> list[_Link]:
    with connection.cursor() as cursor:
        cursor.execute(
            _CHAIN,
            {
                "id": newest_id,
                "project": policy.project_id,
                "longest": MAX_CHAIN_LENGTH,
                "most": settings.BODY_LIMIT,
            },
        )
        return [_Link(*row) for row in cursor.fetchall()]


def _stored_items(policy: Policy, ids: Sequence[str]) -> dict[str, Item]:
    """Return those of the items that responses and conversations of the project hold."""
    if not keeps(policy):
        return {}
    rows = database.read(partial(_rows_with, policy, ids))
    found: dict[str, Item] = {}
    for row in rows:
        items: Iterable[Item] = [*input_of(row), *output_of(response_of(row))]
        found.update((item["id"], item) for item in items if not is_reference(item))
    missing = [item_id for item_id in ids if item_id not in found]
    if missing:
        kept = ConversationItem.objects.filter(
            project_id=policy.project_id, item_id__in=missing, expires_at__gt=timezone.now()
        )
        sealed = database.read(lambda: list(kept.values_list("item_id", "conversation_id", "sealed_item")))
        for item_id, conversation_id, text in sealed:
            found[item_id] = decrypt_json(text, policy.project_id, conversation_place(conversation_id))
    return found


def _rows_with(policy: Policy, ids: Sequence[str]) -> list[StoredResponse]:
    """Return as few responses as hold the items, the newest of each. Raises BodyTooLarge."""
    rows = visible_responses(policy).filter(item_ids__overlap=list(ids)).order_by("-created_at")
    open_ids, chosen, total = set(ids), [], 0
    for identifier, size, held in rows.values_list("pk", "context_size", "item_ids")[: 2 * MAX_REFERENCES]:
        if open_ids.isdisjoint(held):
            continue
        open_ids.difference_update(held)
        chosen.append(identifier)
        total += size
        if total > settings.BODY_LIMIT:
            raise _too_large("input")
    return list(visible_responses(policy).filter(pk__in=chosen)) if chosen else []


def _too_large(param: str) -> BodyTooLarge:
    return BodyTooLarge(
        f"{param} stands for more than {settings.BODY_LIMIT} bytes or {MAX_ITEMS} items, which is the maximum of a "
        "request; compact it with /v1/responses/compact, or start a new conversation",
        param=param,
    )
