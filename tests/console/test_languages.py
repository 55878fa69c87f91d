"""The language of pages and e-mails; the API and the admin stay in English."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import polib
import pytest
from django.core import mail
from django.test import RequestFactory
from django.utils import translation

from apps.alerts.kind_names import KindName
from apps.alerts.sentences import in_reader_language
from apps.billing.models import describe_payment
from apps.console.browser_session import COOKIE
from apps.console.forms import attempt, error_words, read_form
from apps.console.labels import LABELS
from apps.console.templatetags.console import naming
from apps.guardrails.models import Action, Violation
from apps.guardrails.rules import system_rules
from apps.limits.applied import apply_rule, describe, rule_of
from apps.limits.models import Limit
from apps.oauth.resources import SCOPES
from apps.organizations.accounts.account_emails import send_pending_emails
from apps.organizations.accounts.entrance import request_password_reset
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Plan, Role, User
from apps.organizations.serializers import NewProjectShape
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words

SIGN_IN, ACCOUNT = "/app/sign-in", "/app/account"
HTML = re.compile(r'<html lang="([^"]+)" dir="([^"]+)">')
GERMAN = {
    "Sign in": "Anmelden",
    "Saved.": "Gespeichert.",
    "Overview": "Übersicht",
    "Page not found": "Seite nicht gefunden",
    "Copied": "Kopiert",
    "Required": "Erforderlich",
    "Maximum {number} teams per organization": "Höchstens {number} Teams je Organisation",
    "Reset your Model gateway password": "Ihr Passwort zurücksetzen",
    "The balance is {balance}, below {amount}": "Das Guthaben ist {balance}, unter {amount}",
    "{percent}% of {limit} is used": "{percent} % von {limit} sind verbraucht",
    "{share} of requests to the model {name} fail": "{share} der Anfragen an {name} schlagen fehl",
    "{number}%": "{number} %",
    "Prices in USD: {changes}. The organization has used the model within the last {period} days. Compare providers "
    "and models, and adjust limits of keys if needed.": "Preise in USD: {changes}. Zuletzt {period} Tage.",
    "{change}; {changes}": "{change}; {changes}",
    "{price}: {old} → {new}": "{price}: {old} → {new}",
    "{price} above {tokens} tokens": "{price} über {tokens} Tokens",
    "Input": "Eingabe",
    "Web search": "Websuche",
    "{amount} each": "{amount} je Stück",
    "no price": "kein Preis",
    "the usage limit of the API key {key}": "dem Limit des API-Schlüssels {key}",
    'the limit "{name}" of the {owner}, {measure},': "dem Limit „{name}“ ({owner}, {measure})",
    "{owner} on {model}": "{owner}, {model}",
    "project": "Projekt",
    "{amount} requests {window}": "{amount} Anfragen {window}",
    "a day": "pro Tag",
    "Must be at most {number} characters long": "Höchstens {number} Zeichen",
    "Refund of {payment}": "Erstattung: {payment}",
    "Top-up, {card}": "Aufladung, {card}",
    "Balance below {amount} USD": "Guthaben unter {amount} USD",
}
ARABIC = {"Sign in": "تسجيل الدخول"}


@pytest.fixture(autouse=True)
def languages(settings: Any, tmp_path: Path) -> None:
    """English, German and Arabic, with a few texts."""
    for code, texts in (("de", GERMAN), ("ar", ARABIC)):
        file = polib.POFile()
        file.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Plural-Forms": "nplurals=2; plural=(n != 1);"}
        file.extend(polib.POEntry(msgid=english, msgstr=other) for english, other in texts.items())
        folder = tmp_path / code / "LC_MESSAGES"
        folder.mkdir(parents=True)
        file.save_as_mofile(str(folder / "django.mo"))
    settings.LOCALE_PATHS = [tmp_path]
    settings.LANGUAGES = [("en", "English"), ("de", "Deutsch"), ("ar", "العربية")]


def language_of(response: Any) -> tuple[str, str]:
    """Return the language and the direction of a page."""
    found = HTML.search(response.content.decode())
    assert found is not None
    return found[1], found[2]


def open_in(visitor: Visitor, path: str, accepted: str) -> Any:
    return visitor.client.get(path, headers={"accept": "text/html", "accept-language": accepted})


@pytest.mark.parametrize(
    ("accepted", "shown", "heading"),
    [
        ("", ("en", "ltr"), "Sign in"),
        ("fr;q=0.9, *;q=0.1", ("en", "ltr"), "Sign in"),
        ("fr, de-AT;q=0.8, en;q=0.5", ("de", "ltr"), "Anmelden"),
        ("ar", ("ar", "rtl"), "تسجيل الدخول"),
    ],
)
@pytest.mark.django_db
def test_a_page_is_in_the_language_of_the_browser(accepted: str, shown: tuple[str, str], heading: str) -> None:
    response = open_in(Visitor(), SIGN_IN, accepted)
    assert language_of(response) == shown
    assert f"<h1>{heading}</h1>" in response.content.decode()
    assert ("script-texts" in response.content.decode()) is (shown[0] != "en")
    assert translation.get_language() == "en"


@pytest.mark.django_db
def test_a_cookie_takes_precedence_over_the_browser(settings: Any) -> None:
    visitor = Visitor()
    visitor.client.cookies[settings.LANGUAGE_COOKIE_NAME] = "de"
    assert language_of(open_in(visitor, SIGN_IN, "ar")) == ("de", "ltr")
    visitor.client.cookies[settings.LANGUAGE_COOKIE_NAME] = "tlh"
    assert language_of(open_in(visitor, SIGN_IN, "ar")) == ("ar", "rtl")


def test_the_choice_of_the_account_takes_precedence_over_cookie_and_browser(world: World, settings: Any) -> None:
    visitor = Visitor(world.olivia)
    response = visitor.send(ACCOUNT, {"action": "language", "language": "de"})
    assert (response.status_code, response.cookies[settings.LANGUAGE_COOKIE_NAME].value) == (302, "de")
    shown = open_in(visitor, page(world.acme), "ar")
    assert language_of(shown) == ("de", "ltr")
    assert ">Übersicht</a>" in shown.content.decode()
    assert "Gespeichert." in words(shown)
    # Signed out, the cookie keeps it.
    visitor.send("/app/sign-out")
    assert language_of(open_in(visitor, SIGN_IN, "ar")) == ("de", "ltr")
    visitor.client.cookies[COOKIE] = start_session(world.olivia)
    del visitor.client.cookies[settings.LANGUAGE_COOKIE_NAME]
    assert language_of(open_in(visitor, ACCOUNT, "ar")) == ("de", "ltr")
    response = visitor.send(ACCOUNT, {"action": "language", "language": ""})
    assert response.cookies[settings.LANGUAGE_COOKIE_NAME].value == ""
    assert language_of(open_in(visitor, ACCOUNT, "ar")) == ("ar", "rtl")


def test_a_language_that_does_not_exist_is_refused(world: World) -> None:
    visitor = Visitor(world.olivia)
    assert visitor.send(ACCOUNT, {"action": "language", "language": "fr"}).status_code == 400
    world.olivia.refresh_from_db()
    assert world.olivia.language == ""


def test_errors_are_in_the_language_of_the_page(world: World) -> None:
    visitor = Visitor(world.olivia)
    visitor.send(ACCOUNT, {"action": "language", "language": "de"})
    missing = visitor.open(page(world.acme, "keys/00000000-0000-7000-8000-000000000000"))
    assert (missing.status_code, language_of(missing)) == (404, ("de", "ltr"))
    assert "Seite nicht gefunden" in words(missing)
    with translation.override("de"):
        assert error_words("Maximum 20 teams per organization") == "Höchstens 20 Teams je Organisation"
        assert error_words("No such text") == "No such text"


def test_texts_of_alerts_are_translated_with_their_values() -> None:
    stored = "80% of the usage limit of the API key Web shop is used"
    assert in_reader_language(stored) == stored
    # As it was written before.
    assert in_reader_language("80 % of the usage limit of the API key Web shop is used") == stored
    with translation.override("de"):
        assert in_reader_language("The balance is $3.00, below $5.00") == "Das Guthaben ist $3.00, unter $5.00"
        assert in_reader_language(stored) == "80 % von dem Limit des API-Schlüssels Web shop sind verbraucht"
        assert in_reader_language("66.7% of requests to the model gpt-5 fail") == (
            "66.7 % der Anfragen an gpt-5 schlagen fehl"
        )
        assert in_reader_language("Another text") == "Another text"


def test_texts_of_alerts_about_prices_are_translated_to_their_last_part() -> None:
    changes = "Input: 1 → 1.5; Input above 200,000 tokens: no price → 3; Web search: 0.01 each → no price"
    text = (
        f"Prices in USD: {changes}. The organization has used the model within the last 7 days. Compare providers and "
        "models, and adjust limits of keys if needed."
    )
    assert in_reader_language(text) == text
    with translation.override("de"):
        assert in_reader_language(text) == (
            "Preise in USD: Eingabe: 1 → 1.5; Eingabe über 200,000 Tokens: kein Preis → 3; "
            "Websuche: 0.01 je Stück → kein Preis. Zuletzt 7 Tage."
        )


def test_texts_of_alerts_about_limits_are_translated_to_their_last_part(world: World) -> None:
    limit = Limit(
        organization=world.acme,
        name="a day of the week",
        scope=Limit.Scope.PROJECT,
        project=world.project,
        model="gpt-5",
        counts=Limit.Counts.REQUESTS,
        window=Limit.Window.DAY,
        amount=Decimal(10),
    )
    text = f"80% of the {describe(apply_rule(rule_of(limit), '', 1.0))}, is used"
    assert text == '80% of the limit "a day of the week" of the project on gpt-5, 10 requests a day, is used'
    with translation.override("de"):
        words = in_reader_language(text)
    assert words == "80 % von dem Limit „a day of the week“ (Projekt, gpt-5, 10 Anfragen pro Tag) sind verbraucht"


def test_descriptions_of_payments_are_translated() -> None:
    with translation.override("de"):
        assert describe_payment("Refund of Top-up, visa 4242") == "Erstattung: Aufladung, visa 4242"
        assert describe_payment("A gift of the house") == "A gift of the house"


def test_an_alert_rule_is_named_in_the_language_of_the_page(world: World) -> None:
    with translation.override("de"):
        question = naming("Remove the alert rule {name}?", "Balance below 5 USD")
        assert question == "Remove the alert rule Guthaben unter 5 USD?"
        assert naming("Remove {name}?", "A log sink") == "Remove A log sink?"


def test_messages_of_the_framework_are_in_our_own_words(world: World) -> None:
    request = RequestFactory().post("/app/form", {"name": "x" * 300})
    with translation.override("de"):
        done, form = attempt(request, lambda: read_form(request, NewProjectShape))
        assert translation.get_language() == "de"
    assert (done, form.errors) == (None, {"name": "Höchstens 255 Zeichen"})


@pytest.mark.parametrize("path", ["/organization", "/logs", "/v1/chat/completions", "/auth/sign-in/email"])
@pytest.mark.django_db
def test_the_api_stays_in_english(path: str) -> None:
    visitor = Visitor()

    def answer(language: str) -> Any:
        headers = {"accept-language": language, "accept": "application/json"}
        response = visitor.client.post(path, "{}", content_type="application/json", headers=headers)
        body = response.json()
        return response.status_code, {name: value for name, value in body.items() if "id" not in name.lower()}

    assert answer("de") == answer("en")


@pytest.mark.django_db
def test_the_admin_stays_in_english() -> None:
    response = open_in(Visitor(), "/admin/login/", "de")
    assert response.status_code == 200
    assert 'lang="en' in response.content.decode()


@pytest.mark.parametrize(
    ("chosen", "last_page", "subject"),
    [
        ("", "en", "Reset your Model gateway password"),
        ("", "de", "Ihr Passwort zurücksetzen"),
        ("de", "en", "Ihr Passwort zurücksetzen"),
        ("en", "de", "Reset your Model gateway password"),
        ("fr", "en", "Reset your Model gateway password"),
    ],
)
def test_an_email_is_in_the_language_of_its_recipient(
    world: World, settings: Any, chosen: str, last_page: str, subject: str
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    User.objects.filter(pk=world.olivia.pk).update(language=chosen, page_language=last_page)
    request_password_reset(email=world.olivia.email, address="192.0.2.1")
    send_pending_emails()
    assert [one.subject for one in mail.outbox] == [subject]


def test_the_language_of_the_last_page_is_kept_for_emails(world: World) -> None:
    visitor = Visitor(world.olivia)
    open_in(visitor, ACCOUNT, "de")
    world.olivia.refresh_from_db()
    assert (world.olivia.language, world.olivia.page_language) == ("", "de")


def test_values_that_pages_show_have_labels() -> None:
    rules = [text for rule in system_rules().values() for text in (rule.name, rule.summary) if text]
    choices = [*Action.choices, *Violation.ActionTaken.choices, *Plan.choices, *Limit.Counts.choices, *KindName.choices]
    shown = [*rules, *(label for _, label in choices if label not in ("USD",)), *SCOPES.values(), *Role.values]
    assert [text for text in shown if text not in LABELS] == []
