"""What can be done to users and organizations: each verb one transaction.

Knows what belongs together. Must never know HTTP, nor whether the caller may: `access.py` says so beforehand.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction

from apps.kernel.errors import InvalidRequest, Unauthenticated
from apps.kernel.ids import find_id
from apps.organizations import passwords
from apps.organizations.models import Membership, Organization, Plan, Project, Role, User
from apps.organizations.sessions import end_sessions

DEFAULT_ORGANIZATION, DEFAULT_PROJECT = "Default Organization", "Default Project"


def sign_up(*, name: str, email: str, password: str, ref: str | None = None) -> User:
    """Create a user with an organization and a project of their own. Raises InvalidRequest (409) for a known address.

    `ref` is the id of the organization that sent them; one that does not exist is not recorded.
    """
    stored = passwords.hash_of(password)
    try:
        with transaction.atomic():
            user = User.objects.create(email=User.normalize_username(email), name=name, password=stored)
            create_organization(owner=user, referred_by=_find_referrer(ref))
    except IntegrityError as error:
        raise InvalidRequest(
            "An account with this e-mail address already exists", status=409, code="already_exists", param="email"
        ) from error
    return user


def sign_in(*, email: str, password: str) -> User:
    """Return the user. Raises Unauthenticated, alike and as late for an unknown address as for a wrong password."""
    user = User.objects.filter(email=User.normalize_username(email), is_active=True).first()
    if not passwords.fits(password, user.password if user else None) or user is None:
        raise Unauthenticated("Wrong e-mail address or password")
    return user


def set_password(*, user: User, password: str) -> None:
    """Give a user another password; every session under the old one ends."""
    user.password = passwords.hash_of(password)
    with transaction.atomic():
        user.save(update_fields=["password", "updated_at"])
        end_sessions(user)


@transaction.atomic
def create_organization(
    *, owner: User, name: str = DEFAULT_ORGANIZATION, referred_by: Organization | None = None
) -> Organization:
    """Create an organization that the user owns, with its default project."""
    organization = Organization.objects.create(name=name, billing_email=owner.email, referred_by=referred_by)
    Membership.objects.create(organization=organization, user=owner, role=Role.OWNER)
    Project.objects.create(organization=organization, name=DEFAULT_PROJECT)
    return organization


def set_plan(*, organization: Organization, plan: Plan) -> None:
    """Move an organization to another plan, without a term."""
    organization.plan, organization.plan_expires_at = plan, None
    organization.save(update_fields=["plan", "plan_expires_at", "updated_at"])


def create_operator(*, email: str, password: str) -> User:
    """Create a user who may enter the admin, or make an existing one an operator with this password."""
    stored = passwords.hash_of(password)
    with transaction.atomic():
        user, created = User.objects.get_or_create(
            email=User.normalize_username(email), defaults={"password": stored, "name": "Operator"}
        )
        user.is_staff = user.is_superuser = user.is_active = True
        user.password = stored
        user.save(update_fields=["is_staff", "is_superuser", "is_active", "password", "updated_at"])
        if not created:
            end_sessions(user)
    return user


def _find_referrer(ref: str | None) -> Organization | None:
    identifier = find_id(ref or "")
    if identifier is None:
        return None
    return Organization.objects.filter(pk=identifier).exclude(status=Organization.Status.DELETED).first()
