"""The admin of integrations: view, switch on and off, delete; only organizations create them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.kernel.pages.admin import MadeElsewhereAdmin
from apps.organizations.integrations.table import IntegrationTable
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, View, button, is_living
from apps.organizations.operators.audited_admin import ActingAdmin
from apps.organizations.operators.organization_tabs import OrganizationLink


class IntegrationAdmin(OrganizationLink, ButtonsAdmin, MadeElsewhereAdmin, ActingAdmin):
    """Rows of a kind. The kind's own page has its columns and its `delete_button`, and says how a row is switched."""

    list_select_related = ("organization",)
    sortable_by = ()
    ordering = ("-id",)


def delete_button(table: IntegrationTable[Any], name: str, *, text: str, done: str = "{row} was removed") -> View:
    """Return the button that deletes a row and erases its credentials. `text` explains the deletion, `done` is the
    message after it; `{row}` is the row."""
    options = table.model._meta

    class DeleteQuestion(ButtonQuestion):
        """Asks whether to delete a row."""

    DeleteQuestion.text = text

    def delete(page: Any, row: Any, fields: Mapping[str, Any]) -> Done:
        """Delete a row, and erase its credentials."""
        table.delete(row)
        return Done(done.format(row=row))

    delete.__name__ = name
    permission = f"{options.app_label}.delete_{options.model_name}"
    made = button(
        "Delete", permission=permission, icon="delete", danger=True, question=DeleteQuestion, offered=is_living
    )
    return made(delete)
