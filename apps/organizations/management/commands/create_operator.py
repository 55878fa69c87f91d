"""`manage.py create_operator EMAIL`: make someone who may enter the admin."""

from __future__ import annotations

import secrets
import sys
from argparse import ArgumentParser
from getpass import getpass
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.core.validators import validate_email

from apps.organizations.actions import create_operator
from apps.organizations.models import User


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Make an operator, or an existing user one; an existing password is replaced."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read who."""
        parser.add_argument("email", help="what the operator signs in with")
        parser.add_argument("--password", help="asked for when left out; without a terminal, made and printed once")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the operator."""
        email, given = options["email"], options["password"] or _asked_for()
        password = given or secrets.token_urlsafe(16)
        try:
            validate_email(email)
            validate_password(password, User(email=email))
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        operator = create_operator(email=email, password=password)
        self.stdout.write(f"{operator.email} may sign in at /admin/")
        if not given:
            self.stdout.write(f"password: {password}")


def _asked_for() -> str | None:
    """Return the password typed at the terminal, None when there is no terminal. Raises CommandError."""
    if not sys.stdin.isatty():
        return None
    password = getpass("Password: ")
    if getpass("Again: ") != password:
        raise CommandError("The passwords differ")
    return password
