"""Users, organizations, memberships, teams, projects: columns and constraints."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Collate, Upper

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField
from apps.kernel.pages.languages import active_language
from apps.organizations.policy_source import PolicySource


class UserManager(BaseUserManager["User"]):
    """Makes and finds users; e-mail addresses are kept, and looked for, in lower case."""

    def get_by_natural_key(self, username: str | None) -> User:
        """Return the user who signs in with this address. Raises User.DoesNotExist."""
        return self.get(email=self.model.normalize_username(username or ""))

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a user who signs in with `email`."""
        user = self.model(email=self.model.normalize_username(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create an operator: one who may enter the admin and do everything there."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person who signs in; operators (`is_staff`) may enter the admin."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=255, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    email_verified_at = models.DateTimeField(null=True, blank=True)
    # When a confirmation e-mail was requested that is not sent yet.
    verification_wanted_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # When a notice about a sign-up attempt with this address was requested that is not sent yet.
    sign_up_tried_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # When a password reset was requested whose e-mail is not sent yet.
    password_reset_wanted_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # The requested new address until it is confirmed, and when its e-mail was requested.
    wanted_email = models.EmailField(max_length=254, blank=True, default="", db_default="", editable=False)
    email_change_wanted_at = models.DateTimeField(null=True, editable=False, db_index=True)
    # The chosen language of pages and e-mails; empty: the browser's.
    language = models.CharField(max_length=16, blank=True, default="", db_default="")
    # The language of the last page, for e-mails of a user who has chosen none.
    page_language = models.CharField(max_length=16, default=active_language, db_default="", editable=False)
    # How many organizations the user may own; None: ORGANIZATIONS_PER_USER.
    organization_limit = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        # The beginning of a name, in any case.
        indexes = [models.Index(Collate(Upper("name"), "C"), name="user_name_beginning")]

    USERNAME_FIELD = "email"
    objects: ClassVar[UserManager] = UserManager()

    def __str__(self) -> str:
        return self.email

    @property
    def email_languages(self) -> tuple[str, str]:
        """The languages of the user's e-mails, the preferred one first."""
        return self.language, self.page_language

    @classmethod
    def normalize_username(cls, username: Any) -> Any:
        """Normalize an address, so that each person has one spelling."""
        return super().normalize_username(username.strip()).lower()


# The `status` of deleted rows that are kept.
DELETED = "deleted"


class Plan(models.TextChoices):
    """The plan of an organization; `plans.py` has its limits."""

    FREE = "free"
    PRO = "pro"
    ENTERPRISE = "enterprise"


class RetentionLevel(models.TextChoices):
    """Level of detail that the log stores: no content, metadata only, or everything."""

    NONE = "none"
    METADATA = "metadata"
    RETAIN = "retain"


class OutagePolicy(models.TextChoices):
    """Whether requests are served while the store of credits and limits is unavailable.

    `open`: served within a small allowance, never beyond the last known balance. `closed`: refused.
    """

    OPEN = "open"
    CLOSED = "closed"


class Organization(PolicySource):
    """The tenant: members, credits, plan, billing settings. `credits` is the sum of its ledger entries."""

    organization_path = "id"
    ledger_columns = frozenset({"credits", "credits_version", "referral_earnings"})

    class Status(models.TextChoices):
        """`deleting` lasts until `deletion_due_at`, unless it is cancelled; `deleted` is soft: the row stays."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        DELETING = "deleting"
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
    # Counts the ledger's changes of `credits`, so that an older copy never replaces a newer one.
    credits_version = models.BigIntegerField(default=0)
    plan = models.CharField(max_length=16, choices=Plan.choices, default=Plan.FREE)
    # Overrides the plan's requests per minute; 0 is no limit.
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    plan_expires_at = models.DateTimeField(null=True, blank=True)
    retention_level = models.CharField(max_length=16, choices=RetentionLevel.choices, default=RetentionLevel.NONE)
    outage_policy = models.CharField(max_length=16, choices=OutagePolicy.choices, default=OutagePolicy.OPEN)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    # When a requested deletion takes effect (`deletion.py`); None without one.
    deletion_due_at = models.DateTimeField(null=True, blank=True, editable=False)
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
        indexes = [
            models.Index(fields=["status"]),
            # The beginning of a name, in any case.
            models.Index(Collate(Upper("name"), "C"), name="organization_name_beginning"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def refusal(self) -> str | None:
        """The reason why its keys are refused; None while they work."""
        if self.status == self.Status.ACTIVE:
            return None
        if self.status == self.Status.DELETING and self.deletion_due_at is not None:
            return (
                f"This organization will be deleted on {self.deletion_due_at:%Y-%m-%d %H:%M} UTC, and its keys are "
                "refused; an owner can cancel the deletion in the console, under Settings"
            )
        return "This organization is no longer active"


class Role(models.TextChoices):
    """The role of a member; see `access.py`."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"


class Membership(models.Model):
    """A user's membership in an organization."""

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


class Team(PolicySource):
    """Members and projects of an organization with limits of their own. A team may be part of another, one level deep.

    A request counts for the team of its key, for the team of its project, and for the teams that these are part of.
    """

    organization_path = "organization_id"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="teams")
    # The team that it is part of, which is part of none.
    parent = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="parts")
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "name"], name="team_name_unique")]

    def __str__(self) -> str:
        return self.name


class TeamMember(models.Model):
    """A member of an organization in a team; a lead manages its keys and limits."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="members")
    membership = models.ForeignKey(Membership, models.CASCADE, related_name="teams")
    is_lead = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "membership"], name="team_member_once")]

    def __str__(self) -> str:
        return f"{self.membership_id} in {self.team_id}"


class ServiceAccount(models.Model):
    """A member for programs: API keys that belong to it do not end when a person leaves.

    They belong to its `account`, a user who cannot sign in and has no membership.
    """

    # The domain of the accounts' addresses: nothing under `.invalid` receives mail (RFC 2606).
    ACCOUNT_DOMAIN: ClassVar[str] = "service-account.invalid"
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="service_accounts")
    account = models.OneToOneField(User, models.CASCADE, related_name="service_account")
    name = models.CharField(max_length=100)
    # Its leads may create keys for it.
    team = models.ForeignKey(Team, models.SET_NULL, null=True, blank=True, related_name="service_accounts")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"],
                condition=models.Q(deleted_at=None),
                name="service_account_name_unique",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Mode(models.TextChoices):
    """Whose provider credentials a project's requests use."""

    API_KEYS = "api-keys"
    CREDITS = "credits"
    HYBRID = "hybrid"


class Project(PolicySource):
    """A group of API keys with a payment mode and cache settings."""

    organization_path = "organization_id"

    class Status(models.TextChoices):
        """Requests to a project that is not `active` get 410."""

        ACTIVE = "active"
        ARCHIVED = "archived"
        DELETED = "deleted"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="projects")
    # The team that its requests count for.
    team = models.ForeignKey(Team, models.SET_NULL, null=True, blank=True, related_name="projects")
    name = models.CharField(max_length=255)
    caching_enabled = models.BooleanField(default=False)
    cache_duration_seconds = models.PositiveIntegerField(
        default=60, validators=[MinValueValidator(10), MaxValueValidator(31_536_000)]
    )
    # Streams with a slow first token are sent to a second provider as well.
    hedging_enabled = models.BooleanField(default=False)
    mode = models.CharField(max_length=16, choices=Mode.choices, default=Mode.HYBRID)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["organization", "status"])]

    def __str__(self) -> str:
        return self.name


class OperatorGroup(models.TextChoices):
    """The groups of operators that exist from the start; `operator_groups.py` has their permissions."""

    SUPPORT = "support"
    FINANCE = "finance"
    ADMIN = "admin"


class Invitation(models.Model):
    """Lets an address sign up and join an organization; valid once, for a limited time."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, null=True, blank=True, related_name="invitations")
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.DEVELOPER)
    # Makes the person an operator in this group; empty for other invitations.
    operator_group = models.CharField(
        max_length=16, choices=OperatorGroup.choices, blank=True, default="", db_default="", editable=False
    )
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
    """The shared secret of a user's authenticator app, in use once confirmed; and digests of recovery codes.

    A user with passkeys but no app has recovery codes only: `sealed_secret` is empty.
    """

    user = models.OneToOneField(User, models.CASCADE, primary_key=True, related_name="two_factor")
    sealed_secret = models.BinaryField(editable=False, default=b"")
    # The time step of the last accepted code: it and earlier ones are used up.
    last_step = models.BigIntegerField(default=0)
    recovery_digests = models.JSONField(default=list)
    confirmed_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return str(self.user_id)


class ManagementScope(models.TextChoices):
    """An action that a management key may be allowed: each endpoint of the management API states the one it needs."""

    READ = "read"
    KEYS = "keys"
    LIMITS = "limits"
    SETTINGS = "settings"
    MEMBERS = "members"
    BILLING = "billing"
    LOGS = "logs"


class ManagementKey(models.Model):
    """A key for an organization's management API, for programs: it needs no person's session.

    It acts as `account`, a user who cannot sign in and is an admin of this organization only. It works while the member
    who made it (`created_by`) is an admin or owner; `credentials/management_keys.py` finds it.
    """

    # The domain of the accounts' addresses: nothing under `.invalid` receives mail (RFC 2606).
    ACCOUNT_DOMAIN: ClassVar[str] = "management-key.invalid"
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="management_keys")
    account = models.OneToOneField(User, models.CASCADE, related_name="management_key")
    name = models.CharField(max_length=100)
    scopes = models.JSONField(default=list)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    last_four = models.CharField(max_length=4)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class AuditEntry(models.Model):
    """A user's action on a resource of an organization; never changed, and removed only with the organization.

    Ids and names are stored as plain text, because the rows may be gone.
    """

    class ActorType(models.TextChoices):
        """A signed-in user, an operator in the admin, a management key, or the gateway itself."""

        SESSION = "session"
        ADMIN = "admin"
        KEY = "key"
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


# Characters of the reason of a deletion.
MAX_REASON = 500


class OrganizationDeletion(models.Model):
    """A deletion of an organization in the operators' journal, which stays when the organization is erased.

    Ids and names are stored as plain text, because the rows may be gone. `balance` is in USD.
    """

    class Notice(models.TextChoices):
        """The e-mail to the owners that is not sent yet."""

        REQUESTED = "requested"
        CANCELLED = "cancelled"
        COMPLETED = "completed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization_id = models.UUIDField()
    organization_name = models.CharField(max_length=255)
    reason = models.CharField(max_length=MAX_REASON, blank=True)
    actor_type = models.CharField(max_length=8, choices=AuditEntry.ActorType.choices)
    actor_id = models.UUIDField(null=True)
    actor_email = models.CharField(max_length=254, null=True)
    # The status that a cancellation restores.
    previous_status = models.CharField(max_length=16, choices=Organization.Status.choices)
    balance = MoneyField()
    # Rows by table, counted before they are erased.
    row_counts = models.JSONField(default=dict)
    requested_at = models.DateTimeField()
    due_at = models.DateTimeField()
    cancelled_at = models.DateTimeField(null=True)
    cancelled_by = models.CharField(max_length=254, null=True)
    completed_at = models.DateTimeField(null=True)
    notice = models.CharField(max_length=16, choices=Notice.choices, blank=True)
    # The addresses of the waiting e-mail.
    recipients = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id"],
                condition=models.Q(cancelled_at=None, completed_at=None),
                name="organization_deletion_open_once",
            )
        ]
        indexes = [
            models.Index(fields=["organization_id", "-id"]),
            models.Index(
                fields=["due_at"], condition=models.Q(cancelled_at=None, completed_at=None), name="deletion_due"
            ),
            models.Index(fields=["id"], condition=~models.Q(notice=""), name="deletion_notice_waiting"),
        ]

    def __str__(self) -> str:
        return f"{self.organization_name} ({self.organization_id})"


class IdempotentAnswer(models.Model):
    """The answer to a request with an `Idempotency-Key`, kept encrypted for a day, because it may hold a secret."""

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


class Passkey(models.Model):
    """A public key; an authenticator of the user holds the private key (WebAuthn)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    user = models.ForeignKey("organizations.User", models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=100)
    # Chosen by the authenticator, at most 1,023 bytes, unique among all users.
    credential_id = models.BinaryField(unique=True, editable=False, max_length=1023)
    # COSE.
    public_key = models.BinaryField(editable=False)
    # The authenticator's last signature counter: it must grow if the authenticator counts at all.
    sign_count = models.BigIntegerField(default=0)
    transports = models.JSONField(default=list)
    # Whether the private key is backed up, as password managers do.
    backed_up = models.BooleanField(default=False)
    last_used_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name
