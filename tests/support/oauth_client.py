"""A program that signs in: registration, a person's consent in their browser, codes and tokens."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from django.conf import settings
from django.test import Client

from apps.oauth.actions import KeyTerms, issue_key_code
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, KeyCode, OAuthClient, RefreshToken
from apps.organizations.models import Project, User
from tests.support.console_client import Visitor

CALLBACK = "http://127.0.0.1:3030/callback"


def challenge_of(verifier: str) -> str:
    """Return what S256 makes of a verifier."""
    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def query_of(response: Any) -> dict[str, str]:
    """Return the query of where an answer leads."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(response["Location"]).query).items()}


def send_form(client: Client, path: str, fields: dict[str, str], **headers: str) -> Any:
    """Send a form as a browser does."""
    return client.post(path, urlencode(fields), content_type="application/x-www-form-urlencoded", headers=headers)


@dataclass
class Program:
    """A program at a callback of its own."""

    callback: str = CALLBACK
    client_id: str = ""
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    web: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def register(self, **more: Any) -> Any:
        """Register; the id is kept."""
        said = {"client_name": "Test program", "redirect_uris": [self.callback], **more}
        answer = self.web.post("/oauth/register", said, content_type="application/json")
        if answer.status_code == 201:
            self.client_id = answer.json()["client_id"]
        return answer

    def authorization(self, **more: str | None) -> str:
        """Return the path at which a browser is asked for consent; None leaves a parameter out."""
        said = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.callback,
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            "state": "a-state",
            "resource": f"{settings.PUBLIC_URL}/mcp",
            **more,
        }
        return "/oauth/authorize?" + urlencode({name: value for name, value in said.items() if value is not None})

    def allowed_by(self, user: User, project: Project, path: str = "", **fields: str) -> Any:
        """Have a person allow it; return what their browser is answered."""
        sent = {"decision": "allow", "projectId": str(project.id), "budget": "5", "period": "month", **fields}
        return send_form(Visitor(user).client, path or self.authorization(), sent)

    def exchange(self, code: str, **more: str) -> Any:
        """Bring a code to the token endpoint."""
        said = {
            "grant_type": "authorization_code",
            "client_id": self.client_id,
            "code": code,
            "redirect_uri": self.callback,
            "code_verifier": self.verifier,
            **more,
        }
        return send_form(self.web, "/oauth/token", said)

    def refresh(self, token: str, **more: str) -> Any:
        """Bring a refresh token to the token endpoint."""
        said = {"grant_type": "refresh_token", "client_id": self.client_id, "refresh_token": token, **more}
        return send_form(self.web, "/oauth/token", said)

    def signed_in_by(self, user: User, project: Project, **asked: str) -> dict[str, Any]:
        """Register, be allowed, and return the tokens."""
        if not self.client_id:
            self.register()
        answer = self.allowed_by(user, project, self.authorization(**asked))
        return dict(self.exchange(query_of(answer)["code"]).json())


def registered(callback: str = CALLBACK) -> Program:
    """Return a program that has registered."""
    program = Program(callback)
    program.register()
    return program


def rows_of_every_table(user: User, project: Project) -> list[Any]:
    """Return a row of each table of OAuth's, as a sign-in makes them."""
    Program().signed_in_by(user, project)
    terms = KeyTerms(None, None, "")
    challenge = challenge_of("x" * 43)
    issue_key_code(user=user, project_id=project.id, callback_url=CALLBACK, code_challenge=challenge, terms=terms)
    tables = (OAuthClient, Consent, AuthorizationCode, AccessToken, RefreshToken, KeyCode)
    return [table.objects.get() for table in tables]
