"""Authentication: from a token to its API key, or to a session where one is accepted, too."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.request_headers import MISSING_KEY, find_presented_key
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of, is_api_key
from apps.organizations.credentials.sessions import find_caller
from apps.organizations.models import Organization, User


def find_api_key(token: str) -> ApiKey | None:
    """Return the key of this token with its project and organization, in one query.

    Inactive and expired keys are returned too; the caller decides about them.
    """
    keys = ApiKey.objects.select_related("project__organization")
    return keys.filter(digest=digest_of(token)).first() if is_api_key(token) else None


def works(key: ApiKey) -> bool:
    """Return whether the key itself is active and not expired, and its organization active."""
    if key.status != ApiKey.Status.ACTIVE or key.project.organization.status != Organization.Status.ACTIVE:
        return False
    return key.expires_at is None or key.expires_at > timezone.now()


class ApiKeyOrSession(BaseAuthentication):
    """Authenticates an API key (`request.auth` is one, `request.user` None), a management key, or a signed-in user.

    Use it with `Recognized`: an API key is not a user.
    """

    def authenticate(self, request: Request) -> tuple[User | None, Any]:
        """Return user and key or session. Raises Unauthenticated, also without credentials."""
        token = find_presented_key(request.headers)
        if is_api_key(token):
            key = find_api_key(token)
            if key is not None and key.project.organization.status == Organization.Status.DELETING:
                raise Unauthenticated(str(key.project.organization.refusal), code="organization_deleting")
            if key is None or not works(key):
                raise Unauthenticated(MISSING_KEY)
            return None, key
        caller = find_caller(token, request)
        if caller is None:
            raise Unauthenticated(MISSING_KEY)
        return caller

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return "Bearer"


class Recognized(BasePermission):
    """Allows requests that `ApiKeyOrSession` has authenticated."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the request has a key or a session."""
        return request.auth is not None
