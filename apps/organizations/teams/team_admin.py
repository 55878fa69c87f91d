"""Teams, their members and service accounts in the admin: read-only; organizations manage their own."""

from __future__ import annotations

from django.contrib import admin

from apps.kernel.pages.admin import RecordAdmin
from apps.organizations.models import ServiceAccount, Team, TeamMember
from apps.organizations.operators.organization_tabs import OrganizationLink


@admin.register(Team)
class TeamAdmin(OrganizationLink, RecordAdmin):
    """Teams of organizations."""

    list_display = ("name", "organization_link", "parent", "created_at")
    list_select_related = ("organization", "parent")
    search_fields = ("id__exact", "name", "organization__name")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "parent": "The team that it is part of, whose limits hold for its requests, too; empty: none.",
    }


@admin.register(TeamMember)
class TeamMemberAdmin(RecordAdmin):
    """Members of teams."""

    list_display = ("team", "membership", "is_lead", "created_at")
    list_filter = ("is_lead",)
    list_select_related = ("team", "membership")
    search_fields = ("team__name", "membership__user__email")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "team": "The team.",
        "membership": "The member of the organization.",
        "is_lead": "Manages the keys and limits of the team.",
    }


@admin.register(ServiceAccount)
class ServiceAccountAdmin(OrganizationLink, RecordAdmin):
    """Service accounts, which own API keys for programs."""

    list_display = ("name", "organization_link", "team", "created_at", "deleted_at")
    list_select_related = ("organization", "team")
    search_fields = ("id__exact", "name", "organization__name")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "account": "The user that its API keys belong to, which cannot sign in.",
        "team": "The team whose leads create keys for it; empty: admins alone do.",
        "deleted_at": "Since when it is deleted (UTC); empty: it is not.",
    }
