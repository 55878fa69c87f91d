"""Settings that are not fit to serve with, as a process finds them: from its environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from apps.catalog.price_lists import KINDS
from gateway_project.configuration.data_directory import PROJECT
from gateway_project.diagnosis import unsafe_settings
from gateway_project.diagnosis.unsafe_settings import find_unsafe

SAFE = {
    "GATEWAY_MODE": "production",
    "SECRET_KEY": "kJ8s0-Vw2nQx7RfTz4LmYc9BhD1eGaUo6pIiS3_Q7tM",
    "API_KEY_PEPPER": "Zq5XvN-1bWm8KdPj0HrEu6TyGo3CfLsAa9_iRx4Vw2E",
    "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    "ALLOWED_HOSTS": "gateway.example",
    "PUBLIC_URL": "https://gateway.example",
    "METRICS_TOKEN": "mT7q-2Lw9xVc4Kb8Rz0e",
    "EMAIL_URL": "smtp://mail.example",
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    "REDIS_URL": "redis://127.0.0.1:1/0",
}
# The beginning of `manage.py check`, without the rest of Django: a fifth of its time.
CHECK = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway_project.settings"
from gateway_project.diagnosis.unsafe_settings import find_unsafe
found = find_unsafe()
print(*(one.as_django() for one in found), sep="\\n", file=sys.stderr)
sys.exit(any(one.is_error for one in found))
"""
RANDOM = "Wd3-Pk7zQ0vYx9TsLc5mRb1NfGh8JeUa4oIi2Zq6Xr"


def start(home: Path, *code: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a safe production environment, changed; an empty value takes a variable away."""
    environment = {**SAFE, **changes, "GATEWAY_HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, *code],
        cwd=PROJECT,
        env={name: value for name, value in environment.items() if value},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_safe_production_has_nothing_to_say(tmp_path: Path) -> None:
    done = start(tmp_path, "manage.py", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "System check identified no issues (0 silenced).\n"


@pytest.mark.parametrize(
    ("identifier", "changes"),
    [
        ("gateway.E001", {"ENCRYPTION_KEYS": "nonsense"}),
        ("gateway.E001", {"ENCRYPTION_KEYS": f"{SAFE['ENCRYPTION_KEYS']},short"}),
        ("gateway.E002", {"ALLOWED_HOSTS": ""}),
        ("gateway.E002", {"ALLOWED_HOSTS": "gateway.example,*"}),
        ("gateway.E003", {"SECRET_KEY": RANDOM[:39]}),
        ("gateway.E004", {"API_KEY_PEPPER": RANDOM[:39]}),
        ("gateway.E003", {"SECRET_KEY": "a" * 50}),
        ("gateway.E003", {"SECRET_KEY": "0123456789abcdef" * 4}),
        ("gateway.E003", {"SECRET_KEY": "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ"}),
        ("gateway.E003", {"SECRET_KEY": f"django-insecure-{RANDOM}"}),
        ("gateway.E003", {"SECRET_KEY": f"changeme-{RANDOM}"}),
        ("gateway.E004", {"API_KEY_PEPPER": "password" * 6}),
        ("gateway.E004", {"API_KEY_PEPPER": "ab" * 60}),
        ("gateway.E007", {"ENCRYPTION_KEYS": "A" * 43 + "="}),
        ("gateway.E008", {"SECRET_KEY": RANDOM, "API_KEY_PEPPER": RANDOM}),
        ("gateway.E008", {"API_KEY_PEPPER": SAFE["ENCRYPTION_KEYS"]}),
        ("gateway.E008", {"METRICS_TOKEN": SAFE["SECRET_KEY"]}),
        ("gateway.E008", {"ENCRYPTION_KEYS": f"{SAFE['ENCRYPTION_KEYS']},{SAFE['ENCRYPTION_KEYS']}"}),
        ("gateway.E009", {"METRICS_TOKEN": ""}),
        ("gateway.E009", {"METRICS_TOKEN": "m" * 20}),
        ("gateway.E009", {"METRICS_TOKEN": RANDOM[:15]}),
        ("gateway.E005", {"DATABASE_URL": ""}),
        ("gateway.E006", {"REDIS_URL": ""}),
        ("gateway.E016", {"DATABASE_URL": "postgresql://postgres:postgres@db.example/gateway"}),
        ("gateway.E016", {"DATABASE_URL": "postgresql://owner@db.example/gateway"}),
        ("gateway.E016", {"DATABASE_URL": "postgresql://gate:gate@10.0.0.5,10.0.0.6/gateway"}),
        ("gateway.E016", {"DATABASE_REPLICA_URL": "postgresql://reader@10.0.0.7/gateway"}),
        ("gateway.E016", {"REDIS_URL": "redis://valkey.example:6379/0"}),
        ("gateway.E016", {"REDIS_URL": "rediss://:redis@valkey.example:6379/0"}),
        ("gateway.E016", {"REDIS_URL": "redis+cluster://10.0.0.8:6379", "CELERY_BROKER_URL": "redis://127.0.0.1:1/1"}),
        ("gateway.E016", {"REDIS_URL": "redis+sentinel://10.0.0.8:26379/0?service=main"}),
        ("gateway.E016", {"CACHE_URL": "redis://cache.example:6379/0"}),
        ("gateway.E016", {"CELERY_BROKER_URL": "redis://queue.example:6379/0"}),
        ("gateway.E017", {"SIGN_UP": "open", "EMAIL_VERIFICATION": "false"}),
        ("gateway.E018", {"STRIPE_SECRET_KEY": "sk_test_0000000000"}),
        ("gateway.E018", {"STRIPE_SECRET_KEY": "rk_test_0000000000"}),
        ("gateway.E018", {"STRIPE_PUBLISHABLE_KEY": "pk_test_0000000000"}),
    ],
)
def test_an_unsafe_production_refuses(tmp_path: Path, identifier: str, changes: dict[str, str]) -> None:
    done = start(tmp_path, "-c", CHECK, **changes)
    assert done.returncode == 1
    assert identifier in done.stderr
    for name, value in changes.items():
        # Its first characters are looked for as well: a message must not begin to tell it.
        if name != "ALLOWED_HOSTS" and value:
            # A word of the message may be a setting's value.
            assert len(value) < 12 or value[:12] not in done.stderr
            assert value in {"open", "false"} or value not in done.stderr


@pytest.mark.parametrize(
    ("identifier", "changes"),
    [
        ("gateway.W001", {"PUBLIC_URL": "http://localhost:8000"}),
        ("gateway.W001", {"PUBLIC_URL": "http://gateway.example"}),
        ("gateway.W002", {"METRICS_TOKEN": "", "METRICS_PUBLIC": "true"}),
        ("gateway.W004", {"EMAIL_URL": ""}),
        ("gateway.W003", {"GATEWAY_ALLOW_PRIVATE_ADDRESSES": "true"}),
    ],
)
def test_a_doubtful_production_is_warned(tmp_path: Path, identifier: str, changes: dict[str, str]) -> None:
    done = start(tmp_path, "-c", CHECK, **changes)
    assert done.returncode == 0
    assert identifier in done.stderr


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"OPENAI_BASE_URL": "ftp://me:hunter22@example.com"}, "OPENAI_BASE_URL must be an http:// or https:// URL"),
        ({"ANTHROPIC_BASE_URL": "models.example.com/v1"}, "ANTHROPIC_BASE_URL must be an http:// or https:// URL"),
        ({"VERTEX_BASE_URL": "https://"}, "VERTEX_BASE_URL must be an http:// or https:// URL"),
        ({"GROQ_BASE_URL": "https://models.example.com:port/v1"}, "GROQ_BASE_URL is no URL."),
        (
            {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "PORT": "8000"},
            "OPENAI_BASE_URL leads to this gateway itself",
        ),
        ({"XAI_BASE_URL": "http://localhost:9000/v1", "PORT": "9000"}, "XAI_BASE_URL leads to this gateway itself"),
    ],
)
def test_another_address_of_a_provider_must_lead_there(tmp_path: Path, changes: dict[str, str], fault: str) -> None:
    done = start(tmp_path, "-c", CHECK, **changes)
    assert (done.returncode, fault in done.stderr, "hunter22" in done.stderr) == (1, True, False)
    assert "gateway.E015" in done.stderr


def test_providers_may_have_other_addresses(tmp_path: Path) -> None:
    addresses = {"OPENAI_BASE_URL": "http://127.0.0.1:9000/v1", "AZURE_BASE_URL": "https://models.example.com/{region}"}
    # A deployment that does not state its own port may mean another server by the gateway's port.
    addresses["XAI_BASE_URL"] = "http://localhost:8000/v1"
    done = start(tmp_path, "-c", CHECK, **addresses, GATEWAY_BASE_URL="what others call so")
    assert (done.returncode, done.stderr) == (0, "\n")


def test_the_way_of_email_is_named_and_its_password_is_not_told(tmp_path: Path) -> None:
    done = start(tmp_path, "-m", "gateway_project.diagnosis.startup", EMAIL_URL="smtq://user:hunter22@mail.example")
    assert done.returncode == 1
    [told] = done.stdout.splitlines()
    assert told.startswith("- EMAIL_URL must be a URL that begins with one of ")
    assert "smtp+tls://" in told
    assert "hunter22" not in told


SETTINGS = "from django.conf import settings; print(settings.EMAIL_FILE_PATH, settings.EMAIL_BACKEND)"


@pytest.mark.parametrize(
    ("url", "folder"), [("filemail:///var/spool/mails", "/var/spool/mails"), ("filemail:///a%20folder/", "/a folder/")]
)
def test_email_in_files_goes_to_the_folder_of_the_url(tmp_path: Path, url: str, folder: str) -> None:
    program = f"import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'gateway_project.settings'; {SETTINGS}"
    done = start(tmp_path, "-c", program, EMAIL_URL=url)
    assert done.stdout == f"{folder} django.core.mail.backends.filebased.EmailBackend\n", done.stderr


@pytest.mark.parametrize("url", ["filemail://", "filemail:///", "filemail://mails/here"])
def test_email_in_files_needs_a_whole_path(tmp_path: Path, url: str) -> None:
    done = start(tmp_path, "-m", "gateway_project.diagnosis.startup", EMAIL_URL=url)
    assert (done.returncode, done.stdout) == (
        1,
        "- EMAIL_URL must name a folder by its whole path, as in filemail:///var/spool/gateway-mail\n",
    )


def test_a_database_that_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    done = start(tmp_path, "manage.py", "prepare")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("CommandError: PostgreSQL cannot be reached at DATABASE_URL: ")
    assert "Traceback" not in done.stderr


def test_the_web_process_refuses_too(tmp_path: Path) -> None:
    done = start(tmp_path, "-c", "import gateway_project.wsgi", SECRET_KEY="short", ALLOWED_HOSTS="*")
    assert done.returncode == 1
    assert "ImproperlyConfigured: These settings are not safe to serve with:" in done.stderr
    assert "gateway.E002" in done.stderr
    assert "gateway.E003" in done.stderr
    assert start(tmp_path, "-c", "import gateway_project.wsgi").returncode == 0


def test_a_command_refuses_before_it_does_anything(tmp_path: Path) -> None:
    done = start(tmp_path, "manage.py", "set_plan", "Acme", "pro", ALLOWED_HOSTS="*")
    assert done.returncode == 1
    assert "gateway.E002" in done.stderr


def test_development_makes_its_own_secrets(tmp_path: Path) -> None:
    unset = dict.fromkeys(SAFE, "")
    done = start(tmp_path, "manage.py", "check", **unset)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_that_is_missing_in_production_is_told_at_once(tmp_path: Path) -> None:
    missing = dict.fromkeys(("SECRET_KEY", "API_KEY_PEPPER", "ENCRYPTION_KEYS"), "")
    done = start(tmp_path, "-m", "gateway_project.diagnosis.startup", **missing)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [f"- {name} must be set in production" for name in missing]


def test_all_that_is_wrong_is_told_in_one_run(tmp_path: Path) -> None:
    """Values that cannot be read, and values that are not safe: a line each, with what to do."""
    wrong = {
        "SECRET_KEY": "",
        "UPSTREAM_IDLE_TIMEOUT": "soon",
        "ALLOWED_HOSTS": "*",
        "DATABASE_URL": "postgresql://postgres:postgres@db.example/gateway",
        "REDIS_URL": "redis://valkey.example:6379/0",
        "SIGN_UP": "open",
        "EMAIL_VERIFICATION": "false",
        "STRIPE_SECRET_KEY": "sk_test_0000000000",
    }
    begins = [
        "SECRET_KEY must be set in production",
        "UPSTREAM_IDLE_TIMEOUT must be a number; it is 'soon'",
        "ALLOWED_HOSTS must name the hosts that are served. `*` is not one.",
        "DATABASE_URL leads over a network and has a password that is tried first. Set one",
        "REDIS_URL leads over a network and has no password. Set one",
        "CACHE_URL leads over a network and has no password. Set one",
        "SIGN_UP is open and EMAIL_VERIFICATION is off: anyone can create accounts with other people's addresses.",
        "STRIPE_SECRET_KEY is a test key of Stripe: credits would be given for cards that pay nothing. Set",
    ]
    told = start(tmp_path, "-m", "gateway_project.diagnosis.startup", **wrong)
    assert (told.returncode, told.stderr) == (1, "")
    assert [line[: len(begin) + 2] for line, begin in zip(told.stdout.splitlines(), begins, strict=True)] == [
        f"- {begin}" for begin in begins
    ]
    command = start(tmp_path, "manage.py", "prepare", **wrong)
    assert (command.returncode, command.stderr.splitlines()) == (1, [line[2:] for line in told.stdout.splitlines()])
    web = start(tmp_path, "-c", "import gateway_project.wsgi", **wrong)
    assert web.returncode == 1
    assert [begin for begin in begins if begin not in web.stderr] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"DATABASE_URL": "postgresql://postgres:postgres@localhost/gateway", "REDIS_URL": "redis://localhost:1/0"},
        {"DATABASE_URL": "postgresql:///gateway?host=/run/postgresql", "REDIS_URL": "unix:///run/valkey.sock?db=0"},
        {"DATABASE_URL": "postgresql://[::1]:1/gateway", "REDIS_URL": "redis://127.0.0.2:1/0"},
        {"DATABASE_URL": f"postgresql://gate:{RANDOM}@db.example/gateway", "REDIS_URL": f"redis://:{RANDOM}@v.example"},
        {"DATABASE_URL": "postgresql://gate@db.example/gateway?sslcert=/etc/gate.pem&sslkey=/etc/gate.key"},
        {"DATABASE_URL": "postgresql://gate@db.example/gateway", "PGPASSFILE": "/etc/pgpass"},
        {"REDIS_URL": "rediss://valkey.example:6380/0?ssl_certfile=/etc/gate.pem"},
        {"SIGN_UP": "open"},
        {"SIGN_UP": "invite", "EMAIL_VERIFICATION": "false"},
        {"STRIPE_SECRET_KEY": "sk_live_0000000000"},
        {"PUBLIC_URL": "http://127.0.0.1:8000"},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_a_trial_on_this_machine_and_other_proofs_are_let_be(tmp_path: Path, changes: dict[str, str]) -> None:
    done = start(tmp_path, "-m", "gateway_project.diagnosis.startup", **changes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_unsafe_is_told_and_stores_may_be_the_servers_own(tmp_path: Path) -> None:
    stores = {"DATABASE_URL": "", "REDIS_URL": ""}
    done = start(tmp_path, "-m", "gateway_project.diagnosis.startup", ALLOWED_HOSTS="*", **stores)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "- ALLOWED_HOSTS must name the hosts that are served. `*` is not one.\n"
    safe = start(tmp_path, "-m", "gateway_project.diagnosis.startup", **stores)
    assert (safe.returncode, safe.stdout, safe.stderr) == (0, "", "")


def test_a_command_says_what_is_wrong_and_shows_no_traceback(tmp_path: Path) -> None:
    done = start(tmp_path, "manage.py", "check", UPSTREAM_IDLE_TIMEOUT="soon")
    assert (done.returncode, done.stderr) == (1, "UPSTREAM_IDLE_TIMEOUT must be a number; it is 'soon'\n")


PACKED = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway_project.settings"
import django
django.setup()
from django.core.management import call_command
from django.templatetags.static import static
from django.test import Client

def fetch(address, accepted):
    headers = {"host": "gateway.example", "accept-encoding": accepted}
    answer = Client().get(address, headers=headers, secure=True)
    print(address, answer.status_code, answer.headers.get("Content-Encoding"), answer.headers["Cache-Control"])
    return answer.getvalue().decode(errors="replace")

print(static("console/playground.js"))
call_command("collectstatic", interactive=False, verbosity=0)
fetch(static("console/playground.js"), "gzip")
script = fetch(static("console/playground.js"), "identity")
fetch("/static/console/playground.js", "identity")
print(script.partition("./")[2].partition('"')[0])
print(static("console/playground-lane.js"), static("unfold/css/styles.css"))
"""
_KEPT = "max-age=315360000, public, immutable"


def test_in_production_static_files_are_packed_and_kept_under_the_hash_of_their_content(tmp_path: Path) -> None:
    done = start(tmp_path, "-c", PACKED)
    assert done.returncode == 0, done.stderr
    lines = re.sub(r"\.[0-9a-f]{12}\.", ".HASH.", done.stdout).splitlines()
    assert lines == [
        # Before they are collected.
        "/static/console/playground.js",
        f"/static/console/playground.HASH.js 200 gzip {_KEPT}",
        f"/static/console/playground.HASH.js 200 None {_KEPT}",
        "/static/console/playground.js 200 None max-age=60, public",
        "playground-lane.HASH.js",
        "/static/console/playground-lane.HASH.js /static/unfold/css/styles.HASH.css",
    ]
    packed = {path.name.removesuffix(".gz") for path in (tmp_path / "static").rglob("*.gz")}
    assert "swagger-ui-bundle.js" in packed
    assert "swagger-ui-bundle.js.map" not in packed


BOUNDS_BY_PLAN = {
    "FILE_BYTES": ("FILE_BYTES_FREE", "FILE_BYTES_PRO", "FILE_BYTES_ENTERPRISE"),
    "BATCHES_IN_PROGRESS": ("BATCHES_IN_PROGRESS_FREE", "BATCHES_IN_PROGRESS_PRO", "BATCHES_IN_PROGRESS_ENTERPRISE"),
    "BATCH_LINES_IN_PROGRESS": (
        "BATCH_LINES_IN_PROGRESS_FREE",
        "BATCH_LINES_IN_PROGRESS_PRO",
        "BATCH_LINES_IN_PROGRESS_ENTERPRISE",
    ),
}


def test_bounds_of_plans_are_read_from_the_environment(tmp_path: Path) -> None:
    code = f"from gateway_project import settings; print([getattr(settings, name) for name in {list(BOUNDS_BY_PLAN)}])"
    stated = {name: str(number) for names in BOUNDS_BY_PLAN.values() for number, name in enumerate(names, 1)}
    done = start(tmp_path, "-c", code, **stated)
    assert done.stdout.strip() == str([{"free": 1, "pro": 2, "enterprise": 3}] * 3), done.stderr
    done = start(tmp_path, "-c", code)
    assert done.stdout.strip() == str([{"free": None, "pro": None, "enterprise": None}] * 3), done.stderr
    refused = start(tmp_path, "-c", code, BATCHES_IN_PROGRESS_FREE="0")
    assert "BATCHES_IN_PROGRESS_FREE must be between 1 and 1,000,000; it is 0" in refused.stderr


@pytest.mark.parametrize(
    ("lists", "applied", "problems"),
    [
        ([], [], []),
        (
            ["litellm=/var/lib/lists/a.json", "modelsdev=https://models.dev/api.json"],
            ["falling_prices", "deactivations", "new_models"],
            [],
        ),
        (["prices=/a.json"], [], ["CATALOG_PRICE_LISTS has 'prices', which is not a kind of price list."]),
        (["litellm"], [], ["CATALOG_PRICE_LISTS has 'litellm', which is not a kind of price list."]),
        (
            ["litellm=lists/a.json"],
            [],
            ["CATALOG_PRICE_LISTS has a place for litellm that is neither an address nor a file."],
        ),
        (
            ["litellm=https://user:hunter22@lists.example/a.json"],
            [],
            ["CATALOG_PRICE_LISTS has a place for litellm that is neither an address nor a file."],
        ),
        (["litellm=/a.json", "litellm=/b.json"], [], ["CATALOG_PRICE_LISTS has a kind twice."]),
        ([], ["rising_prices"], ["CATALOG_APPLY has 'rising_prices'."]),
    ],
)
def test_price_lists_and_what_is_applied_are_named(
    settings: Any, lists: list[str], applied: list[str], problems: list[str]
) -> None:
    settings.CATALOG_PRICE_LISTS, settings.CATALOG_APPLY = lists, applied
    found = [one.message for one in find_unsafe() if one.code in {"gateway.E019", "gateway.E020"}]
    assert found == problems


def test_the_kinds_of_price_lists_are_those_that_are_read() -> None:
    assert set(unsafe_settings.PRICE_LISTS) == set(KINDS)
