"""Organizations, memberships, projects and the audit log in the admin; an organization's page has tabs and buttons.

The pages call the same actions as the API; tabs of other apps are discovered.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType
from typing import Any, Final, cast

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Field, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from apps.kernel.ids import find_id
from apps.kernel.pages.admin import KeptAdmin, LongTableAdmin, RecordAdmin, usd
from apps.kernel.pages.number_formats import mark_numbers
from apps.organizations import actions
from apps.organizations.models import (
    AuditEntry,
    IdempotentAnswer,
    Membership,
    Organization,
    OrganizationDeletion,
    Project,
    Role,
)
from apps.organizations.operators import organization_buttons
from apps.organizations.operators.admin_buttons import ButtonsAdmin
from apps.organizations.operators.audited_admin import ActingAdmin, cells_of
from apps.organizations.operators.organization_tabs import (
    OrganizationLink,
    Tab,
    found_buttons,
    found_tabs,
    link_to,
    list_of,
    moment,
)


def _members(organization: Organization) -> Any:
    return Membership.objects.filter(organization=organization).select_related("user").order_by("-id")


def _projects(organization: Organization) -> Any:
    return Project.objects.filter(organization=organization).order_by("-id")


def _entries(organization: Organization) -> Any:
    return AuditEntry.objects.filter(organization_id=organization.pk).order_by("-id")


MEMBERS = Tab(
    "members",
    "Members",
    "organizations.view_membership",
    lambda row: list_of("organizations_membership", organization__id__exact=row.pk),
    ("Member", "Role", "Since", ""),
    _members,
    lambda row: (link_to(row.user), row.role, moment(row.created_at), link_to(row, "Change role or remove")),
)
PROJECTS = Tab(
    "projects",
    "Projects",
    "organizations.view_project",
    lambda row: list_of("organizations_project", organization__id__exact=row.pk),
    ("Project", "Status", "Mode", "Caching", "Created"),
    _projects,
    lambda row: (
        link_to(row),
        row.status,
        row.get_mode_display(),
        f"{row.cache_duration_seconds} s" if row.caching_enabled else "off",
        moment(row.created_at),
    ),
)
AUDIT = Tab(
    "audit",
    "Audit",
    "organizations.view_auditentry",
    lambda row: list_of("organizations_auditentry", q=row.pk),
    ("When", "What", "Details", "Who"),
    _entries,
    cells_of,
)


ORGANIZATION: Final = {
    "billing_email": "Receives invoices and payment notices; empty: the owners do.",
    "billing_company": "Printed on invoices; empty: the organization's name.",
    "billing_address": "Stands on invoices.",
    "billing_tax_id": "VAT or other tax number; printed on invoices.",
    "billing_notes": "Printed on invoices, such as an order number.",
    "referred_by": "The organization whose referral link was used; empty: none.",
    "dev_plan": "The personal development subscription.",
    "dev_plan_credits_used": "USD of the allowance used in this cycle.",
    "dev_plan_billing_cycle_start": "When this cycle began (UTC); empty without the plan.",
    "dev_plan_expires_at": "When the plan ends (UTC); empty: no end is set.",
    "retention_level": "Stored data: no content, metadata only, or everything.",
    "outage_policy": "Whether requests are served (open, within a small allowance) or refused (closed) while the "
    "credit counter is unavailable.",
    "requests_per_minute": "Overrides the plan's limit; 0 is no limit, empty is the plan's.",
    "is_personal": "Belongs to one person, for the development plan.",
    "plan": "Change it with the button above.",
    "plan_expires_at": "When the paid term ends; empty without one.",
    "status": "Suspend, reactivate or delete with the buttons above; while `deleting`, its keys are refused.",
    "credits": "The balance: the sum of the ledger. Grant credits with the button above.",
    "auto_top_up_enabled": "Charges the default card when the balance falls under the threshold.",
    "auto_top_up_threshold": "USD, at least 5.",
    "auto_top_up_amount": "USD for each automatic top-up, at least 10.",
    "referral_earnings": "Total USD earned from referred organizations.",
    "dev_plan_credits_limit": "The plan's allowance per cycle in USD.",
    "dev_plan_allow_all_models": "Allows models that the development plan does not include.",
    "credits_version": "Counter of balance changes, so that an older copy never replaces a newer one.",
}

AUDIT_ENTRY: Final = {
    "actor_type": "A signed-in user, an operator in this admin, or the gateway itself.",
    "actor_id": "The user's id; empty: the gateway itself.",
    "actor_email": "The user's address at that time.",
    "action": "The action, such as api_key.create.",
    "resource_type": "The type of the changed resource.",
    "resource_id": "The id of the changed resource.",
    "details": "The changes, without secrets.",
    "ip_address": "Where the request came from; empty: not from a request.",
    "user_agent": "The client's User-Agent header; empty: none.",
    "request_id": "The id of the request, as in its X-Request-Id header; empty: no request.",
}


DELETION: Final = {
    "state": "Waiting until it is due, cancelled, or completed.",
    "organization_id": "The id of the organization, which stays when its data is erased.",
    "organization_name": "Its name at the request, and at the end once completed.",
    "reason": "As the requester gave it; empty: none.",
    "actor_type": "An owner in a session, an operator in this admin, or the gateway itself.",
    "actor_id": "The requester's id; empty: the gateway itself.",
    "actor_email": "The requester's address at that time.",
    "previous_status": "The status that a cancellation restores.",
    "balance": "Remaining credits in USD at the request, and at the end once completed.",
    "row_counts": "Rows by table when the organization was deleted, before they were erased.",
    "requested_at": "Since when its keys are refused (UTC).",
    "due_at": "When it is deleted unless it is cancelled (UTC).",
    "cancelled_at": "When the deletion was cancelled (UTC); empty: it was not.",
    "cancelled_by": "The user who cancelled it; empty: it was not cancelled, or by the gateway itself.",
    "completed_at": "When the organization was deleted (UTC); empty: not yet.",
    "notice": "The e-mail to the owners that waits to be sent; empty: none waits.",
}

# The API's minimums; see `serializers.py`.
_LEAST = {"auto_top_up_threshold": 5, "auto_top_up_amount": 10}


@admin.register(Organization)
class OrganizationAdmin(ButtonsAdmin, KeptAdmin, ActingAdmin):
    """Organizations. Only the ledger changes credits; plan, status and deletion have buttons."""

    thing = "organization"
    list_display = ("name", "owner", "plan", "status", "credits", "created_at")
    list_filter = ("plan", "status", "retention_level", "outage_policy", "dev_plan")
    search_fields = ("id__exact", "name", "billing_email", "memberships__user__email")
    search_help_text = "Part of a name or of a member's e-mail address, or an exact id"
    sortable_by = ("name", "credits")
    ordering = ("-id",)
    change_form_outer_before_template = "admin/organizations/header.html"
    readonly_fields = (
        *("id", "plan", "plan_expires_at", "status", "credits", "credits_version", "referred_by", "referral_earnings"),
        *("dev_plan_credits_used", "created_at", "updated_at"),
    )
    fieldsets = (
        (None, {"fields": ("name", "retention_level", "outage_policy", "requests_per_minute", "is_personal")}),
        ("Plan and status", {"fields": (("plan", "plan_expires_at"), "status")}),
        (
            "Billing",
            {
                "fields": (
                    *("credits", "billing_email", "billing_company", "billing_address", "billing_tax_id"),
                    *("billing_notes", "auto_top_up_enabled", ("auto_top_up_threshold", "auto_top_up_amount")),
                    *("referred_by", "referral_earnings"),
                )
            },
        ),
        (
            "Development plan",
            {
                "fields": (
                    *("dev_plan", ("dev_plan_credits_used", "dev_plan_credits_limit"), "dev_plan_billing_cycle_start"),
                    *("dev_plan_expires_at", "dev_plan_allow_all_models"),
                )
            },
        ),
        ("Record", {"fields": ("id", "credits_version", "created_at", "updated_at")}),
    )
    help_texts = ORGANIZATION

    def __init__(self, model: Any, admin_site: Any) -> None:
        super().__init__(model, admin_site)
        own = organization_buttons
        buttons = [
            *found_buttons(),
            own.change_plan,
            own.suspend,
            own.reactivate,
            own.delete_for_good,
            own.cancel_deletion,
        ]
        for one in buttons:
            setattr(self, one.__name__, MethodType(one, self))
        self.actions_detail = tuple(one.__name__ for one in buttons)
        self._tabs = [
            MEMBERS,
            PROJECTS,
            *found_tabs(),
            AUDIT,
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organization]:
        """Return organizations with the address of their first owner."""
        owners = Membership.objects.filter(organization=OuterRef("pk"), role=Role.OWNER).order_by("id")
        rows: QuerySet[Organization] = super().get_queryset(request)
        return rows.annotate(owner_email=Subquery(owners.values("user__email")[:1]))

    @admin.display(description="Owner", empty_value="-")
    def owner(self, row: Any) -> str | None:
        """Return the address of the first owner."""
        return str(row.owner_email) if row.owner_email else None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: an organization is created with its owner and a project, by a button on the user's page."""
        return False

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Apply the API's bounds to amounts."""
        if db_field.name in _LEAST:
            kwargs["min_value"] = _LEAST[db_field.name]
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def change_row(self, row: Organization, changes: Mapping[str, Any]) -> None:
        """Set columns."""
        actions.change_organization(organization=row, changes=changes)

    def get_urls(self) -> list[URLPattern]:
        """Add a page for each tab with rows."""
        pages = [
            path(f"<path:object_id>/{tab.name}/", self._page_of(tab), name=f"organizations_organization_{tab.name}")
            for tab in self._tabs
            if tab.rows
        ]
        return [*pages, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page with the organization's header."""
        row = self.get_object(request, unquote(object_id))
        header = {} if row is None else self._header(request, row, "")
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **header})

    def _page_of(self, tab: Tab) -> Any:
        def page(request: HttpRequest, object_id: str) -> HttpResponse:
            row = self.get_object(request, unquote(object_id))
            if row is None:
                raise Http404
            if not (self.has_view_or_change_permission(request, row) and request.user.has_perm(tab.permission)):
                raise PermissionDenied
            return self._show(request, row, tab)

        return self.admin_site.admin_view(page)

    def _show(self, request: HttpRequest, row: Organization, tab: Tab) -> HttpResponse:
        buttons = cast(Any, self)._get_actions_navigation(
            list(self.actions_detail), self.get_actions_detail(request, str(row.pk)), str(row.pk)
        )
        table = {
            "caption": f"{tab.title} of {row}",
            "headers": tab.headers,
            "rows": tab.shown(row),
            "empty": "There are none.",
        }
        context = {
            **self.admin_site.each_context(request),
            **self._header(request, row, tab.name),
            "title": f"{row}: {tab.title}",
            "opts": self.opts,
            "original": row,
            "media": self.media,
            "table": table,
            "full_list": tab.full_list(row),
            "actions_detail": buttons,
        }
        return TemplateResponse(request, "admin/organizations/tab.html", context)

    def _header(self, request: HttpRequest, row: Any, active: str) -> dict[str, Any]:
        """Return the header above each tab of an organization's page."""
        owners = Membership.objects.filter(organization=row, role=Role.OWNER).select_related("user").order_by("id")
        first = owners.first()
        change = reverse("admin:organizations_organization_change", args=[row.pk])
        tabs = [{"title": "Settings", "link": change, "active": not active}]
        for tab in self._tabs:
            if request.user.has_perm(tab.permission):
                link = tab.full_list(row)
                if tab.rows:
                    link = reverse(f"admin:organizations_organization_{tab.name}", args=[row.pk])
                tabs.append({"title": tab.title, "link": link, "active": tab.name == active})
        facts: tuple[tuple[str, Any], ...] = (
            ("Owner", link_to(first.user) if first else "-"),
            ("Plan", row.get_plan_display()),
            ("Balance (USD)", mark_numbers(usd(row.credits))),
            ("Status", row.get_status_display()),
            ("Created (UTC)", moment(row.created_at)),
        )
        if row.deletion_due_at is not None:
            facts = (*facts, ("Deleted on (UTC)", moment(row.deletion_due_at)))
        return {"facts": facts, "tabs": tabs, "is_deleted": row.status == Organization.Status.DELETED}


@admin.register(OrganizationDeletion)
class OrganizationDeletionAdmin(RecordAdmin):
    """The journal of deletions of organizations: requester, time, reason, balance and number of rows of each."""

    list_display = ("requested_at", "organization_name", "state", "due_at", "actor_type", "actor_email", "reason")
    list_filter = ("actor_type",)
    search_fields = ("organization_name", "actor_email", "reason")
    search_help_text = "Part of a name, an e-mail address or a reason, or the exact id of an organization"
    ordering = ("-id",)
    sortable_by = ()
    fields = (
        *("state", "organization_id", "organization_name", "reason", "actor_type", "actor_id", "actor_email"),
        *("previous_status", "balance", "row_counts", "requested_at", "due_at", "cancelled_at", "cancelled_by"),
        *("completed_at", "notice"),
    )
    help_texts = DELETION

    @admin.display(description="State")
    def state(self, row: OrganizationDeletion) -> str:
        """Return whether the deletion is waiting, cancelled or completed."""
        if row.cancelled_at is not None:
            return "Cancelled"
        return "Waiting" if row.completed_at is None else "Completed"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search an exact id, else parts of the texts."""
        identifier = find_id(search_term.strip())
        if identifier is not None:
            return queryset.filter(organization_id=identifier), False
        return super().get_search_results(request, queryset, search_term)


@admin.register(Membership)
class MembershipAdmin(OrganizationLink, ActingAdmin):
    """Members of organizations and their roles."""

    thing = "member"
    list_display = ("user", "role", "organization_link", "created_at")
    list_filter = ("role",)
    list_select_related = ("user", "organization")
    search_fields = ("user__email", "organization__name")
    autocomplete_fields = ("user", "organization")
    readonly_fields = ("created_at", "updated_at")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {"role": "Developers use it, admins manage projects and keys too, owners billing and members as well."}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make user and organization of an existing membership read-only."""
        return (*self.readonly_fields, "user", "organization") if obj else self.readonly_fields

    def create_row(self, row: Membership, fields: Mapping[str, Any]) -> Membership:
        """Add a member."""
        return actions.add_member(
            organization=fields["organization"], email=fields["user"].email, role=Role(fields["role"])
        )

    def change_row(self, row: Membership, changes: Mapping[str, Any]) -> None:
        """Change a member's role."""
        actions.change_member(membership=row, role=Role(changes["role"]))

    def delete_row(self, row: Membership) -> None:
        """End a membership and revoke the API keys that the member created."""
        actions.remove_member(membership=row)


@admin.register(Project)
class ProjectAdmin(OrganizationLink, ButtonsAdmin, KeptAdmin, ActingAdmin):
    """Projects, which hold API keys."""

    thing = "project"
    actions_detail = ("delete_project_for_good",)
    delete_project_for_good = organization_buttons.delete_project_for_good
    list_display = ("name", "organization_link", "mode", "status", "caching_enabled", "created_at")
    list_filter = ("mode", "status", "caching_enabled")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    autocomplete_fields = ("organization",)
    sortable_by = ()
    ordering = ("-id",)
    readonly_fields = ("id", "team", "created_at", "updated_at")
    help_texts = {
        "team": "The team that its requests count for; empty: none.",
        "mode": "Whose provider credentials its requests use: the organization's own, the gateway's (paid with "
        "credits), or its own first and then the gateway's.",
        "caching_enabled": "Answers equal requests from the cache, at no cost.",
        "cache_duration_seconds": "Lifetime of a cached answer, 10 to 31,536,000 seconds.",
        "hedging_enabled": "Calls a second provider if a stream's first token is slow; both are paid.",
        "status": "Requests against an archived project are refused. Delete with the button above.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the organization of an existing project read-only."""
        return (*self.readonly_fields, "organization") if obj else (*self.readonly_fields, "status")

    def create_row(self, row: Project, fields: Mapping[str, Any]) -> Project:
        """Create a project within the plan's limit."""
        given = dict(fields)
        return actions.create_project(organization=given.pop("organization"), fields=given)

    def change_row(self, row: Project, changes: Mapping[str, Any]) -> None:
        """Set columns of a project."""
        actions.change_project(project=row, changes=changes)


@admin.register(AuditEntry)
class AuditEntryAdmin(LongTableAdmin):
    """The audit log."""

    list_display = ("created_at", "action", "resource_id", "actor_type", "actor_email", "ip_address", "organization_id")
    list_filter = ("actor_type", "resource_type")
    owners = ("organization_id", "actor_id")
    help_texts = AUDIT_ENTRY


@admin.register(IdempotentAnswer)
class IdempotentAnswerAdmin(LongTableAdmin):
    """Stored answers of idempotent requests, without their content. They expire after a day."""

    list_display = ("created_at", "route", "status", "user_id")
    fields = ("id", "user_id", "route", "status", "created_at")
    owners = ("user_id",)
    help_texts = {
        "route": "Method and path of the request.",
        "status": "The HTTP status of the answer.",
    }
