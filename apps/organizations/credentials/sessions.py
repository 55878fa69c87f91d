"""Sessions: opaque tokens of signed-in users, stored as digests, valid for thirty days after their last use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from knox.crypto import hash_token
from knox.models import AuthToken
from knox.settings import knox_settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request

from apps.kernel.rest.endpoint import Endpoint
from apps.kernel.rest.request_headers import find_bearer
from apps.organizations.credentials.management_keys import find_management_key, is_management_key, require_scope
from apps.organizations.journal import audit, idempotency
from apps.organizations.models import AuditEntry, ManagementKey, Membership, Organization, User


def start_session(user: User) -> str:
    """Begin a session and return its token, which cannot be read again. Deletes the user's expired sessions."""
    AuthToken.objects.filter(user=user, expiry__lt=timezone.now()).delete()
    _, token = AuthToken.objects.create(user=user)
    return cast(str, token)


def find_session(token: str) -> Any | None:
    """Return the live session of a token, with its user; None if there is none.

    The digest is looked up by index, so timing reveals nothing about tokens.
    """
    live = AuthToken.objects.select_related("user").filter(expiry__gt=timezone.now(), user__is_active=True)
    if settings.EMAIL_VERIFICATION:
        # Such as a session from before addresses had to be confirmed.
        live = live.exclude(user__email_verified_at=None)
    return live.filter(digest=hash_token(token)).first()


def live_sessions(digests: Iterable[str], organization_id: UUID) -> set[str]:
    """Return those of some sessions' digests that are still live, of users that are members of an organization."""
    live = AuthToken.objects.filter(digest__in=list(digests), expiry__gt=timezone.now(), user__is_active=True)
    if settings.EMAIL_VERIFICATION:
        live = live.exclude(user__email_verified_at=None)
    members = Membership.objects.filter(organization=organization_id).exclude(
        organization__status=Organization.Status.DELETED
    )
    return set(live.filter(user__in=members.values("user")).values_list("digest", flat=True))


def extend(session: Any) -> datetime:
    """Extend a session in use; return its new end. Written at most once an hour."""
    expiry: datetime = timezone.now() + knox_settings.TOKEN_TTL
    if expiry - session.expiry > timedelta(seconds=knox_settings.MIN_REFRESH_INTERVAL):
        # Not `save`: the session may have been deleted meanwhile.
        AuthToken.objects.filter(pk=session.pk).update(expiry=expiry)
        session.expiry = expiry
    return cast(datetime, session.expiry)


def end_sessions(user: User) -> int:
    """End all token sessions of a user; return how many."""
    ended, _ = AuthToken.objects.filter(user=user).delete()
    return int(ended)


def end_browser_sessions(user: User) -> int:
    """End all cookie sessions of a user; return how many.

    Session data is opaque, so all live sessions are read. A password change ends them as well.
    """
    live = Session.objects.filter(expire_date__gt=timezone.now()).iterator()
    mine = [one.pk for one in live if one.get_decoded().get(SESSION_KEY) == str(user.pk)]
    Session.objects.filter(pk__in=mine).delete()
    return len(mine)


class ListedSession(NamedTuple):
    """A session for its user: a name that reveals nothing of its token, and its last use, to the hour."""

    name: str
    created_at: datetime
    last_used_at: datetime


def sessions_of(user: User) -> list[ListedSession]:
    """Return a user's live sessions, the most recently used first."""
    live = AuthToken.objects.filter(user=user, expiry__gt=timezone.now()).order_by("-expiry", "digest")
    return [
        ListedSession(name_of(one), one.created, max(one.created, one.expiry - knox_settings.TOKEN_TTL)) for one in live
    ]


def name_of(session: Any) -> str:
    """Return a session's name for display."""
    return sha256(str(session.digest).encode()).hexdigest()[:16]


def end_session(user: User, name: str) -> bool:
    """End a user's session by its name; False if there is none."""
    found = [one for one in AuthToken.objects.filter(user=user) if name_of(one) == name]
    for one in found:
        one.delete()
    return bool(found)


def find_caller(token: str, request: HttpRequest) -> tuple[User, Any] | None:
    """Return the user and the session of a token, or a management key's account and the key; None for neither.

    Extends a session. Raises Forbidden for a management key without the endpoint's scope.
    """
    if is_management_key(token):
        key = find_management_key(token)
        if key is None:
            return None
        require_scope(key, request)
        return key.account, key
    session = find_session(token)
    if session is None:
        return None
    extend(session)
    return session.user, session


class SessionAuthentication(BaseAuthentication):
    """Authenticates `Authorization: Bearer <session token or management key>`."""

    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        """Return the user and the session, or a management key's account and the key; None without a token.

        Raises AuthenticationFailed, and Forbidden for a management key without the endpoint's scope.
        """
        token = find_bearer(request.headers.get("Authorization"))
        if token is None:
            return None
        caller = find_caller(token, request)
        if caller is None:
            raise AuthenticationFailed
        return caller

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401."""
        return "Bearer"


class MemberEndpoint(Endpoint):
    """A management endpoint for signed-in users, and for management keys where `management_scopes` allows it.

    Actions are recorded under the user's name (`audit`), and a POST with an `Idempotency-Key` runs once.
    """

    authentication_classes = [SessionAuthentication]
    permission_classes = [IsAuthenticated]

    @property
    def user(self) -> User:
        """The requesting user."""
        return cast(User, self.request.user)

    def prepare(self) -> None:
        """Run work that must precede a POST's transaction, such as calls to other services."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Serve the request without an acting user until it is authenticated."""
        with audit.acting():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate the caller; then make a POST idempotent."""
        super().initial(request, *args, **kwargs)
        is_key = isinstance(request.auth, ManagementKey)
        audit.act_as(self.user, AuditEntry.ActorType.KEY if is_key else AuditEntry.ActorType.SESSION)
        post = getattr(self, "post", None)
        if request.method == "POST" and post is not None:
            # Overrides the class's method for this request only.
            vars(self)["post"] = partial(self._post_once, post)

    def _post_once(self, post: Callable[..., HttpResponseBase], request: Request, **names: str) -> HttpResponseBase:
        """Return the stored answer if the request was already done; else do it."""
        claim = idempotency.claim_of(request, self.user.id)
        if claim is None:
            self.prepare()
            return post(request, **names)
        known = idempotency.find_answer(claim)
        if known is not None:
            return known
        self.prepare()
        return idempotency.answer_once(claim, lambda: post(request, **names))
