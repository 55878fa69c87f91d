"""Sentences of alerts, for pages and e-mails in other languages.

Alerts are stored in English, as destinations and the API have them. A reader gets the translation of the sentence that
a stored text was made from, with its values.
"""

from __future__ import annotations

import re
from typing import Final

from django.utils.translation import gettext_noop

from apps.catalog.price_words import AMOUNT_SENTENCES, PRICE_SENTENCES
from apps.kernel.pages.languages import translated_sentence

# As `conditions.py`, `counted.py` and `kind_names.py` write them; the specific ones first.
SENTENCES: Final = (
    gettext_noop("The balance is {balance}, below {amount}"),
    gettext_noop(
        "The organization has {balance} of credits left. Requests that are paid with credits are refused once they are "
        "used up. Top up, or turn on automatic top-up."
    ),
    gettext_noop("The balance lasts about {days} days"),
    gettext_noop(
        "The organization has {balance} of credits left, and spent {pace} a day over the last {period} days. At that "
        "pace they last {days} days. Top up, or turn on automatic top-up."
    ),
    gettext_noop("{percent}% of {limit} is used"),
    gettext_noop("{use}. Requests beyond it are refused. Raise the limit, or find out what spends it."),
    gettext_noop("{use}. Requests are refused once it is reached. Raise the limit, or find out what spends it."),
    gettext_noop("{use}. Raise the limit, or find out what spends it."),
    gettext_noop("Spending today is {factor} times the usual"),
    gettext_noop(
        "{spent} was spent on {day} (UTC) so far. The median of the last {period} days with requests is {usual}. See "
        "which model and key it was, and limit the key if it should not go on."
    ),
    gettext_noop("{share} of requests to the model {name} fail"),
    gettext_noop("{share} of requests to the provider {name} fail"),
    gettext_noop(
        "{errors} of {requests} requests in the last 15 minutes ended with an error. See the errors in the log, and "
        "use another model or provider until it works."
    ),
    gettext_noop("The p95 latency of the model {name} is {seconds} s"),
    gettext_noop("The p95 latency of the provider {name} is {seconds} s"),
    gettext_noop(
        "5% of {requests} requests in the last 15 minutes took longer than {seconds} s; the rule's threshold is "
        "{threshold} s. See the slow requests in the log, and use another model or provider until it is faster."
    ),
    gettext_noop("The API key {key} has not been used for {days} days"),
    gettext_noop(
        "The key {key} has had no request since {day}. A key that is not used can leak unnoticed: switch it off or "
        "delete it."
    ),
    gettext_noop("The model {model} at {provider} retires in {days} days, on {day}"),
    gettext_noop("The model {model} at {provider} is retired since {day}"),
    gettext_noop(
        "Requests to it go to another provider of the model, or are refused if there is none. The organization has "
        "used it within the last {period} days. Move to another model before then."
    ),
    gettext_noop(
        "Requests to it go to another provider of the model, or are refused if there is none. The organization has "
        "used it within the last {period} days. Move to another model now."
    ),
    gettext_noop("The price of {model} at {provider} changed"),
    gettext_noop(
        "Prices in USD: {changes}. The organization has used the model within the last {period} days. Compare "
        "providers and models, and adjust limits of keys if needed."
    ),
    gettext_noop("The log sink {name} is switched off"),
    gettext_noop("The MCP server {name} is switched off"),
    gettext_noop("The alert destination {name} is switched off"),
    gettext_noop("It failed for three days. Last error: {error}. It gets nothing until it is switched on again."),
    gettext_noop("A member switched it off. It gets nothing until it is switched on again."),
    gettext_noop("A payment of {amount} failed"),
    gettext_noop("The pro plan could not be renewed"),
    gettext_noop(
        "The payment for the pro plan failed. It is tried again, and the plan stays for seven days after the end of "
        "the paid period. Add another payment method to keep it."
    ),
    gettext_noop("{payment}. Nothing was charged. Try again, or add another payment method."),
    # Rules.
    gettext_noop("Balance below {amount} USD"),
    gettext_noop("Balance lasts less than {days} days"),
    gettext_noop("{percent}% of a limit used"),
    gettext_noop("Spending of a day above {factor} times the usual, and above {floor} USD"),
    gettext_noop("Error rate of a model above {percent}% in 15 minutes ({name})"),
    gettext_noop("Error rate of a provider above {percent}% in 15 minutes ({name})"),
    gettext_noop("Error rate of a model above {percent}% in 15 minutes"),
    gettext_noop("Error rate of a provider above {percent}% in 15 minutes"),
    gettext_noop("p95 latency of a model above {milliseconds} ms in 15 minutes ({name})"),
    gettext_noop("p95 latency of a provider above {milliseconds} ms in 15 minutes ({name})"),
    gettext_noop("p95 latency of a model above {milliseconds} ms in 15 minutes"),
    gettext_noop("p95 latency of a provider above {milliseconds} ms in 15 minutes"),
    gettext_noop("API key not used for {days} days"),
    gettext_noop("Model in use retires within {days} days"),
    gettext_noop("Price of a model in use changed"),
    gettext_noop("Log sink, MCP server or alert destination off"),
    gettext_noop("Payment or top-up failed"),
)
_USES: Final = (
    gettext_noop("{used} of {amount} requests are used"),
    gettext_noop("{used} of {amount} input tokens are used"),
    gettext_noop("{used} of {amount} output tokens are used"),
    gettext_noop("{used} of {amount} tokens are used"),
    gettext_noop("{used} of {amount} is used"),
)
# As `describe` of `apps.limits.applied` writes limits.
_LIMITS: Final = (
    gettext_noop("the usage limit of the API key {key}"),
    gettext_noop("the limit per hour of the API key {key}"),
    gettext_noop("the limit per day of the API key {key}"),
    gettext_noop("the limit per week of the API key {key}"),
    gettext_noop("the limit per month of the API key {key}"),
    gettext_noop('the limit "{name}" of the {owner}, {measure},'),
)
_OWNERS: Final = (
    gettext_noop("{owner} on {model} at {provider}"),
    gettext_noop("{owner} on {model}"),
    gettext_noop("{owner} at {provider}"),
    gettext_noop("model {model}"),
    gettext_noop("provider {provider}"),
    # Translators: Whose limit it is.
    gettext_noop("organization"),
    gettext_noop("team"),
    gettext_noop("project"),
    gettext_noop("member"),
    gettext_noop("API key"),
    gettext_noop("end user"),
)
_MEASURES: Final = (
    # Translators: {window} is “a day”, “in all”, “in 24 hours”, …
    gettext_noop("{amount} USD {window}"),
    gettext_noop("{amount} requests {window}"),
    gettext_noop("{amount} input tokens {window}"),
    gettext_noop("{amount} output tokens {window}"),
    gettext_noop("{amount} tokens {window}"),
)
_WINDOWS: Final = (
    gettext_noop("in all"),
    gettext_noop("an hour"),
    gettext_noop("a day"),
    gettext_noop("a week"),
    gettext_noop("a month"),
    gettext_noop("in {number} hours"),
    gettext_noop("in {number} days"),
)
# As `conditions.py` lists the changes of prices.
_CHANGES: Final = (gettext_noop("{change}; {changes}"), gettext_noop("{price}: {old} → {new}"))
# Values that are sentences themselves, by their names.
NESTED: Final = {
    "use": _USES,
    "limit": _LIMITS,
    "owner": _OWNERS,
    "measure": _MEASURES,
    "window": _WINDOWS,
    "share": (gettext_noop("{number}%"),),
    "change": _CHANGES,
    "changes": _CHANGES,
    "price": PRICE_SENTENCES,
    "old": AMOUNT_SENTENCES,
    "new": AMOUNT_SENTENCES,
}
# How alerts began that are still stored: `80 % of …`.
_OLD_PERCENT: Final = re.compile(r"^(\d+) %")


def in_reader_language(text: str) -> str:
    """Return a text of an alert or a rule in the active language; unchanged without a known sentence."""
    return translated_sentence(_OLD_PERCENT.sub(r"\1%", text), SENTENCES, NESTED)
