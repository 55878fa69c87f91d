"""Books in the admin: reconciliation with a button for unreadable records, clearing accounts, and balance sheets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.contrib import admin
from redis.exceptions import RedisError

from apps.gateway.models import BalanceSheet, ClearingAccount, Difference, Reconciliation
from apps.gateway.settlement import clearing, dead_letters
from apps.kernel.errors import Overloaded
from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button

_ACCOUNT_WORDS: Final = {
    clearing.HELD: "Held by open requests",
    clearing.ANSWERED: "Answered, not settled",
    clearing.BATCHES: "Held for batches at providers",
    clearing.UNBILLED: "Settled, not on the provider's bill",
}


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


@admin.register(ClearingAccount)
class ClearingAccountAdmin(RecordAdmin):
    """Money in flight, read every minute: one row an account."""

    list_display = ("account", "amount", "items", "oldest", "allowed", "is_in_time", "read_at")
    sortable_by = ()
    ordering = ("name",)
    help_texts = {
        "name": "`held`: by open requests; `answered`: answered and not settled; `batches`: held in the ledger for "
        "batches at providers; `unbilled`: settled, and not on the provider's bill that was read last.",
        "amount": "USD of credits.",
        "items": "Requests.",
        "oldest_at": "When the oldest began (UTC); empty: there is none.",
        "bound": "Seconds that the oldest may have; an older one is an alert.",
        "read_at": "When the account was read (UTC).",
    }

    @admin.display(description="Account")
    def account(self, row: ClearingAccount) -> str:
        """Return the account's name in words."""
        kind, _, provider = row.name.partition(" ")
        return _ACCOUNT_WORDS.get(kind, kind) + (f": {provider}" if provider else "")

    @admin.display(description="Oldest")
    def oldest(self, row: ClearingAccount) -> str:
        """Return the age of the oldest item."""
        return "-" if row.oldest_at is None else as_text.seconds(row.age)

    @admin.display(description="Bound")
    def allowed(self, row: ClearingAccount) -> str:
        """Return the age that the oldest item may have."""
        return as_text.seconds(row.bound)

    @admin.display(description="In time", boolean=True)
    def is_in_time(self, row: ClearingAccount) -> bool:
        """Return whether the oldest item is within its bound."""
        return not row.is_overdue


@admin.register(BalanceSheet)
class BalanceSheetAdmin(RecordAdmin):
    """One row a sheet."""

    list_display = ("drawn_at", "credits", "held", "answered", "available", "balances")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "received": "USD: payments, gifts and referrals less refunds.",
        "used": "USD: charges for requests and storage.",
        "batches": "USD: held in the ledger for batches at providers.",
        "deleted": "USD: the part of ledger entries whose organization has no row any more.",
        "credits": "USD: the balances of all organizations.",
        "held": "USD: held by open requests.",
        "answered": "USD: held by requests that are answered and not settled.",
        "available": "USD: credits less both.",
        "ledger_difference": "USD: received less used, batches, deleted and credits; it must be 0.",
        "holds_difference": "USD: holds of requests less the amounts held on balances; it must be 0.",
    }

    @admin.display(description="Balances", boolean=True)
    def balances(self, row: BalanceSheet) -> bool:
        """Return whether both differences are 0."""
        return row.is_balanced
