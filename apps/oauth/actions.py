"""Actions on consents, and on codes that are exchanged for API keys, each in one transaction.

Codes and tokens are never stored in clear or logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.utils import timezone
from oauthlib.oauth2.rfc6749.grant_types.authorization_code import code_challenge_method_s256

from apps.kernel.errors import Forbidden, InvalidRequest
from apps.kernel.postgres.rows import find_row
from apps.keys.actions import (
    CreatedKey,
    change_api_key,
    count_of_keys,
    create_api_key,
    create_program_key,
    delete_api_key,
    end_api_key,
    lock_open_project,
)
from apps.keys.models import ApiKey
from apps.oauth.access import NO_CONSENT
from apps.oauth.models import Consent, KeyCode, OAuthClient
from apps.oauth.redirects import shown_host
from apps.oauth.tokens import end_consents, new_key_code
from apps.organizations.journal import audit
from apps.organizations.models import User
from apps.organizations.plans import limits_of

# Programs that a user may sign in for one project.
MAX_CONSENTS: Final = 50
# Seconds for which a code can be exchanged for a key, and characters of its verifier (RFC 7636).
KEY_CODE_LIVES: Final = 300
_VERIFIER_LENGTHS: Final = range(43, 129)


class KeyTerms(NamedTuple):
    """The limits of a key, as columns of an API key."""

    usage_limit: Any
    period_limit: Any
    period: str


@transaction.atomic
def give_consent(
    *, user: User, client: OAuthClient, project_id: UUID | str, scopes: Sequence[str], resource: str, terms: KeyTerms
) -> Consent:
    """Let a program send requests for a project, with its existing key there or a new one.

    Raises NotFound, Forbidden (also if the key was switched off), Gone for an archived project, InvalidRequest for too
    many programs.
    """
    project = lock_open_project(user, project_id)
    limits = terms._asdict()
    row = Consent.objects.filter(user=user, client=client, project=project, revoked_at=None).first()
    if row is not None and row.api_key.status == ApiKey.Status.DELETED:
        end_consents([row])
        row = None
    if row is not None and row.api_key.status != ApiKey.Status.ACTIVE:
        raise Forbidden("This program's API key in the project is switched off; turn it on under API keys")
    if row is None:
        if Consent.objects.filter(user=user, project=project, revoked_at=None).count() >= MAX_CONSENTS:
            raise InvalidRequest(f"Maximum {MAX_CONSENTS} signed-in programs per project; revoke one first")
        key = create_program_key(user=user, project_id=project.id, description=str(client)[:255], **limits)
        row = Consent.objects.create(user=user, client=client, project=project, api_key=key, scope=" ".join(scopes))
    else:
        change_api_key(key=row.api_key, changes=limits)
        row.scope = " ".join(sorted({*row.scope.split(), *scopes}))
        row.save(update_fields=["scope"])
    details = {"client": str(client), "clientId": client.client_id, "apiKeyId": row.api_key_id, "projectId": project.id}
    audit.record(
        "consent.give",
        organization_id=project.organization_id,
        resource=row,
        details={**details, "scopes": list(scopes), "resource": resource, **limits},
    )
    return row


@transaction.atomic
def revoke_consent(*, consent: Consent) -> None:
    """End a consent with its tokens and its API key. Raises NotFound if it already has ended."""
    row = find_row(Consent.objects.select_for_update(of=("self",)).filter(revoked_at=None), consent.pk, NO_CONSENT)
    end_consents([row])
    if row.api_key.status != ApiKey.Status.DELETED:
        delete_api_key(key=row.api_key)
    details = {"client": str(row.client), "clientId": row.client.client_id, "apiKeyId": row.api_key_id}
    audit.record("consent.revoke", organization_id=row.project.organization_id, resource=row, details=details)


@transaction.atomic
def issue_key_code(
    *, user: User, project_id: UUID | str, callback_url: str, code_challenge: str, terms: KeyTerms
) -> str:
    """Return a code that a program exchanges for an API key of the project. Raises as `create_api_key` does."""
    project = lock_open_project(user, project_id)
    most = limits_of(project.organization.plan).api_keys_per_project
    if most is not None and count_of_keys(project) >= most:
        raise InvalidRequest(f"Maximum {most} API keys per project", code="api_key_limit_reached")
    code = new_key_code()
    row = KeyCode.objects.create(
        code=code,
        user=user,
        project=project,
        callback_url=callback_url,
        code_challenge=code_challenge,
        expires=timezone.now() + timedelta(seconds=KEY_CODE_LIVES),
        **terms._asdict(),
    )
    details: Mapping[str, Any] = {"callback": shown_host(callback_url), "projectId": project.id, **terms._asdict()}
    audit.record("key_code.give", organization_id=project.organization_id, resource=row, details=details)
    return code


def exchange_key_code(*, code: str, verifier: str) -> tuple[CreatedKey, User]:
    """Return the API key of a code, and its user. A second exchange ends the key of the first.

    Raises Forbidden for a code that is unknown, used, expired, or issued for another verifier; and as `create_api_key`
    does.
    """
    made = _exchange(code, verifier)
    if made is None:
        raise Forbidden("This code is unknown, used or expired, or was made for another code_verifier", code="bad_code")
    return made


@transaction.atomic
def _exchange(code: str, verifier: str) -> tuple[CreatedKey, User] | None:
    # If a code is sent twice at once, the second request finds it used.
    rows = KeyCode.objects.select_for_update(of=("self",)).select_related("user", "api_key")
    row = rows.filter(code=code).first()
    if row is None:
        return None
    if row.used_at is not None:
        if row.api_key is not None and row.api_key.status != ApiKey.Status.DELETED:
            end_api_key(row.api_key)
        return None
    # A user who was deactivated meanwhile grants nothing.
    if not row.user.is_active or row.expires <= timezone.now() or not _is_verified(verifier, row.code_challenge):
        return None
    with audit.acting(row.user):
        created = create_api_key(
            user=row.user,
            project_id=row.project_id,
            description=f"Given to {shown_host(row.callback_url)}"[:255],
            **KeyTerms(row.usage_limit, row.period_limit, row.period)._asdict(),
        )
    KeyCode.objects.filter(pk=row.pk).update(used_at=timezone.now(), api_key=created.key)
    return created, row.user


def _is_verified(verifier: str, challenge: str) -> bool:
    fits = len(verifier) in _VERIFIER_LENGTHS and verifier.isascii()
    return fits and bool(code_challenge_method_s256(verifier, challenge))
