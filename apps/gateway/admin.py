"""Reconciliation in the admin: the findings of the nightly run, and a button that replays unreadable records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from redis.exceptions import RedisError

from apps.gateway.models import Difference, Reconciliation
from apps.gateway.settlement import dead_letters
from apps.kernel.errors import Overloaded
from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button


class ReplayQuestion(ButtonQuestion):
    """Whether records that could not be read are to be tried again."""

    @property
    def lines(self) -> list[str]:
        """How many there are, and what happens."""
        try:
            broken = dead_letters.count()
        except RedisError:
            return ["The store that has them gives no answer."]
        if not broken:
            return ["There are none now."]
        return [
            f"{broken} record{'' if broken == 1 else 's'} of requests could not be read and "
            f"{'was' if broken == 1 else 'were'} put aside, neither logged nor charged. They go back to the queue: "
            "what can be read now, after an upgrade, is logged and charged once; what cannot comes back here."
        ]


@button("Replay broken records", permission="gateway.change_reconciliation", icon="replay", question=ReplayQuestion)
def replay_broken(page: Any, row: Any, fields: Mapping[str, Any]) -> Done:
    """Put records that could not be read back into the queue."""
    try:
        moved = dead_letters.replay()
    except RedisError as error:
        raise Overloaded("The store that has the records gives no answer; try again shortly") from error
    return Done(f"{moved} record{'' if moved == 1 else 's'} went back to the queue")


@admin.register(Reconciliation)
class ReconciliationAdmin(ButtonsAdmin, RecordAdmin):
    """One row a run."""

    actions_list = ("replay_broken",)
    replay_broken = replay_broken
    list_display = ("started_at", "finished_at", "compared", "found", "days")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "finished_at": "When it was done (UTC); empty: it is running, or its process ended early.",
        "days": "UTC days of the log that were compared with the ledger.",
        "compared": "Log rows with a cost that were compared.",
        "counts": "Differences found, by kind.",
    }


@admin.register(Difference)
class DifferenceAdmin(LongTableAdmin):
    """One row a difference."""

    list_display = ("reconciliation", "kind", "subject_id", "expected", "found", "organization_id")
    list_filter = ("kind",)
    list_select_related = ("reconciliation",)
    owners = ("subject_id", "organization_id", "reconciliation_id")
    help_texts = {
        "reconciliation": "The run that found it.",
        "kind": "The two values that were compared.",
        "subject_id": "The id of the organization, API key, request or log row that it is about.",
        "expected": "The correct value; amounts in USD.",
        "found": "The actual value; amounts in USD.",
    }
