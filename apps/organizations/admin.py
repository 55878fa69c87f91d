"""Users, organizations, memberships, projects and sessions in the admin; operators sign in here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from knox.models import AuthToken

from apps.kernel.admin import KeptAdmin, LongTableAdmin, ReadAdmin, RowAdmin
from apps.kernel.errors import ApiError, RateLimited
from apps.kernel.rest.address import address_of
from apps.organizations import attempt_rate_limiter, two_factor
from apps.organizations.audited_admin import AuditedAdmin
from apps.organizations.models import (
    AuditEntry,
    IdempotentAnswer,
    Invitation,
    Membership,
    Organization,
    Project,
    TwoFactor,
    User,
)
from apps.organizations.sessions import end_sessions

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

admin.site.unregister((AuthToken, Group))


class OperatorSignInForm(SignInForm):
    """Signing in to the admin, no more often than signing in elsewhere, with a code where one is asked for."""

    code = forms.CharField(
        required=False,
        max_length=32,
        label="Code, if you have an authenticator app",
        widget=AdminTextInputWidget(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )

    def clean(self) -> dict[str, Any]:
        """Count the try, then look at the password. Raises ValidationError."""
        email = User.normalize_username(self.cleaned_data.get("username", ""))
        address = address_of(self.request) if self.request else ""
        try:
            attempt_rate_limiter.count_sign_in(email, address)
        except RateLimited as error:
            raise forms.ValidationError(error.message, code="throttled") from error
        cleaned: dict[str, Any] = super().clean()
        try:
            two_factor.require(user=self.get_user(), code=self.cleaned_data.get("code"))
        except ApiError as error:
            raise forms.ValidationError(error.message, code=error.code) from error
        attempt_rate_limiter.remember_address(email, address)
        return cleaned


class OperatorSetsPasswordForm(SetPasswordForm):
    """Another password for a user; sessions under the old one end."""

    def save(self, commit: bool = True) -> User:
        """Save the password."""
        user: User = super().save(commit)
        end_sessions(user)
        return user


admin.site.login_form = OperatorSignInForm
admin.site.login_template = "admin/sign_in.html"


@admin.register(User)
class PersonAdmin(_UserPage, KeptAdmin):
    """People; `is_staff` makes an operator."""

    form, add_form, change_password_form = ChangeForm, CreationForm, OperatorSetsPasswordForm
    list_display = ("email", "name", "is_active", "is_staff", "created_at")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("email", "name")
    ordering = ("-id",)
    readonly_fields = ("id", "last_login", "created_at", "updated_at")
    fieldsets = (
        (None, {"fields": ("id", "email", "name", "password")}),
        ("Permissions", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Times", {"fields": ("email_verified_at", "last_login", "created_at", "updated_at")}),
    )
    add_fieldsets = (
        (None, {"classes": ("wide",), "fields": ("email", "name", "usable_password", "password1", "password2")}),
    )


@admin.register(Invitation)
class InvitationAdmin(ReadAdmin):
    """Who was invited to what; `manage.py invite` invites. Deleting one withdraws it."""

    list_display = ("email", "role", "organization", "expires_at", "sent_at", "accepted_at")
    list_select_related = ("organization",)
    search_fields = ("email", "organization__name")
    ordering = ("-id",)
    fields = ("email", "role", "organization", "invited_by", "expires_at", "sent_at", "accepted_at", "created_at")


@admin.register(TwoFactor)
class TwoFactorAdmin(ReadAdmin):
    """Who has an authenticator app. Deleting one lets its user in with the password alone."""

    list_display = ("user", "confirmed_at", "created_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("-created_at",)
    fields = ("user", "confirmed_at", "created_at")


@admin.register(Group)
class OperatorGroupAdmin(GroupAdmin, RowAdmin):
    """What operators who are no superusers may do."""


@admin.register(AuthToken)
class SessionAdmin(ReadAdmin):
    """Sessions, without what could be presented as one. Deleting one ends it."""

    list_display = ("user", "created", "expiry")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("-created",)
    fields = ("user", "created", "expiry")


@admin.register(Organization)
class OrganizationAdmin(KeptAdmin, AuditedAdmin):
    """Tenants. Credits move through the ledger alone."""

    thing = "organization"
    list_display = ("name", "plan", "status", "credits", "retention_level", "created_at")
    list_filter = ("plan", "status", "retention_level", "outage_policy", "dev_plan")
    search_fields = ("id__exact", "name", "billing_email")
    ordering = ("-id",)
    raw_id_fields = ("referred_by",)
    readonly_fields = (
        "id",
        "credits",
        "credits_version",
        "referral_earnings",
        "dev_plan_credits_used",
        "created_at",
        "updated_at",
    )


@admin.register(Membership)
class MembershipAdmin(AuditedAdmin):
    """Who is what in which organization."""

    thing = "member"
    list_display = ("user", "role", "organization", "created_at")
    list_filter = ("role",)
    list_select_related = ("user", "organization")
    search_fields = ("user__email", "organization__name")
    autocomplete_fields = ("user", "organization")
    ordering = ("-id",)


@admin.register(Project)
class ProjectAdmin(KeptAdmin, AuditedAdmin):
    """What API keys belong to."""

    thing = "project"
    list_display = ("name", "organization", "mode", "status", "caching_enabled", "created_at")
    list_filter = ("mode", "status", "caching_enabled")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)
    readonly_fields = ("id", "created_at", "updated_at")


@admin.register(AuditEntry)
class AuditEntryAdmin(LongTableAdmin):
    """Who did what to which thing of an organization."""

    list_display = ("created_at", "action", "resource_id", "actor_type", "actor_email", "ip_address", "organization_id")
    list_filter = ("actor_type", "resource_type")
    owners = ("organization_id", "actor_id")


@admin.register(IdempotentAnswer)
class IdempotentAnswerAdmin(LongTableAdmin):
    """Answers kept for requests that may be repeated, without the answers. They go by themselves after a day."""

    list_display = ("created_at", "route", "status", "user_id")
    fields = ("id", "user_id", "route", "status", "created_at")
    owners = ("user_id",)
