"""The search of the admin: one box that finds customers, people, keys, requests, payments, models and providers.

Each query uses an index and returns a bounded number of rows, and each kind is searched only for
operators who may see its table. Texts are found by their beginning, ids and last characters of keys exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Collate, Upper
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.billing.models import Transaction
from apps.catalog.models import Model, ModelProvider, Provider
from apps.kernel.ids import find_id
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog, find_time
from apps.organizations.models import Organization, Project, User
from gateway_project.admin_site import navigation

# Results of each kind, characters of a search, and the fewest of one that searches for a beginning.
MAX_RESULTS: Final = 10
MAX_TERM: Final = 254
MIN_BEGINNING: Final = 2
# The most time between the making of a request's `x-request-id` and of its row's id; either may be first.
_ADMISSION: Final = timedelta(seconds=10)
# A key as pages show it: its beginning, dots, its last four characters.
_MASKED: Final = re.compile(r"(?P<prefix>[0-9A-Za-z_]{0,16})(?:\.\.\.|…)(?P<last>[0-9A-Za-z]{4})")
_LAST_FOUR: Final = re.compile(r"[0-9A-Za-z]{4}")
# Ids of the payment processor: the column of each, and the types of transactions that its index covers.
_PROCESSOR_IDS: Final = {
    "pi_": {"type": Transaction.Type.CREDIT_TOPUP, "column": "processor_payment_intent_id"},
    "re_": {"column": "processor_refund_id"},
}


class Found(NamedTuple):
    """One result: what it is called, a line about it, and the address of its page."""

    title: str
    about: str
    link: str


class ResultKind(NamedTuple):
    """A kind of result: its heading, the permission to see it, and the search."""

    title: str
    permission: str
    find: Callable[[str, UUID | None], Iterable[Found]]


class Group(NamedTuple):
    """The results of one kind."""

    title: str
    results: list[Found]


def search(request: HttpRequest, term: str) -> list[Group]:
    """Return what the term finds, by kind, for the tables that the operator may see; kinds without results are left
    out."""
    term = " ".join(term.split())[:MAX_TERM]
    if not term:
        return []
    identifier = find_id(term)
    groups = [Group("Pages", _pages(request, term))]
    groups += [
        Group(kind.title, list(kind.find(term, identifier))[:MAX_RESULTS])
        for kind in KINDS
        if request.user.has_perm(kind.permission)
    ]
    return [one for one in groups if one.results]


def search_page(request: HttpRequest) -> HttpResponse:
    """Show the page of results of `?s=`."""
    term = request.GET.get("s", "").strip()[:MAX_TERM]
    context = {**admin.site.each_context(request), "title": "Find anything", "term": term, "is_page": True}
    return TemplateResponse(request, "admin/find.html", context | {"groups": search(request, term)})


def search_results(request: HttpRequest) -> HttpResponse:
    """Show the results of `?s=` under the search box, or as the entries of the window of Ctrl + K (`extended`), as the
    admin's theme asks for them."""
    term = request.GET.get("s", "").strip()[:MAX_TERM]
    if request.GET.get("extended"):
        results = [(group.title, one) for group in search(request, term) for one in group.results]
        return TemplateResponse(request, "admin/find_commands.html", {"term": term, "results": results})
    return TemplateResponse(request, "admin/find_results.html", {"term": term, "groups": search(request, term)})


def _pages(request: HttpRequest, term: str) -> list[Found]:
    """Return the pages of the navigation whose title has the term."""
    items = [(group["title"], item) for group in navigation.groups(request) for item in group["items"]]
    found = [
        Found(item["title"], title, item["link"]) for title, item in items if term.lower() in item["title"].lower()
    ]
    return found[:MAX_RESULTS]


def _organizations(term: str, identifier: UUID | None) -> Iterator[Found]:
    rows: QuerySet[Organization] = Organization.objects.order_by()
    for row in _by_id_or_beginning(rows, identifier, "name", term):
        yield Found(row.name or "Erased", f"{row.get_plan_display()}, {row.status}, {row.id}", _page_of(row))


def _people(term: str, identifier: UUID | None) -> Iterator[Found]:
    rows = list(_by_id_or_beginning(User.objects.order_by(), identifier, "name", term))
    if identifier is None and len(term) >= MIN_BEGINNING:
        rows += User.objects.filter(email__startswith=User.normalize_username(term)).order_by("email")[:MAX_RESULTS]
    for row in {row.pk: row for row in rows}.values():
        yield Found(row.email, row.name or "No name", _page_of(row))


def _projects(term: str, identifier: UUID | None) -> Iterator[Found]:
    if identifier is not None:
        for row in Project.objects.filter(pk=identifier).select_related("organization"):
            yield Found(row.name or "Erased", f"Project of {row.organization}", _page_of(row))


def _keys(term: str, identifier: UUID | None) -> Iterator[Found]:
    rows = ApiKey.objects.select_related("project__organization")
    if identifier is not None:
        rows = rows.filter(pk=identifier)
    elif masked := _MASKED.fullmatch(term):
        rows = rows.filter(last_four=masked["last"], prefix__startswith=masked["prefix"])
    elif _LAST_FOUR.fullmatch(term):
        rows = rows.filter(last_four=term)
    else:
        return
    for row in rows.order_by("-id")[:MAX_RESULTS]:
        about = f"{row.status}, {row.project.organization} / {row.project}"
        yield Found(f"{row.masked_token} {row.description}", about, _page_of(row))


def _requests(term: str, identifier: UUID | None) -> Iterator[Found]:
    moment = None if identifier is None else find_time(identifier)
    if identifier is None or moment is None:
        return
    rows = list(RequestLog.objects.filter(id=identifier)[:1])
    if not rows:
        near = RequestLog.objects.filter(created_at__gt=moment - _ADMISSION, created_at__lt=moment + _ADMISSION)
        rows = list(near.filter(request_id=str(identifier)).order_by("created_at", "id")[:MAX_RESULTS])
    for row in rows:
        about = f"{row.created_at:%Y-%m-%d %H:%M:%S} UTC, status {row.status_code}"
        yield Found(f"{row.used_provider}/{row.used_model}", about, _page_of(row))


def _payments(term: str, identifier: UUID | None) -> Iterator[Found]:
    rows = Transaction.objects.select_related("organization")
    if identifier is not None:
        rows = rows.filter(pk=identifier)
    elif (known := _PROCESSOR_IDS.get(term[:3])) is not None:
        rows = rows.filter(**{known["column"]: term}, **({"type": known["type"]} if "type" in known else {}))
    else:
        return
    for row in rows.order_by()[:MAX_RESULTS]:
        title = f"{row.get_type_display()}, {row.amount:.2f} {row.currency}"
        yield Found(title, f"{row.status}, {row.organization}, {row.created_at:%Y-%m-%d}", _page_of(row))


def _models(term: str, identifier: UUID | None) -> Iterator[Found]:
    # The catalog has some hundred rows: a part of an id is found as well.
    for row in Model.objects.filter(id__icontains=term).order_by("id")[:MAX_RESULTS]:
        yield Found(row.id, row.name, reverse("admin:model", args=[row.pk]))


def _offers(term: str, identifier: UUID | None) -> Iterator[Found]:
    provider, _, model = term.partition("/")
    rows = ModelProvider.objects.filter(provider_id=provider, model__id__startswith=model) if model else ()
    for row in [*rows][:MAX_RESULTS]:
        yield Found(str(row), "Offer and price", _page_of(row))


def _providers(term: str, identifier: UUID | None) -> Iterator[Found]:
    for row in Provider.objects.filter(id__icontains=term).order_by("id")[:MAX_RESULTS]:
        yield Found(row.name, row.id, _page_of(row))


def _by_id_or_beginning(rows: QuerySet[Any], identifier: UUID | None, column: str, term: str) -> QuerySet[Any]:
    """Return the row with an id; without one the rows whose column begins with the term, in any case."""
    if identifier is not None:
        return rows.filter(pk=identifier)
    if len(term) < MIN_BEGINNING:
        return rows.none()
    # The expression of the index.
    keyed: QuerySet[Any] = rows.alias(key=Collate(Upper(column), "C"))
    return keyed.filter(key__startswith=term.upper()).order_by("key")[:MAX_RESULTS]


def _page_of(row: Any) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


KINDS: Final = (
    ResultKind("Customers", "organizations.view_organization", _organizations),
    ResultKind("People", "organizations.view_user", _people),
    ResultKind("Projects", "organizations.view_project", _projects),
    ResultKind("API keys", "keys.view_apikey", _keys),
    ResultKind("Requests", "logs.view_requestlog", _requests),
    ResultKind("Payments", "billing.view_transaction", _payments),
    ResultKind("Models", "catalog.view_model", _models),
    ResultKind("Offers and prices", "catalog.view_modelprovider", _offers),
    ResultKind("Providers", "catalog.view_provider", _providers),
)
