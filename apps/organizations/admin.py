"""Users, their factors and sessions, and teams in the admin, where operators sign in. `organization_admin.py` has the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html_join
from knox.models import AuthToken
from unfold.widgets import UnfoldAdminSelectWidget

from apps.kernel.errors import ApiError, RateLimited
from apps.kernel.pages.admin import KeptAdmin, ReadAdmin, RecordAdmin, RowAdmin
from apps.kernel.rest.origin import address_of
from apps.organizations import invitations
from apps.organizations.accounts import step_up
from apps.organizations.accounts.account_emails import delivery
from apps.organizations.accounts.sign_in_method_forms import MAX_ANSWER, read_answer, sign_in_methods
from apps.organizations.actions import create_organization, sign_out
from apps.organizations.credentials import attempt_rate_limiter, passkeys, two_factor
from apps.organizations.credentials.credential_changes import access_switched_off, password_changed
from apps.organizations.credentials.credential_state import forget_begun
from apps.organizations.credentials.email_tokens import sign_up_link
from apps.organizations.credentials.management_keys import revoke_management_key
from apps.organizations.journal import audit
from apps.organizations.models import (
    AuditEntry,
    Invitation,
    ManagementKey,
    Membership,
    OperatorGroup,
    Passkey,
    ServiceAccount,
    Team,
    TeamMember,
    TwoFactor,
    User,
)
from apps.organizations.operators import organization_admin
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button
from apps.organizations.operators.organization_tabs import OrganizationLink, link_to

if TYPE_CHECKING:
    from django.contrib.admin.forms import AdminAuthenticationForm as SignInForm
    from django.contrib.auth.forms import AdminPasswordChangeForm, UserChangeForm
    from django.contrib.auth.forms import AdminUserCreationForm as CreationForm
    from django.forms import TextInput as AdminTextInputWidget

    SetPasswordForm: TypeAlias = AdminPasswordChangeForm[User]
    ChangeForm: TypeAlias = UserChangeForm[User]
    _UserPage = UserAdmin[User]
else:
    from unfold.forms import AdminPasswordChangeForm as SetPasswordForm
    from unfold.forms import AuthenticationForm as SignInForm
    from unfold.forms import UserChangeForm as ChangeForm
    from unfold.forms import UserCreationForm as CreationForm
    from unfold.widgets import UnfoldAdminTextInputWidget as AdminTextInputWidget

    _UserPage = UserAdmin

# A module that registers admin pages on import.
__all__ = ["organization_admin"]

admin.site.unregister((AuthToken, Group))


class OperatorSignInForm(SignInForm):
    """Sign-in to the admin, rate-limited like any other: by passkey, or by password and, if enabled, a second-factor
    code.
    """

    code = forms.CharField(
        required=False,
        max_length=32,
        label="Code, if you have an authenticator app",
        widget=AdminTextInputWidget(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )

    # The authenticator's response as JSON, filled in by `passkeys.js`.
    passkey = forms.CharField(required=False, max_length=MAX_ANSWER, widget=forms.HiddenInput())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A passkey needs neither.
        self.fields["username"].required = self.fields["password"].required = False

    @property
    def passkeys_on(self) -> bool:
        """Whether the page offers passkeys."""
        return passkeys.are_on()

    def clean(self) -> dict[str, Any]:
        """Count the attempt, then check the passkey, or password and code. Raises ValidationError."""
        if self.cleaned_data.get("passkey"):
            return self._clean_passkey(self.cleaned_data["passkey"])
        for name in ("username", "password"):
            if not self.cleaned_data.get(name) and name not in self.errors:
                self.add_error(name, "This field is required.")
        if self.errors:
            return self.cleaned_data
        email = User.normalize_username(self.cleaned_data.get("username", ""))
        address = address_of(self.request) if self.request else ""
        try:
            attempt_rate_limiter.count_sign_in(email, address)
        except RateLimited as error:
            raise forms.ValidationError(error.message, code="throttled") from error
        cleaned: dict[str, Any] = super().clean()
        try:
            step_up.require_second_factor(
                user=self.get_user(), code=self.cleaned_data.get("code"), passkey=None, address=address
            )
        except ApiError as error:
            raise forms.ValidationError(error.message, code=error.code) from error
        attempt_rate_limiter.remember_address(email, address)
        return cleaned

    def _clean_passkey(self, text: str) -> dict[str, Any]:
        """Check the passkey alone and ignore other fields."""
        try:
            answer = read_answer(text)
            user = step_up.sign_in_with_passkey(answer, address=address_of(self.request) if self.request else "")
        except ApiError as error:
            raise forms.ValidationError(error.message, code=error.code) from error
        self.confirm_login_allowed(user)
        self.user_cache = user
        return self.cleaned_data


class OperatorSetsPasswordForm(SetPasswordForm):
    """Sets another password for a user; ends their sessions."""

    @transaction.atomic
    def save(self, commit: bool = True) -> User:
        """Save the password."""
        user: User = super().save(commit)
        password_changed(user)
        return user


admin.site.login_form = OperatorSignInForm
admin.site.login_template = "admin/sign_in.html"


class SignOutQuestion(ButtonQuestion):
    """Asks whether to sign a user out."""

    text = (
        "Ends every session of {row} at once: over the API, in the console and in this admin. The account and its "
        "API keys stay; the user can sign in again."
    )


@button("Sign out", permission="knox.delete_authtoken", icon="logout", question=SignOutQuestion)
def end_sessions_of(page: Any, user: User, fields: Mapping[str, Any]) -> Done:
    """End every session of a user."""
    count = sign_out(user=user)
    return Done(f"{user} was signed out: {count} session{'' if count == 1 else 's'} ended")


class NewOrganizationQuestion(ButtonQuestion):
    """Asks for the name of a new organization for a user."""

    text = "{row} becomes its owner. It starts on the free plan, with a default project and no credits."
    name = forms.CharField(max_length=255, widget=AdminTextInputWidget())


@button("Create organization", permission="organizations.add_organization", question=NewOrganizationQuestion)
def create_organization_for(page: Any, user: User, fields: Mapping[str, Any]) -> Done:
    """Create an organization for a user, regardless of their limit."""
    made = create_organization(owner=user, name=fields["name"])
    return Done(f"{made.name} was created; {user} owns it")


class InviteOperatorQuestion(ButtonQuestion):
    """Asks whom to invite, and into which group."""

    text = (
        "The person receives an e-mail with a link that works once, for 7 days. It creates an account, or adds the "
        "group to an account with this address. Groups under System list what each may do."
    )
    email = forms.EmailField(max_length=254, label="E-mail address", widget=AdminTextInputWidget())
    group = forms.ChoiceField(choices=OperatorGroup.choices, widget=UnfoldAdminSelectWidget)


@button("Invite operator", permission="organizations.add_user", icon="person_add", question=InviteOperatorQuestion)
def invite_operator(page: Any, row: None, fields: Mapping[str, Any]) -> Done:
    """Invite a person to the operators. Only superusers have the permission."""
    invitation = invitations.invite_operator(
        email=fields["email"], group=OperatorGroup(fields["group"]), by=audit.acting_user()
    )
    if delivery() == "sent":
        return Done(f"An invitation into the group {invitation.operator_group} is on its way to {invitation.email}")
    return Done(f"E-mail is not set up: pass this link on to {invitation.email}", secret=sign_up_link(invitation))


@admin.register(User)
class PersonAdmin(ButtonsAdmin, _UserPage, KeptAdmin):
    """Users; `is_staff` makes an operator."""

    actions_detail = ("create_organization_for", "end_sessions_of")
    actions_list = ("invite_operator",)
    invite_operator = invite_operator
    create_organization_for = create_organization_for
    end_sessions_of = end_sessions_of
    help_texts = {
        "organizations": "Where the person is a member, and as what.",
        "last_login": "When the person last entered this admin (UTC); empty: never.",
        "name": "As the person gave it.",
        "is_active": "Off: the user cannot sign in; API keys that they created still work.",
        "is_staff": "Makes an operator, who may enter this admin.",
        "organization_limit": "How many organizations the person may own; empty: ORGANIZATIONS_PER_USER.",
        "language": "The language of pages and e-mails, as the person chose it; empty: the browser's.",
        "email_verified_at": "When the address was confirmed; empty until then.",
    }
    form, add_form, change_password_form = ChangeForm, CreationForm, OperatorSetsPasswordForm
    list_display = ("email", "name", "is_active", "is_staff", "created_at")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("email", "name")
    ordering = ("-id",)
    readonly_fields = ("id", "organizations", "language", "last_login", "created_at", "updated_at")
    fieldsets = (
        (None, {"fields": ("id", "email", "name", "organizations", "organization_limit", "language", "password")}),
        ("Permissions", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Times", {"fields": ("email_verified_at", "last_login", "created_at", "updated_at")}),
    )
    add_fieldsets = (
        (None, {"classes": ("wide",), "fields": ("email", "name", "usable_password", "password1", "password2")}),
    )

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form for a new or an existing user."""
        return super().get_form(request, obj, change=change, **kwargs)

    @transaction.atomic
    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save the user; a new one counts as confirmed, a deactivated one is signed out everywhere."""
        if not change:
            # The operator who creates an account vouches for its address.
            obj.email_verified_at = timezone.now()
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data and not obj.is_active:
            access_switched_off(obj)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Set another user's password; operators change their own with re-authentication."""
        if id == str(request.user.pk):
            messages.error(request, "To change your own password, confirm your identity here first.")
            return HttpResponseRedirect(reverse("console:account"))
        return super().user_change_password(request, id, form_url)

    @admin.display(description="Organizations")
    def organizations(self, user: User) -> str:
        """Return the user's organizations with their role in each."""
        places = Membership.objects.filter(user=user).select_related("organization").order_by("id")
        return format_html_join(", ", "{} ({})", ((link_to(one.organization), one.role) for one in places)) or "none"


@admin.register(Invitation)
class InvitationAdmin(ReadAdmin):
    """Invitations, created by `manage.py invite`, members, and operators. Deleting one withdraws it."""

    list_display = ("email", "role", "organization", "operator_group", "expires_at", "sent_at", "accepted_at")
    list_select_related = ("organization",)
    search_fields = ("email", "organization__name")
    ordering = ("-id",)
    fields = (
        "email",
        "role",
        "organization",
        "operator_group",
        "invited_by",
        "expires_at",
        "sent_at",
        "accepted_at",
        "created_at",
    )
    help_texts = {
        "role": "The role of the invited person in the organization.",
        "organization": "Which one; empty: the person signs up with an organization of their own.",
        "operator_group": "The group of operators that the person joins; empty: none.",
        "invited_by": "Empty: invited from the command line.",
        "expires_at": "When it expires (UTC).",
        "sent_at": "When the e-mail was sent (UTC); empty: not yet.",
        "accepted_at": "When it was accepted (UTC); empty: not yet.",
    }


class RevokeManagementKeyQuestion(ButtonQuestion):
    """Asks whether to revoke a management key."""

    text = "{row} stops working at once. The API keys and settings that it made stay."


@button(
    "Revoke",
    permission="organizations.change_managementkey",
    icon="block",
    danger=True,
    question=RevokeManagementKeyQuestion,
    offered=lambda key: key.revoked_at is None,
)
def revoke_key(page: Any, key: ManagementKey, fields: Mapping[str, Any]) -> Done:
    """Revoke a management key."""
    revoke_management_key(key=key)
    return Done(f"{key} was revoked")


@admin.register(ManagementKey)
class ManagementKeyAdmin(ButtonsAdmin, RecordAdmin):
    """Management keys, without their tokens."""

    actions_detail = ("revoke_key",)
    revoke_key = revoke_key
    list_display = ("name", "organization", "created_by", "expires_at", "last_used_at", "revoked_at")
    list_select_related = ("organization", "created_by")
    search_fields = ("name", "organization__name", "created_by__email")
    ordering = ("-id",)
    fields = (
        *("id", "name", "organization", "scopes", "last_four", "account", "created_by"),
        *("expires_at", "last_used_at", "revoked_at", "created_at"),
    )
    help_texts = {
        "scopes": "The kinds of actions that it allows; docs/management-keys.md lists the endpoints of each.",
        "last_four": "The last characters of its token, as the console shows them.",
        "account": "The user that the key acts as, which cannot sign in.",
        "created_by": "The member who made or last rotated it: it works while they are an admin or owner.",
        "expires_at": "When it expires (UTC); empty: never.",
        "last_used_at": "When it was last used, to five minutes (UTC); empty: never.",
        "revoked_at": "Since when it is revoked (UTC); empty: it is not.",
    }


class FactorAdmin(ReadAdmin):
    """Second factors of users; `thing` is the resource type in the audit log.

    Operators remove their own on the page of their sign-in methods, after re-authentication.
    """

    thing: ClassVar[str]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow deleting other users' factors only."""
        return (obj is None or obj.user_id != request.user.pk) and super().has_delete_permission(request, obj)

    @transaction.atomic
    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the factor and record it in the audit log of the user's organizations."""
        operator, user = request.user if isinstance(request.user, User) else None, obj.user
        with audit.acting(operator, AuditEntry.ActorType.ADMIN):
            audit.record_of_account(f"{self.thing}.delete", user=user, resource=obj)
        super().delete_model(request, obj)
        forget_begun(user)
        two_factor.forget_if_off(user)


@admin.register(Passkey)
class PasskeyAdmin(FactorAdmin):
    """Passkeys of users. Deleting the last one of a user without an authenticator app leaves only the password."""

    thing = "passkey"
    list_display = ("user", "name", "backed_up", "last_used_at", "created_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("-id",)
    fields = ("id", "user", "name", "transports", "backed_up", "last_used_at", "created_at")
    help_texts = {
        "transports": "How the authenticator is reached, such as internal, usb, nfc.",
        "backed_up": "Whether copies of it are kept elsewhere, as password managers do.",
        "last_used_at": "When it was last used to sign in (UTC); empty: never.",
    }


@admin.register(TwoFactor)
class TwoFactorAdmin(FactorAdmin):
    """Authenticator apps and recovery codes. Without passkeys, deleting one leaves only the password."""

    thing = "two_factor"

    list_display = ("user", "confirmed_at", "created_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("-created_at",)
    fields = ("user", "confirmed_at", "created_at")
    help_texts = {
        "confirmed_at": "Since when codes are asked for (UTC); empty: not confirmed yet.",
    }

    def get_urls(self) -> list[URLPattern]:
        """Add the page where operators manage their own sign-in methods."""
        page = self.admin_site.admin_view(lambda request: sign_in_methods(request, self.admin_site))
        return [path("mine/", page, name="organizations_twofactor_mine"), *super().get_urls()]


@admin.register(Group)
class OperatorGroupAdmin(GroupAdmin, RowAdmin):
    """Groups of permissions for operators who are not superusers."""


@admin.register(LogEntry)
class OperatorActionAdmin(RecordAdmin):
    """Operators' actions on all rows. They stay when an organization is erased together with its audit log."""

    list_display = ("action_time", "user", "action_flag", "content_type", "object_repr", "message")
    list_filter = ("action_flag", "content_type")
    list_select_related = ("user", "content_type")
    search_fields = ("user__email", "object_repr", "object_id")
    search_help_text = "Part of the operator's e-mail address, or of the row's name or id"
    ordering = ("-id",)
    sortable_by = ()
    fields = ("action_time", "user", "action_flag", "content_type", "object_id", "object_repr", "message")
    help_texts = {
        "action_time": "When it was done (UTC).",
        "user": "The operator.",
        "content_type": "The table.",
        "object_id": "The row's id.",
        "object_repr": "The row's name at that time.",
        "action_flag": "Whether the row was added, changed or deleted; a button counts as a change.",
        "message": "The changed fields with their values before and after, or the button that was pressed.",
    }

    @admin.display(description="Changes")
    def message(self, entry: LogEntry) -> str:
        """Return the changed fields with their values, or the button that was pressed."""
        return entry.get_change_message()


@admin.register(AuthToken)
class SessionAdmin(ReadAdmin):
    """Sessions, without their tokens. Deleting one ends it."""

    list_display = ("user", "created", "expiry")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("-created",)
    fields = ("user", "created", "expiry")
    help_texts = {
        "expiry": "When it ends (UTC); empty: never.",
    }


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

    list_display = ("team", "member", "is_lead", "created_at")
    list_filter = ("is_lead",)
    list_select_related = ("team", "membership__user")
    search_fields = ("team__name", "membership__user__email")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "team": "The team.",
        "membership": "The member of the organization.",
        "is_lead": "Manages the keys and limits of the team.",
    }

    @admin.display(description="member")
    def member(self, row: TeamMember) -> str:
        """Return the member's address."""
        return row.membership.user.email


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
