"""The console's pages of integrations, alike for every kind: a list with a form that adds one, and buttons of each row.

A kind's page module says what differs, and adds the pages that only its kind has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from apps.console.forms import Form, attempt, do_once, is_unticked, read_form
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.organizations.integrations.endpoints import Kind, LiveQuery
from apps.organizations.integrations.table import Row
from apps.organizations.models import Role

# The checkbox of kinds with a test: unticked, a row is saved without it.
TEST = "test"


class IntegrationPages(Generic[Row]):
    """The list of a kind, with its form; and the buttons that switch a row on or off, and remove it."""

    kind: Kind[Row]
    # The list's route, which is its template and navigation entry, too; what the routes of buttons end with.
    route: str
    one: str
    # The navigation entry, if it is not the list itself.
    entry = ""
    # The path's parameter with the id of a row.
    parameter: str
    # Messages with the `name` of a row.
    removed_words: str
    on_words: str
    off_words: str

    @property
    def row(self) -> str:
        """The path of a row, which paths of further buttons extend."""
        return f"{self._here}/<str:{self.parameter}>"

    @property
    def _here(self) -> str:
        return f"o/<str:organization_id>/{self.route.replace('_', '-')}"

    def blank(self) -> Form:
        """Return the form before it is filled in."""
        return Form()

    def read(self, request: HttpRequest, **given: Any) -> dict[str, Any]:
        """Return the fields of a new row; `given` are those that no form can set. Raises InvalidFields."""
        return read_form(request, self.kind.new, **given)

    def refused(self, request: HttpRequest, form: Form) -> Form:
        """Return a refused form as it is shown."""
        return form

    def added(self, request: HttpRequest, name: str) -> str:
        """Return the message after a row was added."""
        raise NotImplementedError

    def removed(self, row: Row) -> str:
        """Return the message after a row was removed."""
        return self.removed_words.format(name=row)

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        """Return what the list's template needs beside `form` and `rows`."""
        return {}

    def list_and_add(self, request: HttpRequest, workspace: Workspace) -> HttpResponse:
        """List the organization's rows, and add one."""
        if request.method != "POST":
            return self.show(request, workspace, self.blank())
        added, form = attempt(request, lambda: self._add(request, workspace))
        if added is None:
            return self.show(request, workspace, self.refused(request, form))
        [name] = added.values()
        messages.success(request, self.added(request, name))
        return back_to(self.route, workspace)

    def switch(self, request: HttpRequest, workspace: Workspace, **names: str) -> HttpResponse:
        """Switch a row on or off."""
        row = self.access(workspace, names[self.parameter])
        changed, form = attempt(request, lambda: self.kind.change(row, read_form(request, self.kind.changes)))
        if changed is None:
            return self.show(request, workspace, form)
        words = self.on_words if cast(Any, changed).status == "active" else self.off_words
        messages.success(request, words.format(name=changed))
        return back_to(self.route, workspace)

    def remove(self, request: HttpRequest, workspace: Workspace, **names: str) -> HttpResponse:
        """Remove a row; its credentials are erased."""
        row = self.access(workspace, names[self.parameter])
        self.kind.table.delete(row)
        messages.success(request, self.removed(row))
        return back_to(self.route, workspace)

    def access(self, workspace: Workspace, identifier: str) -> Row:
        """Return a row of this organization. Raises NotFound, also for rows of the visitor's other organizations."""
        row = self.kind.table.access(workspace.user, identifier)
        workspace.require_own(cast(Any, row).organization_id, self.kind.table.missing)
        return row

    def show(self, request: HttpRequest, workspace: Workspace, form: Form) -> HttpResponse:
        """Return the list with the form."""
        return show(
            request,
            self.route,
            workspace,
            entry=self.entry or self.route,
            status=form.status,
            form=form,
            rows=self.kind.table.access_all(workspace.user, str(workspace.organization.id)),
            **self.context(request, workspace, form),
        )

    def paths(self) -> list[URLPattern]:
        """Return the paths of the list and of the buttons."""
        page, button = workspace_page("GET", "POST", needs=Role.ADMIN), workspace_page("POST", needs=Role.ADMIN)
        return [
            path(self._here, page(self.list_and_add), name=self.route),
            path(f"{self.row}/switch", button(self.switch), name=f"switch_{self.one}"),
            path(f"{self.row}/remove", button(self.remove), name=f"remove_{self.one}"),
        ]

    def _add(self, request: HttpRequest, workspace: Workspace) -> dict[str, str]:
        organization = workspace.organization
        fields = self.read(request, organizationId=str(organization.id))
        query = {"live": not is_unticked(request, TEST)} if self.kind.query is LiveQuery else {}
        # The outside service is called first, outside any transaction.
        create = self.kind.check(organization, fields, **query)
        return do_once(request, workspace.user, lambda: {"name": str(create())})
