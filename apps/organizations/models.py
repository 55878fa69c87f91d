"""Users, organizations, memberships, projects: columns and constraints.

Must never know HTTP, prices or what a request to a model is.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import PermissionsMixin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField
from apps.organizations.passkey_model import Passkey as Passkey
from apps.organizations.policy_source import PolicySource
from apps.organizations.user_manager import UserManager


class User(AbstractBaseUser, PermissionsMixin):
    """A person who signs in; operators (`is_staff`) may enter the admin."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=255, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    email_verified_at = models.DateTimeField(null=True, blank=True)
    # Since when a message that confirms the address is yet to be sent.
    verification_wanted_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # Since when a message is that tells them that someone tried to sign up with their address.
    sign_up_tried_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # Since when a message that lets them choose another password is.
    password_reset_wanted_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # The address that they want instead, until it is confirmed, and since when a message to it is yet to be sent.
    wanted_email = models.EmailField(max_length=254, blank=True, default="", db_default="", editable=False)
    email_change_wanted_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # How many organizations the user may own; None: ORGANIZATIONS_PER_USER.
    organization_limit = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    USERNAME_FIELD = "email"
    objects: ClassVar[UserManager] = UserManager()

    def __str__(self) -> str:
        return self.email

    @classmethod
    def normalize_username(cls, username: Any) -> Any:
        """Return an address as it is kept: one person, one spelling."""
        return super().normalize_username(username.strip()).lower()


# The `status` of a row that was deleted and is kept, wherever rows have one.
DELETED = "deleted"


class Plan(models.TextChoices):
    """What an organization pays for; `plans.py` says what each allows."""

    FREE = "free"
    PRO = "pro"
    ENTERPRISE = "enterprise"


class RetentionLevel(models.TextChoices):
    """What a log may keep: nothing of the data, its metadata, or all of it."""

    NONE = "none"
    METADATA = "metadata"
    RETAIN = "retain"


class OutagePolicy(models.TextChoices):
    """What becomes of requests while the store that counts credits and limits gives no answer.

    `open`: they are served within a small allowance, never beyond what is known to be left. `closed`: they are refused.
    """

    OPEN = "open"
    CLOSED = "closed"


class Organization(PolicySource):
    """The tenant: members, credits, plan, billing settings. `credits` is the sum of its ledger entries."""

    organization_path = "id"
    ledger_columns = frozenset({"credits", "credits_version", "referral_earnings"})

    class Status(models.TextChoices):
        """`deleted` is soft: the row stays, nobody may use it."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        DELETED = "deleted"

    class DevPlan(models.TextChoices):
        """The personal development subscription."""

        NONE = "none"
        LITE = "lite"
        PRO = "pro"
        MAX = "max"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=255)
    billing_email = models.EmailField(max_length=254, null=True, blank=True)
    billing_company = models.CharField(max_length=255, null=True, blank=True)
    billing_address = models.TextField(null=True, blank=True)
    billing_tax_id = models.CharField(max_length=100, null=True, blank=True)
    billing_notes = models.TextField(null=True, blank=True)
    credits = MoneyField(default=0)
    # Counts the ledger's changes of `credits`, so that a copy elsewhere is never replaced by an older one.
    credits_version = models.BigIntegerField(default=0)
    plan = models.CharField(max_length=16, choices=Plan.choices, default=Plan.FREE)
    # Requests a minute where it is not the plan's number; 0 is no limit.
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    plan_expires_at = models.DateTimeField(null=True, blank=True)
    retention_level = models.CharField(max_length=16, choices=RetentionLevel.choices, default=RetentionLevel.NONE)
    outage_policy = models.CharField(max_length=16, choices=OutagePolicy.choices, default=OutagePolicy.OPEN)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    auto_top_up_enabled = models.BooleanField(default=False)
    auto_top_up_threshold = MoneyField(default=10)
    auto_top_up_amount = MoneyField(default=10)
    referral_earnings = MoneyField(default=0)
    referred_by = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="referred")
    is_personal = models.BooleanField(default=False)
    dev_plan = models.CharField(max_length=16, choices=DevPlan.choices, default=DevPlan.NONE)
    dev_plan_credits_used = MoneyField(default=0)
    dev_plan_credits_limit = MoneyField(default=0)
    dev_plan_billing_cycle_start = models.DateTimeField(null=True, blank=True)
    dev_plan_expires_at = models.DateTimeField(null=True, blank=True)
    dev_plan_allow_all_models = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["status"])]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a member may do; see `access.py`."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"


class Membership(models.Model):
    """A user's place in an organization."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role} of {self.organization_id}"


class Mode(models.TextChoices):
    """Whose provider credentials a project's requests use."""

    API_KEYS = "api-keys"
    CREDITS = "credits"
    HYBRID = "hybrid"


class Project(PolicySource):
    """What API keys belong to; decides credentials' mode and caching."""

    organization_path = "organization_id"

    class Status(models.TextChoices):
        """Requests against anything but `active` are answered 410."""

        ACTIVE = "active"
        ARCHIVED = "archived"
        DELETED = "deleted"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="projects")
    name = models.CharField(max_length=255)
    caching_enabled = models.BooleanField(default=False)
    cache_duration_seconds = models.PositiveIntegerField(
        default=60, validators=[MinValueValidator(10), MaxValueValidator(31_536_000)]
    )
    # Streams whose provider is late are asked of a second one.
    hedging_enabled = models.BooleanField(default=False)
    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.HYBRID)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["organization", "status"])]

    def __str__(self) -> str:
        return self.name


class Invitation(models.Model):
    """Somebody's word that an address may sign up, and become a member of an organization; good once, for a while."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, null=True, blank=True, related_name="invitations")
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.DEVELOPER)
    invited_by = models.ForeignKey(User, models.SET_NULL, null=True, blank=True, related_name="+")
    expires_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, editable=False)
    accepted_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["email"])]

    def __str__(self) -> str:
        return f"{self.role} {self.email}"


class TwoFactor(models.Model):
    """What a user's authenticator app shares with us, asked for once it is confirmed; and digests of recovery codes.

    Somebody with passkeys and no app has the recovery codes alone: `sealed_secret` is empty then.
    """

    user = models.OneToOneField(User, models.CASCADE, primary_key=True, related_name="two_factor")
    sealed_secret = models.BinaryField(editable=False, default=b"")
    # The time step of the last code that was taken: it and earlier ones are used up.
    last_step = models.BigIntegerField(default=0)
    recovery_digests = models.JSONField(default=list)
    confirmed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return str(self.user_id)


class AuditEntry(models.Model):
    """What somebody did to something of an organization; never changed, and removed only with the organization.

    Plain ids and words as they were then: whoever and whatever they name may be gone.
    """

    class ActorType(models.TextChoices):
        """Someone signed in to the API, an operator in the admin, or the operator's machine."""

        SESSION = "session"
        ADMIN = "admin"
        SYSTEM = "system"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization_id = models.UUIDField()
    actor_type = models.CharField(max_length=8, choices=ActorType.choices)
    actor_id = models.UUIDField(null=True)
    actor_email = models.CharField(max_length=254, null=True)
    action = models.CharField(max_length=64)
    resource_type = models.CharField(max_length=32)
    resource_id = models.CharField(max_length=64)
    details = models.JSONField(default=dict)
    ip_address = models.CharField(max_length=64, null=True)
    user_agent = models.CharField(max_length=255, null=True)
    request_id = models.CharField(max_length=128, null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["organization_id", "-id"])]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.action} {self.resource_id}"


class IdempotentAnswer(models.Model):
    """What a request with an `Idempotency-Key` was answered: kept for a day, sealed, since it may hold a secret."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user_id = models.UUIDField()
    route = models.CharField(max_length=200)
    key = models.CharField(max_length=255)
    fingerprint = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    sealed_body = models.BinaryField()
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user_id", "route", "key"], name="idempotent_answer_once")]

    def __str__(self) -> str:
        return f"{self.route} {self.status}"
