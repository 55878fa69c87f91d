"""The tabs of an organization's page that this app brings: members, projects, audit log."""

from __future__ import annotations

from typing import Any

from apps.organizations.models import AuditEntry, Membership, Organization, Project
from apps.organizations.operators.audited_admin import cells_of
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


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
