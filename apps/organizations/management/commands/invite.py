"""`manage.py invite EMAIL`: invite a person to sign up, optionally into an organization."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.core.validators import validate_email

from apps.kernel.errors import ApiError
from apps.organizations.access import UnclearOrganizationError, find_organization
from apps.organizations.credentials.email_tokens import invitation_token, sign_up_link
from apps.organizations.invitations import invite, invite_operator
from apps.organizations.models import Invitation, OperatorGroup, Role


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Invite an e-mail address to sign up, or to the operators; sends the link and prints it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("email")
        parser.add_argument("--organization", help="id or name; also adds them as a member")
        parser.add_argument("--operator", choices=OperatorGroup.values, help="the group of operators to join")
        parser.add_argument("--role", choices=Role.values, default=Role.DEVELOPER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Invite."""
        try:
            validate_email(options["email"])
            invitation = _invitation(options)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except UnclearOrganizationError as error:
            raise CommandError(str(error)) from error
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{invitation.email} may sign up until {invitation.expires_at:%Y-%m-%d %H:%M} UTC")
        self.stdout.write(f"invitation: {invitation_token(invitation)}")
        self.stdout.write(f"sign-up page: {sign_up_link(invitation)}")


def _invitation(options: dict[str, Any]) -> Invitation:
    """Return a new invitation. Raises CommandError, UnclearOrganizationError, ApiError."""
    email, named, group = options["email"], options["organization"], options["operator"]
    if group and named:
        raise CommandError("--operator and --organization exclude each other: send two invitations")
    if group:
        return invite_operator(email=email, group=OperatorGroup(group))
    organization = find_organization(named) if named else None
    return invite(email=email, organization=organization, role=options["role"])
