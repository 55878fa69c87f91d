"""Buttons of organizations and projects in the admin: change the plan, suspend, reactivate, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.kernel.pages.admin import usd
from apps.organizations import actions, deletion
from apps.organizations.models import MAX_REASON, Organization, Plan, Project
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button, is_living

_Status = Organization.Status


class PlanQuestion(ButtonQuestion):
    """Which plan."""

    plan = forms.ChoiceField(choices=Plan.choices, widget=UnfoldAdminSelectWidget)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["plan"].initial = self.row.plan

    @property
    def lines(self) -> list[str]:
        """Paragraphs that explain the change."""
        return [
            f"The plan is {self.row.plan} now. The new one has no end, and nothing is charged for it. Limits of "
            "requests, keys and projects change at once. Keys and projects beyond a smaller plan's limits stay, but no "
            "more can be added; guardrails and provider keys stop if the plan has none."
        ]


class SuspendQuestion(ButtonQuestion):
    """Asks whether to suspend an organization."""

    text = "All requests with its API keys are refused at once, until it is reactivated. Nothing is removed."


class ReactivateQuestion(ButtonQuestion):
    """Asks whether to reactivate an organization."""

    text = "Its API keys work again at once."


class TypedNameQuestion(ButtonQuestion):
    """Asks for the name of a row before it is deleted permanently."""

    name = forms.CharField(widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].help_text = "Type the name shown above to confirm."

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError for another one."""
        typed: str = self.cleaned_data["name"]
        if typed != self.row.name.strip():
            raise forms.ValidationError(f"The name does not match: it is {self.row.name}")
        return typed


class DeleteOrganizationQuestion(TypedNameQuestion):
    """Asks why an organization is to be deleted, and for its name."""

    reason = forms.CharField(
        max_length=MAX_REASON,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Kept in the journal of deletions, and sent to the owners.",
    )

    @property
    def lines(self) -> list[str]:
        """Paragraphs that list the consequences."""
        projects = self.row.projects.exclude(status=Project.Status.DELETED).count()
        members = self.row.memberships.count()
        return [
            f"Every API key and management key is refused at once, automatic top-up is switched off, and a "
            f"subscription is cancelled. The owners receive an e-mail, and can cancel the deletion for "
            f"{deletion.WAITING_PERIOD.days} days, as you can.",
            f"Then {projects} project{'' if projects == 1 else 's'} and the balance of {usd(self.row.credits)} USD are "
            f"deleted, {members} member{'' if members == 1 else 's'} lose access, and names, members, the audit log "
            "and stored content are erased. Records that the ledger needs stay. This cannot be undone.",
        ]


class CancelDeletionQuestion(ButtonQuestion):
    """Asks whether to cancel a deletion."""

    text = "Its keys work again at once. Automatic top-up stays off, and a subscription stays cancelled."


class DeleteProjectQuestion(TypedNameQuestion):
    """Asks whether to delete a project."""

    text = "This cannot be undone. Every API key of the project stops at once; its log stays."


@button(
    "Change plan",
    permission="organizations.change_organization",
    icon="layers",
    question=PlanQuestion,
    offered=is_living,
)
def change_plan(page: Any, organization: Organization, fields: Mapping[str, Any]) -> Done:
    """Move an organization to another plan."""
    actions.set_plan(organization=organization, plan=Plan(fields["plan"]))
    return Done(f"{organization} is on the plan {organization.plan}")


@button(
    "Suspend",
    permission="organizations.change_organization",
    icon="pause_circle",
    question=SuspendQuestion,
    offered=lambda row: row.status == _Status.ACTIVE,
)
def suspend(page: Any, organization: Organization, fields: Mapping[str, Any]) -> Done:
    """Refuse an organization's requests until it is reactivated."""
    actions.change_organization(organization=organization, changes={"status": _Status.INACTIVE})
    return Done(f"{organization} is suspended")


@button(
    "Reactivate",
    permission="organizations.change_organization",
    icon="play_circle",
    question=ReactivateQuestion,
    offered=lambda row: row.status == _Status.INACTIVE,
)
def reactivate(page: Any, organization: Organization, fields: Mapping[str, Any]) -> Done:
    """Serve a suspended organization again."""
    actions.change_organization(organization=organization, changes={"status": _Status.ACTIVE})
    return Done(f"{organization} is active again")


@button(
    "Delete",
    permission="organizations.delete_organization",
    icon="delete",
    danger=True,
    question=DeleteOrganizationQuestion,
    offered=lambda row: is_living(row) and row.status != _Status.DELETING,
)
def delete_for_good(page: Any, organization: Organization, fields: Mapping[str, Any]) -> Done:
    """Request the deletion of an organization and its data."""
    row = deletion.request_deletion(organization=organization, reason=fields["reason"])
    return Done(f"{organization} will be deleted on {row.deletion_due_at:%Y-%m-%d %H:%M} UTC")


@button(
    "Cancel the deletion",
    permission="organizations.delete_organization",
    icon="undo",
    question=CancelDeletionQuestion,
    offered=lambda row: row.status == _Status.DELETING,
)
def cancel_deletion(page: Any, organization: Organization, fields: Mapping[str, Any]) -> Done:
    """Cancel the requested deletion of an organization."""
    deletion.cancel_deletion(organization=organization)
    return Done(f"{organization} will not be deleted")


@button(
    "Delete",
    permission="organizations.delete_project",
    icon="delete",
    danger=True,
    question=DeleteProjectQuestion,
    offered=is_living,
)
def delete_project_for_good(page: Any, project: Project, fields: Mapping[str, Any]) -> Done:
    """Delete a project, which revokes its keys."""
    actions.delete_project(project=project)
    return Done(f"{project} was deleted")
