"""`manage.py demo`: an operator, an owner, an organization with credits, and an API key, to begin with at once.

Creates them once, and shows the same ones ever after. Their clear values are kept beside the development
secrets, for the database has only digests; so this is for development alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from apps.billing import ledger
from apps.keys.actions import create_api_key
from apps.keys.authenticate import find_api_key, works
from apps.keys.models import ApiKey
from apps.organizations.actions import (
    create_operator,
    create_organization,
    set_password,
    set_plan,
    sign_up,
    verify_email,
)
from apps.organizations.credentials import passwords
from apps.organizations.credentials.sessions import extend, find_session, start_session
from apps.organizations.models import Organization, Plan, Project, Role, User

OPERATOR, OWNER = "operator@demo.example", "owner@demo.example"
ORGANIZATION, KEY = "Demo Organization", "Demo key"
CREDITS = Decimal(100)

_TEXT = """\
Demo account
  console    {baseUrl}/app/
  admin      {baseUrl}/admin/
  operator   {operator[email]}  {operator[password]}
  owner      {owner[email]}  {owner[password]}
  session    {sessionToken}
  API key    {apiKey}
Try it:
  curl {baseUrl}/v1/chat/completions -H "Authorization: Bearer {apiKey}" \\
    -H "Content-Type: application/json" \\
    -d '{{"model": "sandbox/echo", "messages": [{{"role": "user", "content": "Hello"}}]}}'"""


# Kept and not shown: by address, the stored hash with which the kept password was last compared.
_COMPARED = "compared"
# Options that print one value alone, for scripts.
_ALONE = {"key": "apiKey", "session": "sessionToken", "organization": "organizationId"}


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Show a demo account, made on first use (development only)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Read how to show it."""
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print JSON alone")
        form.add_argument("--key", action="store_true", help="print the API key alone")
        form.add_argument("--session", action="store_true", help="print the owner's session token alone")
        form.add_argument("--organization", action="store_true", help="print the organization's id alone")

    def handle(self, *args: Any, **options: Any) -> None:
        """Create the missing parts, and show them."""
        if not settings.DEVELOPMENT:
            raise CommandError("demo keeps passwords in clear, so it runs in development mode only")
        with _kept(settings.GATEWAY_HOME / "demo.json") as kept, transaction.atomic():
            kept |= _made(kept)
        shown = {"baseUrl": settings.PUBLIC_URL, **kept}
        del shown[_COMPARED]
        for option, name in _ALONE.items():
            if options[option]:
                self.stdout.write(kept[name])
                return
        self.stdout.write(json.dumps(shown) if options["json"] else _TEXT.format_map(shown))


def _made(kept: dict[str, Any]) -> dict[str, Any]:
    """Return the account: the stored values as far as the database still has them, and new ones for the rest."""
    compared = kept.get(_COMPARED, {})
    operator_password = _operator_password(kept.get("operator", {}).get("password"), compared)
    owner, owner_password = _owner(kept.get("owner", {}).get("password"), compared)
    organization = _organization_of(owner, kept.get("organizationId"))
    project = organization.projects.filter(status=Project.Status.ACTIVE).earliest("created_at")
    return {
        "operator": {"email": OPERATOR, "password": operator_password},
        "owner": {"email": OWNER, "password": owner_password},
        "sessionToken": _session_token(owner, kept.get("sessionToken", "")),
        "organizationId": str(organization.id),
        "projectId": str(project.id),
        "apiKey": _api_key(owner, project, kept.get("apiKey", "")),
        _COMPARED: dict(User.objects.filter(email__in=(OPERATOR, OWNER)).values_list("email", "password")),
    }


def _is_still(known: str | None, user: User | None, compared: dict[str, str]) -> bool:
    """Return whether a kept password is the user's. A hash with which it was compared is not compared again: that
    takes a third of a second."""
    if not known or user is None:
        return False
    return compared.get(user.email) == user.password or passwords.matches(known, user.password)


def _operator_password(known: str | None, compared: dict[str, str]) -> str:
    operator = User.objects.filter(email=OPERATOR, is_active=True, is_staff=True, is_superuser=True).first()
    if known and _is_still(known, operator, compared):
        return known
    password = secrets.token_urlsafe(16)
    create_operator(email=OPERATOR, password=password)
    return password


def _owner(known: str | None, compared: dict[str, str]) -> tuple[User, str]:
    owner = User.objects.filter(email=OWNER).first()
    if owner and known and _is_still(known, owner, compared):
        return owner, known
    password = secrets.token_urlsafe(16)
    if owner is None:
        owner = sign_up(name="Demo Owner", email=OWNER, password=password) or User.objects.get(email=OWNER)
        # Its address has no mailbox, so a message cannot confirm it.
        verify_email(user=owner)
        owner.refresh_from_db()
        return owner, password
    set_password(user=owner, password=password)
    return owner, password


def _organization_of(owner: User, known: str | None) -> Organization:
    """Return the organization that the owner began with, as the demo's: an enterprise, given its credits once.

    One that is known was given them, whatever it is called by now.
    """
    owned = Organization.objects.filter(memberships__user=owner, memberships__role=Role.OWNER)
    organization = owned.filter(status=Organization.Status.ACTIVE).order_by("created_at").first()
    if organization is None:
        organization = create_organization(owner=owner)
    if str(organization.id) != known and organization.name != ORGANIZATION:
        organization.name = ORGANIZATION
        set_plan(organization=organization, plan=Plan.ENTERPRISE)
        organization.save(update_fields=["name", "updated_at"])
        ledger.grant(organization.id, CREDITS, "Demo credits")
    return organization


def _session_token(owner: User, known: str) -> str:
    session = find_session(known)
    if session is None or session.user != owner:
        return start_session(owner)
    extend(session)
    return known


def _api_key(owner: User, project: Project, known: str) -> str:
    key = find_api_key(known)
    if key is not None and works(key) and key.project == project:
        return known
    # The tokens of earlier ones are lost.
    for lost in ApiKey.objects.filter(project=project, description=KEY).exclude(status=ApiKey.Status.DELETED):
        lost.status = ApiKey.Status.DELETED
        lost.save(update_fields=["status", "updated_at"])
    return create_api_key(user=owner, project_id=project.id, description=KEY).token


@contextmanager
def _kept(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what the file keeps, and keep what becomes of it; one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            kept: dict[str, Any] = json.load(file)
        except ValueError:
            kept = {}
        yield kept
        file.seek(0)
        json.dump(kept, file, indent=2)
        file.truncate()
