"""Sign-up and sign-in, for API and pages: counts attempts before anything is checked.

It decides which limit counts which attempt, and in which order checks run; it begins no session.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.core import signing

from apps.kernel.errors import InvalidRequest, NotFound, Unauthenticated
from apps.kernel.postgres.rows import find_row, identify
from apps.organizations import actions, invitations
from apps.organizations.access import is_verified, require, require_verified
from apps.organizations.accounts import account_actions, step_up
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.passkeys import Answered
from apps.organizations.models import Invitation, Membership, OperatorGroup, Organization, Role, User

# Time for the second factor after a correct password, if the two are asked for separately.
SECOND_STEP_LASTS: Final = timedelta(minutes=5)
_SECOND_STEP: Final = "organizations.second-step"


def sign_up(*, address: str, **fields: Any) -> User | None:
    """Create an account as `actions.sign_up` does. Raises the same errors, and RateLimited."""
    email = User.normalize_username(fields["email"])
    claims = [(attempt_rate_limiter.SIGN_UP_PER_ADDRESS, address), (attempt_rate_limiter.SIGN_UP_PER_ACCOUNT, email)]
    if settings.EMAIL_VERIFICATION and not fields.get("invitation"):
        # An e-mail goes to the address, whether it has an account or not.
        claims.append((attempt_rate_limiter.MESSAGES_PER_EMAIL, email))
    attempt_rate_limiter.count_attempt(*claims)
    return actions.sign_up(**fields)


def check_password(*, email: str, password: str, address: str) -> User:
    """Return the user with this password: the first step of signing in. Raises Unauthenticated, RateLimited."""
    attempt_rate_limiter.count_sign_in(User.normalize_username(email), address)
    return actions.sign_in(email=email, password=password)


def check_second_factor(user: User, *, code: str | None, passkey: Answered | None, address: str) -> None:
    """Check the second factor of a user with a correct password, if enabled: the last step of signing in.

    Raises as `step_up.require_second_factor` does.
    """
    step_up.require_second_factor(user=user, code=code, passkey=passkey, address=address)
    attempt_rate_limiter.remember_address(user.email, address)


def second_step_token(user: User) -> str:
    """Return a short-lived token that proves a correct password, for a page that asks for the second factor next."""
    return signing.dumps([str(user.pk), signing.Signer().signature(user.password)], salt=_SECOND_STEP)


def find_second_step(token: str) -> User:
    """Return the user of a second-step token. Raises Unauthenticated if it is invalid or expired."""
    try:
        identifier, proved = signing.loads(token, salt=_SECOND_STEP, max_age=SECOND_STEP_LASTS)
    except (signing.BadSignature, ValueError, TypeError):
        identifier, proved = None, ""
    user = User.objects.filter(pk=identifier, is_active=True).first() if identifier else None
    if user is None or signing.Signer().signature(user.password) != proved:
        raise Unauthenticated("That took too long; sign in again", code="second_step_expired")
    return user


def request_password_reset(*, email: str, address: str) -> None:
    """Send a reset link to an address if it has an account. Raises RateLimited."""
    attempt_rate_limiter.count_attempt(
        (attempt_rate_limiter.RESET_PER_ADDRESS, address),
        (attempt_rate_limiter.MESSAGES_PER_EMAIL, User.normalize_username(email)),
    )
    actions.want_password_reset(email=email)


def send_verification(*, email: str, address: str) -> None:
    """Send another confirmation link to an unconfirmed address, if it has an account. Raises RateLimited."""
    attempt_rate_limiter.count_attempt(
        (attempt_rate_limiter.RESET_PER_ADDRESS, address),
        (attempt_rate_limiter.MESSAGES_PER_EMAIL, User.normalize_username(email)),
    )
    actions.want_verification(email=email)


def request_email_change(*, user: User, email: str) -> None:
    """Send a confirmation link to the requested address; the change takes effect once it is confirmed.

    The caller has verified the user's identity. Raises InvalidRequest for the user's current address, RateLimited.
    """
    wanted = User.normalize_username(email)
    if wanted == user.email:
        raise InvalidRequest("This is already your address", param="newEmail")
    attempt_rate_limiter.count_attempt(
        (attempt_rate_limiter.MESSAGES_PER_USER, str(user.id)),
        (attempt_rate_limiter.MESSAGES_PER_EMAIL, wanted),
    )
    account_actions.want_email_change(user=user, email=wanted)


def invite_member(*, by: User, own_role: Role, organization: Organization, email: str, role: Role) -> Invitation:
    """Invite an address, with a role up to one's own. Raises Forbidden, InvalidRequest, RateLimited."""
    require_verified(by)
    require(own_role, role)
    attempt_rate_limiter.count_attempt(
        (attempt_rate_limiter.INVITATIONS_PER_ORGANIZATION, str(organization.id)),
        (attempt_rate_limiter.INVITATIONS_PER_ACCOUNT, email.lower()),
    )
    return invitations.invite(organization=organization, by=by, email=email, role=role)


def add_member(*, own_role: Role, organization: Organization, email: str, role: Role) -> Membership:
    """Add the user with an address, with a role up to one's own. Raises as `actions.add_member`, RateLimited.

    The answer reveals whether the address has an account, so attempts are counted.
    """
    require(own_role, role)
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.INVITATIONS_PER_ORGANIZATION, str(organization.id)))
    return actions.add_member(organization=organization, email=email, role=role)


def find_invitation(organization: Organization, identifier: str) -> Invitation:
    """Return an open invitation of an organization. Raises NotFound."""
    return find_row(invitations.waiting(organization), identifier, invitations.NO_INVITATION)


def find_operator_invitation(user: User, identifier: UUID) -> Invitation | None:
    """Return the open invitation to operators that was sent to the user's own, confirmed address; None without one."""
    return invitations.to_operators().filter(pk=identifier, email=user.email).first() if is_verified(user) else None


def accept_operator_invitation(*, user: User, identifier: UUID) -> OperatorGroup:
    """Join the group of an invitation to operators; return it. Raises NotFound, Forbidden."""
    require_verified(user)
    found = find_operator_invitation(user, identifier)
    if found is None:
        raise NotFound(invitations.NO_INVITATION)
    invitations.accept(invitation=found, user=user)
    return OperatorGroup(found.operator_group)


def accept_invitation(*, user: User, organization_id: str, identifier: str) -> Membership | None:
    """Accept an invitation to the user's own, confirmed address. Raises NotFound, Forbidden."""
    require_verified(user)
    owner = identify(organization_id, invitations.NO_INVITATION)
    of_owner = invitations.waiting().filter(organization_id=owner)
    found = find_row(of_owner, identifier, invitations.NO_INVITATION)
    return invitations.accept(invitation=found, user=user)
