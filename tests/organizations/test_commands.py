"""Commands that operators run."""

from __future__ import annotations

import json
import re
import stat
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password
from django.core.management import CommandError, call_command

from apps.billing.models import LedgerEntry
from apps.kernel.ids import new_id
from apps.keys.authenticate import find_api_key
from apps.keys.models import ApiKey
from apps.organizations.credentials.sessions import end_sessions, start_session
from apps.organizations.models import Organization, Plan, Project, User
from tests.support.cast import PASSWORD, Caller, World, make_organization, make_user


def run(command: str, *arguments: str, **options: Any) -> str:
    """Run a command and return what it says."""
    said = StringIO()
    call_command(command, *arguments, stdout=said, **options)
    return said.getvalue()


class TestSetPlan:
    def test_by_id_and_by_exact_name(self, world: World) -> None:
        said = run("set_plan", str(world.acme.id), "pro")
        assert said == f"Acme ({world.acme.id}) is on the plan pro\n"
        run("set_plan", "Elsewhere", "enterprise")
        assert list(Organization.objects.order_by("id").values_list("name", "plan")) == [
            ("Acme", Plan.PRO),
            ("Elsewhere", Plan.ENTERPRISE),
        ]

    def test_an_ambiguous_name_is_refused_with_the_ids(self, world: World) -> None:
        other = make_organization(owner=world.sam, name="Acme")
        with pytest.raises(CommandError) as raised:
            run("set_plan", "Acme", "pro")
        assert str(raised.value) == (f"2 organizations are called 'Acme'; say which by id: {world.acme.id}, {other.id}")
        assert not Organization.objects.filter(plan=Plan.PRO).exists()

    @pytest.mark.parametrize("text", ["Nobody", "acme", str(new_id())])
    def test_an_unknown_one_is_refused(self, world: World, text: str) -> None:
        with pytest.raises(CommandError, match=f"There is no organization '{text}'"):
            run("set_plan", text, "pro")
        assert not Organization.objects.filter(plan=Plan.PRO).exists()


class TestCreateOperator:
    def test_with_a_password(self, db: None) -> None:
        assert run("create_operator", "Op@Example.com", "--password", PASSWORD) == (
            "op@example.com may sign in at /admin/\n"
        )
        operator = User.objects.get()
        assert (operator.email, operator.is_staff, operator.is_superuser) == ("op@example.com", True, True)
        assert check_password(PASSWORD, operator.password)

    def test_without_one_it_is_made_and_printed_once(self, db: None) -> None:
        said = run("create_operator", "op@example.com")
        [password] = re.findall(r"^password: (\S{20,})$", said, re.MULTILINE)
        assert check_password(password, User.objects.get().password)

    def test_an_existing_user_becomes_one(self, db: None) -> None:
        user = make_user("Olivia")
        session = start_session(user)
        run("create_operator", "olivia@example.com", "--password", "another walk by the sea")
        user.refresh_from_db()
        assert (user.is_staff, user.name, User.objects.count()) == (True, "Olivia", 1)
        assert check_password("another walk by the sea", user.password)
        assert Caller(session).get("/auth/get-session").status_code == 401

    @pytest.mark.parametrize(("email", "password"), [("nobody", PASSWORD), ("op@example.com", "short")])
    def test_bad_values_are_refused(self, db: None, email: str, password: str) -> None:
        with pytest.raises(CommandError):
            run("create_operator", email, "--password", password)
        assert not User.objects.exists()


@pytest.fixture
def home(settings: Any, tmp_path: Path) -> Path:
    """A folder of the test's own to keep things in."""
    settings.GATEWAY_HOME = tmp_path
    return tmp_path


def demo() -> dict[str, Any]:
    """Return what `demo --json` prints."""
    shown: dict[str, Any] = json.loads(run("demo", "--json"))
    return shown


@pytest.mark.django_db
class TestDemo:
    def test_it_makes_everything_that_a_first_request_needs(self, home: Path, settings: Any) -> None:
        shown = demo()
        assert set(shown) == {
            *("baseUrl", "operator", "owner", "sessionToken", "organizationId", "projectId", "apiKey"),
        }
        assert shown["baseUrl"] == settings.PUBLIC_URL
        organization = Organization.objects.get()
        assert (str(organization.id), organization.plan, organization.credits) == (
            shown["organizationId"],
            Plan.ENTERPRISE,
            Decimal(100),
        )
        assert str(Project.objects.get().id) == shown["projectId"]
        key = find_api_key(shown["apiKey"])
        assert key is not None
        assert (key.status, str(key.project_id)) == (ApiKey.Status.ACTIVE, shown["projectId"])
        session = Caller(shown["sessionToken"]).get("/auth/get-session").json()
        assert session["user"]["email"] == shown["owner"]["email"]
        signed_in = Caller().post("/auth/sign-in/email", shown["owner"])
        assert signed_in.status_code == 200
        assert User.objects.get(is_staff=True).email == shown["operator"]["email"]
        assert check_password(shown["operator"]["password"], User.objects.get(is_staff=True).password)

    def test_it_shows_the_same_ever_after(self, home: Path) -> None:
        first = demo()
        assert [demo(), demo()] == [first, first]
        assert (User.objects.count(), Organization.objects.count(), ApiKey.objects.count()) == (2, 1, 1)
        assert LedgerEntry.objects.get().credits == Decimal(100)

    def test_an_organization_that_was_renamed_keeps_its_name_and_is_given_nothing(self, home: Path) -> None:
        first = demo()
        Organization.objects.update(name="Ours")
        assert demo() == first
        assert (Organization.objects.get().name, Organization.objects.get().credits) == ("Ours", Decimal(100))

    def test_what_is_kept_is_for_its_owner_only(self, home: Path) -> None:
        demo()
        assert stat.S_IMODE((home / "demo.json").stat().st_mode) == 0o600

    @pytest.mark.parametrize("kept", [None, "", "{nonsense"])
    def test_what_is_lost_is_made_anew_and_credits_are_not_given_twice(self, home: Path, kept: str | None) -> None:
        first = demo()
        if kept is None:
            (home / "demo.json").unlink()
        else:
            (home / "demo.json").write_text(kept)
        second = demo()
        assert second == demo()
        assert {name: second[name] for name in ("organizationId", "projectId")} == {
            name: first[name] for name in ("organizationId", "projectId")
        }
        for name in ("operator", "owner", "sessionToken", "apiKey"):
            assert second[name] != first[name], name
        assert Organization.objects.get().credits == Decimal(100)
        # The key that was lost is gone.
        lost = find_api_key(first["apiKey"])
        assert lost is not None
        assert lost.status == ApiKey.Status.DELETED

    def test_what_no_longer_works_is_made_anew(self, home: Path) -> None:
        first = demo()
        ApiKey.objects.update(status=ApiKey.Status.INACTIVE)
        end_sessions(User.objects.get(email=first["owner"]["email"]))
        second = demo()
        assert {name for name in first if first[name] != second[name]} == {"apiKey", "sessionToken"}

    def test_a_password_is_compared_once_for_each_stored_hash(self, home: Path) -> None:
        first = demo()
        file, email = home / "demo.json", first["owner"]["email"]
        kept = json.loads(file.read_text())
        assert kept["compared"] == dict(User.objects.values_list("email", "password"))
        # No password has this hash: to compare would be to fail.
        User.objects.filter(email=email).update(password="!none")
        file.write_text(json.dumps({**kept, "compared": {**kept["compared"], email: "!none"}}))
        assert demo() == first
        # One that was changed since is noticed.
        User.objects.filter(email=email).update(password="!other")
        assert demo()["owner"]["password"] != first["owner"]["password"]

    def test_in_words_it_says_what_to_try(self, home: Path, settings: Any) -> None:
        said = run("demo")
        assert demo()["apiKey"] in said
        assert demo()["sessionToken"] in said
        assert f"curl {settings.PUBLIC_URL}/v1/chat/completions" in said

    def test_one_value_alone_is_for_scripts(self, home: Path) -> None:
        shown = demo()
        assert run("demo", "--key") == f"{shown['apiKey']}\n"
        assert run("demo", "--session") == f"{shown['sessionToken']}\n"
        assert run("demo", "--organization") == f"{shown['organizationId']}\n"

    def test_in_production_it_refuses(self, home: Path, settings: Any) -> None:
        settings.DEVELOPMENT = False
        with pytest.raises(CommandError, match="development mode only") as raised:
            run("demo", "--json")
        assert raised.value.returncode == 1
        assert not User.objects.exists()
        assert not (home / "demo.json").exists()


def test_prepare_can_be_repeated(db: None, home: Path) -> None:
    run("prepare")
    [database, catalog, partitions, copies, account] = run("prepare", verbosity=2).splitlines()
    assert database == "database: up to date"
    assert partitions == "request log: every partition is there"
    assert copies.startswith("balances: compared ")
    assert account == "demo account: `./manage.py demo` shows it"
    # A newcomer, in development, is not told of what only an operator asks.
    assert run("prepare").splitlines() == [database, catalog, account]
    assert Organization.objects.get().credits == Decimal(100)
