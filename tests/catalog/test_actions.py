"""Proposals: read daily from the configured lists, applied by an operator, the command, or by themselves if allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import responses
from django.core.management import CommandError, call_command

from apps.catalog import actions, metrics
from apps.catalog.catalog_cache import read_catalog
from apps.catalog.load import find_differences, load
from apps.catalog.models import CatalogProposal, Model, ModelProvider, PriceChange, PriceListReading
from apps.catalog.tasks import propose
from apps.kernel.errors import InvalidRequest

pytestmark = pytest.mark.django_db
GROQ = {"litellm_provider": "groq", "output_cost_per_token": 3e-07}
# One price of Groq's falls, and its model ends; another falls to 0; a new model.
LISTED: dict[str, dict[str, Any]] = {
    "groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 5e-08, "deprecation_date": "2099-01-31"},
    "groq/openai/gpt-oss-120b": GROQ | {"input_cost_per_token": 0, "output_cost_per_token": 6e-07},
    "groq/qwen/qwen3.9-27b": GROQ
    | {
        "input_cost_per_token": 9e-07,
        "output_cost_per_token": 4.5e-06,
        "mode": "chat",
        "max_input_tokens": 131072,
        "max_output_tokens": 16384,
        "supports_function_calling": True,
    },
}


@pytest.fixture
def lists(tmp_path: Path, settings: Any) -> Callable[..., Path]:
    """Write a list of LiteLLM's that is read daily."""

    def write(entries: dict[str, Any] | bytes, kind: str = "litellm") -> Path:
        path = tmp_path / f"{kind}.json"
        path.write_bytes(entries if isinstance(entries, bytes) else json.dumps(entries).encode())
        others = [one for one in settings.CATALOG_PRICE_LISTS if not one.startswith(f"{kind}=")]
        settings.CATALOG_PRICE_LISTS = [*others, f"{kind}={path}"]
        return path

    return write


def input_price(model: str) -> str:
    """The price of input at Groq in the tables."""
    return str(ModelProvider.objects.get(provider_id="groq", model_id=model).prices["input"])


def rows() -> dict[tuple[str, str], CatalogProposal]:
    """The proposals by model and kind."""
    return {(row.model, row.kind): row for row in CatalogProposal.objects.all()}


def states() -> dict[tuple[str, str], str]:
    """The states of the proposals."""
    return {at: row.state for at, row in rows().items()}


def mappings() -> list[dict[str, Any]]:
    """All rows of offers."""
    return list(ModelProvider.objects.order_by("pk").values())


def test_nothing_is_read_unless_lists_are_configured(loaded: None, settings: Any) -> None:
    assert settings.CATALOG_PRICE_LISTS == []
    assert settings.CATALOG_APPLY == []
    with responses.RequestsMock():
        propose()
    assert (CatalogProposal.objects.count(), PriceListReading.objects.count()) == (0, 0)


def test_proposals_wait_and_nothing_changes(loaded: None, lists: Callable[..., Path]) -> None:
    path, before = lists(LISTED), mappings()
    propose()
    assert states() == {
        ("gpt-oss-20b", "prices"): "waiting",
        ("gpt-oss-20b", "deactivation"): "waiting",
        ("gpt-oss-120b", "prices"): "waiting",
        ("qwen3.9-27b", "new_model"): "waiting",
    }
    falls = rows()["gpt-oss-20b", "prices"]
    assert (falls.changes, falls.entry, falls.reasons, falls.sources, falls.disputed) == (
        [["input", "0.075", "0.05"]],
        {"offer": {"prices": {"input": "0.05"}}},
        [],
        ["litellm"],
        False,
    )
    assert rows()["gpt-oss-120b", "prices"].reasons == ["input falls to 0"]
    reading = PriceListReading.objects.get()
    assert (reading.source, reading.entries, reading.problem) == (f"litellm={path}", 3, "")
    assert mappings() == before
    assert find_differences() == []
    assert not Model.objects.filter(pk="qwen3.9-27b").exists()


def test_a_proposal_that_is_seen_again_stays_one_row(loaded: None, lists: Callable[..., Path]) -> None:
    lists(LISTED)
    propose()
    first = rows()["gpt-oss-20b", "prices"]
    propose()
    again = rows()["gpt-oss-20b", "prices"]
    assert (again.pk, again.first_seen_at, CatalogProposal.objects.count()) == (first.pk, first.first_seen_at, 4)
    assert again.seen_at > first.seen_at
    # The lists state another price, and no longer the others: those proposals go.
    lists({"groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 6e-08}})
    propose()
    [(at, row)] = rows().items()
    assert (at, row.pk, row.changes) == (("gpt-oss-20b", "prices"), first.pk, [["input", "0.075", "0.06"]])


def test_an_applied_proposal_is_in_force_and_in_the_history_and_outlives_loads(
    loaded: None, lists: Callable[..., Path]
) -> None:
    lists(LISTED)
    propose()
    others = [row for row in mappings() if row["model_id"] != "gpt-oss-20b" or row["provider_id"] != "groq"]
    actions.apply_proposals([rows()["gpt-oss-20b", "prices"]], "op@example.com")
    assert input_price("gpt-oss-20b") == "0.05"
    [change] = PriceChange.objects.filter(author="op@example.com: litellm")
    assert (change.provider, change.model, change.old["input"], change.new["input"]) == (
        "groq",
        "gpt-oss-20b",
        "0.075",
        "0.05",
    )
    row = rows()["gpt-oss-20b", "prices"]
    assert (row.state, row.decided_by) == ("applied", "op@example.com")
    assert row.decided_at is not None
    assert [row for row in mappings() if row["model_id"] != "gpt-oss-20b" or row["provider_id"] != "groq"] == others
    # Offers that are read from now on have the new price, so requests are billed by it.
    offers = read_catalog("1").models["gpt-oss-20b"].offers
    assert {offer.prices.input for offer in offers if offer.provider.id == "groq"} == {Decimal("0.05")}
    assert find_differences() == []
    load()
    assert input_price("gpt-oss-20b") == "0.05"
    # The same list proposes it no more.
    propose()
    assert CatalogProposal.objects.filter(model="gpt-oss-20b", kind="prices").count() == 1


def test_an_operators_price_override_stays(loaded: None, lists: Callable[..., Path]) -> None:
    ModelProvider.objects.filter(provider_id="groq", model_id="gpt-oss-20b").update(price_overrides={"input": "0.07"})
    lists(LISTED)
    propose()
    actions.apply_proposals([rows()["gpt-oss-20b", "prices"]], "op@example.com")
    offers = read_catalog("1").models["gpt-oss-20b"].offers
    assert {offer.prices.input for offer in offers if offer.provider.id == "groq"} == {Decimal("0.07")}
    assert not PriceChange.objects.filter(author__startswith="op@example.com").exists()


def test_a_dismissed_proposal_stays_away_until_the_lists_state_something_else(
    loaded: None, lists: Callable[..., Path]
) -> None:
    lists(LISTED)
    propose()
    before = mappings()
    actions.dismiss_proposal(rows()["gpt-oss-20b", "prices"], "op@example.com")
    propose()
    assert states()["gpt-oss-20b", "prices"] == "dismissed"
    assert mappings() == before
    lists({"groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 6e-08}})
    propose()
    found = CatalogProposal.objects.filter(model="gpt-oss-20b", kind="prices").order_by("first_seen_at")
    assert [row.state for row in found] == ["dismissed", "waiting"]


def test_an_applied_proposal_is_undone_by_dismissing_it(loaded: None, lists: Callable[..., Path]) -> None:
    lists(LISTED)
    propose()
    for at in (("gpt-oss-20b", "prices"), ("qwen3.9-27b", "new_model")):
        actions.apply_proposals([rows()[at]], "op@example.com")
    assert ModelProvider.objects.get(model_id="qwen3.9-27b").deactivated_at is None
    for at in (("gpt-oss-20b", "prices"), ("qwen3.9-27b", "new_model")):
        actions.dismiss_proposal(rows()[at], "op@example.com")
        with pytest.raises(InvalidRequest, match="dismissed already"):
            actions.dismiss_proposal(rows()[at], "op@example.com")
    assert input_price("gpt-oss-20b") == "0.075"
    assert PriceChange.objects.filter(author="op@example.com: dismissed").count() == 1
    assert ModelProvider.objects.get(model_id="qwen3.9-27b").deactivated_at == datetime.now(UTC).date()


def test_a_new_model_can_be_called_once_it_is_applied(loaded: None, lists: Callable[..., Path]) -> None:
    lists(LISTED)
    propose()
    actions.apply_proposals([rows()["qwen3.9-27b", "new_model"]], "op@example.com")
    [offer] = read_catalog("1").models["qwen3.9-27b"].offers
    assert (offer.model_name, offer.prices.input, offer.prices.output, offer.tools, offer.context_length) == (
        "qwen/qwen3.9-27b",
        Decimal("0.9"),
        Decimal("4.5"),
        True,
        131072,
    )
    # As its sibling is asked.
    assert offer.facts["adds"] == {"reasoning_format": "parsed"}
    assert Model.objects.get(pk="qwen3.9-27b").family == "qwen"


@pytest.mark.parametrize(
    ("allowed", "applied"),
    [
        ([], set()),
        (["falling_prices"], {("gpt-oss-20b", "prices")}),
        (["deactivations"], {("gpt-oss-20b", "deactivation")}),
        (["new_models"], {("qwen3.9-27b", "new_model")}),
        (
            ["new_models", "falling_prices", "deactivations"],
            {("gpt-oss-20b", "prices"), ("gpt-oss-20b", "deactivation"), ("qwen3.9-27b", "new_model")},
        ),
    ],
)
def test_the_gateway_applies_only_what_is_allowed(
    loaded: None, lists: Callable[..., Path], settings: Any, allowed: list[str], applied: set[tuple[str, str]]
) -> None:
    settings.CATALOG_APPLY = allowed
    lists(LISTED)
    propose()
    assert {at for at, state in states().items() if state == "applied"} == applied
    assert {row.decided_by for row in rows().values() if row.state == "applied"} <= {"catalog.propose"}
    # A price that falls to 0 always needs a person.
    assert (states()["gpt-oss-120b", "prices"], input_price("gpt-oss-120b")) == ("waiting", "0.15")
    authors = set(PriceChange.objects.exclude(author="load_catalog").values_list("author", flat=True))
    assert authors <= {"catalog.propose: litellm"}


@pytest.mark.parametrize(
    "entry",
    [
        {"input_cost_per_token": 0.2e-07},  # More than threefold.
        {"input_cost_per_token": 0},
        {"input_cost_per_token": 8e-08},  # It rises.
        {"input_cost_per_token": 5e-08, "input_cost_per_token_above_200k_tokens": 6e-08},  # A tier.
        {"input_cost_per_token": 4e-07},
        {"input_cost_per_token": 5e-08, "deprecation_date": "2020-01-01"},
    ],
)
def test_a_doubtful_change_is_never_applied_by_itself(
    loaded: None, lists: Callable[..., Path], settings: Any, entry: dict[str, Any]
) -> None:
    settings.CATALOG_APPLY = ["new_models", "falling_prices", "deactivations"]
    lists({"groq/openai/gpt-oss-20b": GROQ | entry})
    propose()
    doubtful = [row for row in rows().values() if row.state == "waiting"]
    assert len(doubtful) == 1
    if "deprecation_date" not in entry:
        assert input_price("gpt-oss-20b") == "0.075"
    assert ModelProvider.objects.get(provider_id="groq", model_id="gpt-oss-20b").deactivated_at is None


def test_sources_that_disagree_cannot_be_applied(loaded: None, lists: Callable[..., Path], settings: Any) -> None:
    settings.CATALOG_APPLY = ["falling_prices"]
    lists({"groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 5e-08}})
    lists({"groq": {"models": {"openai/gpt-oss-20b": {"cost": {"input": 0.06, "output": 0.3}}}}}, "modelsdev")
    propose()
    [row] = rows().values()
    assert (row.state, row.disputed, row.sources) == ("waiting", True, ["litellm", "modelsdev"])
    before = mappings()
    with pytest.raises(InvalidRequest, match="The sources disagree on groq/gpt-oss-20b"):
        actions.apply_proposals([row], "op@example.com")
    assert (states(), mappings()) == ({("gpt-oss-20b", "prices"): "waiting"}, before)


HOSTILE: dict[str, tuple[Any, str]] = {
    "html": (b"<!doctype html><title>Sign in</title>", "litellm: not JSON; it begins with '<!doctype html><title>Sign"),
    "10 MB": (b" " * 10_000_000, "more than 8,000,000 bytes"),
    "not a list": (b"[]", "litellm: no model has a price; the document is not a list of this kind"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_list_changes_nothing_and_its_page_says_why(
    loaded: None, lists: Callable[..., Path], settings: Any, name: str
) -> None:
    settings.CATALOG_APPLY = ["new_models", "falling_prices", "deactivations"]
    lists({"groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 8e-08}})
    propose()
    before, waiting = mappings(), rows()
    content, problem = HOSTILE[name]
    lists(content)
    propose()
    reading = PriceListReading.objects.get()
    assert reading.problem.startswith(problem)
    assert reading.succeeded_at is not None
    assert reading.read_at > reading.succeeded_at
    assert (mappings(), set(rows())) == (before, set(waiting))


@pytest.mark.parametrize("price", ["NaN", "-1e-7", "1e308", "0.05", '"<b>"'])
def test_a_hostile_price_changes_nothing_and_its_page_says_why(
    loaded: None, lists: Callable[..., Path], settings: Any, price: str
) -> None:
    settings.CATALOG_APPLY = ["new_models", "falling_prices", "deactivations"]
    before = mappings()
    entry = f'"litellm_provider": "groq", "output_cost_per_token": 3e-07, "input_cost_per_token": {price}'
    lists(f'{{"groq/openai/gpt-oss-20b": {{{entry}}}}}'.encode())
    propose()
    [note] = PriceListReading.objects.get().notes
    assert note.startswith("litellm: groq/gpt-oss-20b: input_cost_per_token is ")
    assert (mappings(), CatalogProposal.objects.count()) == (before, 0)


@pytest.mark.parametrize("factor", [1e-6, 1e3])
def test_a_list_in_another_unit_is_refused_as_a_whole(
    loaded: None, lists: Callable[..., Path], settings: Any, factor: float
) -> None:
    settings.CATALOG_APPLY = ["new_models", "falling_prices", "deactivations"]
    before = mappings()
    own = ModelProvider.objects.filter(provider_id="groq", prices__has_keys=["input", "output"], model__mode="chat")
    lists(
        {
            f"groq/{row.model_name}": {
                "litellm_provider": "groq",
                "input_cost_per_token": float(row.prices["input"]) / 1e6 * factor,
                "output_cost_per_token": float(row.prices["output"]) / 1e6 * factor,
            }
            for row in own
        }
    )
    propose()
    assert PriceListReading.objects.get().problem.startswith("litellm: refused. ")
    assert (mappings(), CatalogProposal.objects.count()) == (before, 0)


def test_strange_characters_of_a_list_are_stored_without_harm(
    loaded: None, lists: Callable[..., Path], settings: Any
) -> None:
    settings.CATALOG_APPLY = ["new_models"]
    new = LISTED["groq/qwen/qwen3.9-27b"]
    lists(
        {
            "groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": "\0\ud800<b>"},
            "groq/a\0b/qwen3.9-27b": new,
            "groq/" + "x" * 300 + "/qwen3.9-27b": new,
        }
    )
    propose()
    [note] = PriceListReading.objects.get().notes
    assert note == (
        "litellm: groq/gpt-oss-20b: input_cost_per_token is ?<b>, not between 0 and 10000 USD per million tokens"
    )
    assert CatalogProposal.objects.count() == 0


def test_proposals_of_a_list_that_is_no_longer_read_go(loaded: None, lists: Callable[..., Path], settings: Any) -> None:
    lists(LISTED)
    propose()
    settings.CATALOG_PRICE_LISTS = []
    propose()
    assert (CatalogProposal.objects.count(), PriceListReading.objects.count()) == (0, 0)


def test_a_proposal_that_changed_since_it_was_read_is_refused(loaded: None, lists: Callable[..., Path]) -> None:
    lists(LISTED)
    propose()
    stale = rows()["gpt-oss-20b", "prices"]
    lists({"groq/openai/gpt-oss-20b": GROQ | {"input_cost_per_token": 6e-08}})
    propose()
    before = mappings()
    with pytest.raises(InvalidRequest, match="has changed; check it again"):
        actions.apply_proposals([stale], "op@example.com")
    assert (mappings(), states()) == (before, {("gpt-oss-20b", "prices"): "waiting"})


def test_a_decided_proposal_cannot_be_applied_again(loaded: None, lists: Callable[..., Path]) -> None:
    lists(LISTED)
    propose()
    row = rows()["gpt-oss-20b", "prices"]
    actions.apply_proposals([row], "op@example.com")
    with pytest.raises(InvalidRequest, match="does not wait for a decision any more"):
        actions.apply_proposals([row], "op@example.com")
    assert PriceChange.objects.filter(author="op@example.com: litellm").count() == 1


def test_an_own_price_is_not_proposed_over(
    loaded: None, lists: Callable[..., Path], settings: Any, tmp_path: Path
) -> None:
    settings.CATALOG_DIR = tmp_path / "own"
    (tmp_path / "own/providers").mkdir(parents=True)
    (tmp_path / "own/providers/groq.toml").write_text('[[models]]\nid = "gpt-oss-20b"\nprices = { input = 0.07 }\n')
    lists(LISTED)
    propose()
    assert {model for model, _ in states()} == {"gpt-oss-120b", "qwen3.9-27b"}


def test_metrics_count_what_waits(loaded: None, lists: Callable[..., Path]) -> None:
    lists(LISTED)
    propose()
    text = metrics.exposition().decode()
    assert "gateway_catalog_proposals_waiting 4.0\n" in text
    assert "gateway_catalog_proposals_disputed 0.0\n" in text
    assert "gateway_catalog_price_list_problems 0.0\n" in text
    assert 'gateway_catalog_price_age_seconds{provider="groq"} ' in text
    assert 'provider="sandbox"' not in text
    lists(b"")
    propose()
    assert "gateway_catalog_price_list_problems 1.0\n" in metrics.exposition().decode()


def source(lists: Callable[..., Path]) -> str:
    """A list with LISTED but without its new model, as the command names it."""
    known = {name: entry for name, entry in LISTED.items() if "qwen" not in name}
    return f"litellm={lists(known)}"


def test_the_command_shows_proposals_and_nothing_changes(loaded: None, lists: Callable[..., Path], capsys: Any) -> None:
    before = mappings()
    call_command("catalog", "propose", "--source", source(lists))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("groq/")] == [
        "    input 0.15 -> 0",
        "    ! input falls to 0",
        "    input 0.075 -> 0.05",
        "    deactivated - -> 2099-01-31",
        "3 proposals, 1 for a person to decide (!)",
        "Nothing was changed. --apply PROVIDER/MODEL … or --accept accepts proposals.",
    ]
    assert (mappings(), CatalogProposal.objects.count()) == (before, 0)


def test_the_command_applies_what_needs_no_person_and_what_is_named(
    loaded: None, lists: Callable[..., Path], capsys: Any
) -> None:
    call_command("catalog", "propose", "--accept", "--source", source(lists))
    assert "2 applied. catalog: " in capsys.readouterr().out
    assert (input_price("gpt-oss-20b"), input_price("gpt-oss-120b")) == ("0.05", "0.15")
    assert str(ModelProvider.objects.get(provider_id="groq", model_id="gpt-oss-20b").deactivated_at) == "2099-01-31"
    assert PriceChange.objects.filter(author="catalog propose: litellm").count() == 1
    call_command("catalog", "propose", "--apply", "groq/gpt-oss-120b", "--source", source(lists))
    assert "1 proposals, 1 for a person" in capsys.readouterr().out
    assert (input_price("gpt-oss-20b"), input_price("gpt-oss-120b")) == ("0.05", "0")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--apply", "groq/gpt-oss-21b"], "no proposal for groq/gpt-oss-21b; nothing was changed"),
        (
            ["--apply", "groq/gpt-oss-20b", "--source", "openrouter={other}"],
            "openrouter: no model has a price; the document is not a list of this kind",
        ),
        (
            ["--apply", "groq/gpt-oss-20b", "--source", "modelsdev={other}"],
            "the sources disagree on groq/gpt-oss-20b; run again with one --source. Nothing was changed",
        ),
        (
            ["--source", "prices"],
            "--source must be KIND=PLACE with a kind of litellm, modelsdev, openrouter, llmgateway; it is 'prices'",
        ),
    ],
)
def test_a_refused_command_changes_nothing(
    loaded: None, lists: Callable[..., Path], tmp_path: Path, arguments: list[str], problem: str
) -> None:
    other = {"groq": {"models": {"openai/gpt-oss-20b": {"cost": {"input": 0.06, "output": 0.3}}}}}
    (tmp_path / "other.json").write_text(json.dumps(other))
    given = [one.format(other=tmp_path / "other.json") for one in arguments]
    before = mappings()
    with pytest.raises(CommandError) as caught:
        call_command("catalog", "propose", "--source", source(lists), *given)
    assert str(caught.value) == problem
    assert (mappings(), CatalogProposal.objects.count()) == (before, 0)
