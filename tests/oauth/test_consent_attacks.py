"""Attacks on the page of consent: redirects, forgery, sessions, other people's projects."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.test import Client as Web

from apps.console.browser_session import COOKIE
from apps.keys.models import ApiKey
from apps.oauth.models import AuthorizationCode, Consent
from apps.organizations.credentials.sessions import find_session, start_session
from tests.support.cast import PASSWORD, World
from tests.support.console_client import Visitor, words
from tests.support.oauth_client import Program, query_of, registered, send_form

HTTPS = "https://app.example.com/callback"


class TestRedirects:
    @pytest.mark.parametrize(
        "uri",
        [
            "https://app.example.com/callback/evil",
            "https://app.example.com/callbackevil",
            "https://app.example.com.evil.example/callback",
            "https://app.example.com@evil.example/callback",
            "https://evil.example/callback",
            "https://app.example.com:8443/callback",
            "https://app.example.com/callback#x",
            "https://app.example.com/callback?next=https://evil.example",
            "https://app.example.com/callback/../evil",
            "https://app.example.com\\@evil.example/callback",
            "http://app.example.com/callback",
            "HTTPS://app.example.com/callback",
            "//app.example.com/callback",
            "javascript:alert(1)//app.example.com/callback",
            "https://app.example.com/callback\r\nSet-Cookie: a=b",
        ],
    )
    def test_no_other_address_than_a_registered_one_is_led_to(self, world: World, uri: str) -> None:
        program = registered(HTTPS)
        for more in ({}, {"scope": "everything"}):
            answer = program.allowed_by(world.dana, world.project, program.authorization(redirect_uri=uri, **more))
            assert answer.status_code == 400
            assert "Location" not in answer
            assert b"evil.example" not in answer.content.replace(b"&amp;", b"&").split(b"<main")[-1]
        assert (Consent.objects.count(), AuthorizationCode.objects.count()) == (0, 0)

    def test_a_program_on_this_machine_may_take_any_port_and_no_other_path_or_name(self, world: World) -> None:
        program = registered("http://127.0.0.1/callback")
        asked = program.authorization(redirect_uri="http://127.0.0.1:51004/callback")
        answer = program.allowed_by(world.dana, world.project, asked)
        assert answer["Location"].startswith("http://127.0.0.1:51004/callback?code=")
        for uri in ("http://127.0.0.1:51004/other", "http://localhost:51004/callback", "http://127.0.0.2/callback"):
            refused = program.allowed_by(world.dana, world.project, program.authorization(redirect_uri=uri))
            assert (refused.status_code, "Location" in refused) == (400, False)

    def test_an_error_leads_nobody_anywhere_by_itself(self, world: World) -> None:
        program = registered("https://evil.example/phishing")
        for changed in ({"scope": "everything"}, {"response_type": "token"}, {"resource": "https://evil.example/mcp"}):
            answer = Visitor(world.dana).client.get(program.authorization(**changed))
            assert (answer.status_code, "Location" in answer) == (400, False)
            assert b'http-equiv="refresh"' not in answer.content
        # Nor does asking lead there, for a visitor who is not signed in.
        assert Web().get(program.authorization())["Location"].startswith("/app/sign-in?next=%2Foauth%2Fauthorize")

    def test_what_is_answered_names_who_answers(self, world: World) -> None:
        program = registered()
        given = query_of(program.allowed_by(world.dana, world.project))
        refused = query_of(program.allowed_by(world.dana, world.project, decision="refuse"))
        assert (given["iss"], given["state"]) == (settings.PUBLIC_URL, "a-state")
        assert (refused["error"], refused["iss"], refused["state"]) == ("access_denied", settings.PUBLIC_URL, "a-state")

    def test_the_page_may_lead_to_the_program_alone_and_stands_in_no_frame(self, world: World) -> None:
        program = registered(HTTPS)
        answer = Visitor(world.dana).client.get(program.authorization())
        policy = answer["Content-Security-Policy"]
        assert "form-action 'self' https://app.example.com;" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer["X-Frame-Options"] == "DENY"
        assert answer["Cache-Control"] == "private, no-store"


class TestConsent:
    def test_a_form_of_another_site_consents_to_nothing(self, world: World) -> None:
        program, fields = registered(), {"decision": "allow", "projectId": str(world.project.id), "period": "month"}
        visitor = Visitor(world.dana, check_forgery=True)
        visitor.client.get(program.authorization())
        for headers in ({}, {"origin": "https://evil.example"}):
            answer = send_form(visitor.client, program.authorization(), fields, **headers)
            assert (answer.status_code, "Location" in answer) == (403, False)
        assert (Consent.objects.count(), AuthorizationCode.objects.count(), ApiKey.objects.count()) == (0, 0, 0)

    def test_without_a_session_nothing_is_consented_to(self, world: World) -> None:
        program = registered()
        fields = {"decision": "allow", "projectId": str(world.project.id), "period": "month"}
        assert send_form(Web(), program.authorization(), fields)["Location"].startswith("/app/sign-in")
        assert Consent.objects.count() == 0

    def test_a_session_that_somebody_planted_is_not_the_one_that_consents(self, world: World) -> None:
        program, planted = registered(), start_session(world.sam)
        browser = Web()
        browser.cookies[COOKIE] = planted
        asked = program.authorization()
        sent = {"email": "dana@example.com", "password": PASSWORD, "next": asked}
        entered = send_form(browser, "/app/sign-in", sent)
        assert (entered.status_code, entered["Location"]) == (302, asked)
        assert find_session(planted) is None
        assert browser.cookies[COOKIE].value != planted
        fields = {"decision": "allow", "projectId": str(world.project.id), "budget": "5", "period": "month"}
        assert "code" in query_of(send_form(browser, asked, fields))
        assert Consent.objects.get().user == world.dana

    def test_what_the_form_says_of_the_request_is_not_believed(self, world: World) -> None:
        program = registered(HTTPS)
        answer = program.allowed_by(
            world.dana, world.project, redirect_uri="https://evil.example/", scope="tools", client_id="x", state="y"
        )
        assert answer["Location"].startswith(f"{HTTPS}?code=")
        assert Consent.objects.get().scope == "models tools"

    def test_another_organizations_project_is_not_to_be_had(self, world: World) -> None:
        program = registered()
        answer = program.allowed_by(world.dana, world.elsewhere_project)
        assert answer.status_code == 400
        assert "Choose one of the projects" in words(answer)
        assert (Consent.objects.count(), ApiKey.objects.count()) == (0, 0)

    def test_words_of_a_program_are_escaped(self, world: World) -> None:
        program = Program()
        program.register(client_name='<img src=x onerror="alert(1)">')
        text = Visitor(world.dana).client.get(program.authorization()).content.decode()
        assert "<img" not in text
        assert "&lt;img src=x" in text
