"""Pages, files and settings that libraries bring along: exactly those listed here, and in docs/security.md.

A page that comes with another version of a library, or with another app, fails here until it is allowed or removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.staticfiles.finders import find, get_finders
from django.test import Client
from django.urls import NoReverseMatch, URLPattern, get_resolver, reverse
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from apps.keys.models import ApiKey
from apps.organizations.models import User
from gateway_project.configuration.data_directory import PROJECT
from tests.support.cast import PASSWORD, World, signed_in

OURS = ("apps.", "gateway_project.")
# Views of libraries, each with its place: `TABLE` is the pages of a table in the admin.
VIEWS = {
    ("favicon.ico", "django.views.generic.base.RedirectView"),
    ("docs", "django.views.generic.base.RedirectView"),
    ("app", "django.views.generic.base.RedirectView"),
    ("admin", "django.views.generic.base.RedirectView"),
    ("auth", "django.views.generic.base.RedirectView"),
    ("admin/", "unfold.sites.UnfoldAdminSite.index"),
    ("admin/login/", "django.contrib.admin.sites.AdminSite.login"),
    ("admin/logout/", "django.contrib.admin.sites.AdminSite.logout"),
    # Files that the pages themselves load.
    ("admin/jsi18n/", "django.contrib.admin.sites.AdminSite.i18n_javascript"),
    ("admin/autocomplete/", "django.contrib.admin.sites.AdminSite.autocomplete_view"),
    # Answers 404, and leads to the sign-in before.
    ("admin/(?P<url>.*)$", "django.contrib.admin.sites.AdminSite.catch_all_view"),
    ("TABLE", "unfold.admin.ModelAdmin.changelist_view"),
    ("TABLEadd/", "django.contrib.admin.options.ModelAdmin.add_view"),
    ("TABLEadd/", "django.contrib.auth.admin.UserAdmin.add_view"),
    ("TABLE<path:object_id>/change/", "django.contrib.admin.options.ModelAdmin.change_view"),
    ("TABLE<path:object_id>/delete/", "django.contrib.admin.options.ModelAdmin.delete_view"),
    ("TABLE<path:object_id>/history/", "django.contrib.admin.options.ModelAdmin.history_view"),
}
# Folders of static files that pages load, and the only files of the API reference's library.
FILES = {"admin", "admin_site", "console", "organizations", "unfold", "drf_spectacular_sidecar"}


def views() -> Iterator[tuple[str, str]]:
    """Yield every path of the URL map with its view's name."""

    def walk(patterns: list[Any], start: str) -> Iterator[tuple[str, str]]:
        for one in patterns:
            where = start + str(one.pattern)
            if isinstance(one, URLPattern):
                yield re.sub(r"^admin/[a-z_]+/[a-z]+/", "TABLE", where), name_of(one.callback)
            else:
                yield from walk(one.url_patterns, where)

    return walk(get_resolver().url_patterns, "")


def name_of(view: Any) -> str:
    """Return where a view is defined, whatever wraps it."""
    while isinstance(view, partial):
        view = view.func
    view = getattr(view, "view_class", None) or getattr(view, "__wrapped__", view)
    return f"{view.__module__}.{view.__qualname__}"


def test_no_view_of_a_library_answers_that_is_not_listed() -> None:
    found = {(where, name) for where, name in views() if not name.startswith(OURS)}
    assert found == VIEWS
    listed = (PROJECT / "docs" / "security.md").read_text()
    named = {where.removeprefix("TABLE") for where, _ in VIEWS if where.startswith(("admin/", "TABLE"))}
    assert [one for one in named if one and "(?P" not in one and f"`{one.split('/')[-2]}/`" not in listed] == []


@pytest.mark.parametrize(
    "name", ["password_change", "password_change_done", "view_on_site", "password_reset", "auth_user_view"]
)
def test_a_page_that_is_left_out_has_no_address(name: str) -> None:
    for arguments in ([], [1, 2], ["keys"]):
        with pytest.raises(NoReverseMatch):
            reverse(f"admin:{name}", args=arguments)


@pytest.fixture
def operator(world: World) -> Client:
    """An operator's browser, whose account is a superuser's."""
    user = User.objects.create_superuser(email="op@example.com", password=PASSWORD)
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    "path", ["password_change/", "password_change/done/", "r/1/1/", "keys/apikey/{}/", "password_reset/"]
)
def test_an_operator_finds_nothing_there(operator: Client, world: World, path: str) -> None:
    form = {"old_password": PASSWORD, "new_password1": "another walk", "new_password2": "another walk"}
    for answer in (operator.get(f"/admin/{path}"), operator.post(f"/admin/{path}", form)):
        assert answer.status_code == 404
    assert User.objects.get(email="op@example.com").check_password(PASSWORD)


def test_an_operators_own_password_is_not_set_without_proof(operator: Client) -> None:
    user = User.objects.get(email="op@example.com")
    path = reverse("admin:auth_user_password_change", args=[user.pk])
    new = {"usable_password": "true", "password1": "another walk by the sea", "password2": "another walk by the sea"}
    for answer in (operator.get(path), operator.post(path, new)):
        assert (answer.status_code, answer["Location"]) == (302, reverse("console:account"))
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


def test_no_list_is_filtered_by_a_column_that_it_does_not_show(operator: Client, world: World) -> None:
    """A digest, or a hashed password, would be guessed letter by letter."""
    for model, page in admin.site._registry.items():
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for field in model._meta.concrete_fields:
            if any(word in field.name for word in ("digest", "secret", "password", "checksum", "token_key", "code")):
                query = urlencode({f"{field.name}__startswith": "a"})
                answer = operator.get(f"{address}?{query}")
                assert answer.status_code == 400, (page, field.name)
    for query in ("digest__startswith=a", "pk__startswith=0", "id__gt=0", "created_by__password__startswith=a"):
        assert operator.get(f"{reverse('admin:keys_apikey_changelist')}?{query}").status_code == 400, query
    # Its own filters, and links of other pages, go on.
    for query in ("status__exact=active", f"project__organization__id__exact={world.acme.id}"):
        answer = operator.get(f"{reverse('admin:keys_apikey_changelist')}?{query}")
        assert (answer.status_code, len(answer.context["cl"].result_list)) == (200, ApiKey.objects.count())


@pytest.mark.parametrize(
    "path",
    [
        *("keys/apikey/?status=%00", "knox/authtoken/?pk__in=%00", "catalog/model/%00/change/"),
        *("autocomplete/?app_label=keys&model_name=apikey&field_name=project&term=%00", "search/?s=%00"),
    ],
)
def test_what_no_column_can_hold_never_reaches_the_database(operator: Client, path: str) -> None:
    assert operator.get(f"/admin/{path}").status_code == 400


def test_a_search_answers_the_second_time_as_the_first(operator: Client) -> None:
    first, second = (operator.get("/admin/search/?s=organ") for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    assert b"/admin/organizations/organization/" in first.content
    assert first.content.count(b"href=") == second.content.count(b"href=")


def test_static_files_are_those_that_pages_load() -> None:
    served = {path for finder in get_finders() for path, _ in finder.list(None)}
    assert {path.partition("/")[0] for path in served} == FILES
    assert [path for path in served if path.endswith((".html", ".htm", ".xml", ".swf"))] == []
    assert [path for path in served if "sidecar" in path and "/swagger-ui" not in path] == []
    for path in (
        "drf_spectacular_sidecar/swagger-ui-dist/oauth2-redirect.html",
        "drf_spectacular_sidecar/redoc/bundles/redoc.standalone.js",
        "rest_framework/js/default.js",
        "oauth2_provider/css/base.css",
    ):
        assert not find(path)
    assert find("drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js")


class TestRestFramework:
    def test_it_reads_and_writes_json_alone(self) -> None:
        names = {
            name: [one.__name__ for one in getattr(api_settings, name)]
            for name in ("DEFAULT_RENDERER_CLASSES", "DEFAULT_PARSER_CLASSES", "DEFAULT_AUTHENTICATION_CLASSES")
        }
        assert names == {
            "DEFAULT_RENDERER_CLASSES": ["JSONRenderer"],
            "DEFAULT_PARSER_CLASSES": ["JSONParser"],
            "DEFAULT_AUTHENTICATION_CLASSES": [],
        }
        assert (api_settings.URL_FORMAT_OVERRIDE, api_settings.FORMAT_SUFFIX_KWARG) == (None, None)

    def test_no_view_of_ours_says_otherwise(self) -> None:
        found = {view for view in every_subclass(APIView) if view.__module__.startswith(OURS)}
        assert found
        for view in found:
            # JSON alone; that of keys writes exact numbers.
            assert [one.__name__ for one in view.renderer_classes] in (["JSONRenderer"], ["ExactJSONRenderer"]), view
            assert [one.__name__ for one in view.parser_classes] in (["JsonParser"], ["JSONParser"]), view
            assert [one.__module__ for one in view.authentication_classes if not one.__module__.startswith(OURS)] == []

    @pytest.mark.parametrize("query", ["format=api", "format=json", "format=admin", "_method=DELETE"])
    def test_a_query_asks_for_no_other_form_or_method(self, world: World, query: str) -> None:
        caller = signed_in(world.olivia)
        plain, asked = caller.get("/organization"), caller.get(f"/organization?{query}")
        assert (asked.status_code, asked.json(), asked["Content-Type"]) == (200, plain.json(), plain["Content-Type"])
        before = ApiKey.objects.count()
        headers = {"x-http-method-override": "DELETE"}
        Client().post(f"/keys/api/{world.acme.id}?{query}", headers=headers, content_type="application/json")
        assert ApiKey.objects.count() == before


def every_subclass(of: type) -> Iterator[type[Any]]:
    """Yield all that inherit from a class."""
    for one in of.__subclasses__():
        yield one
        yield from every_subclass(one)
