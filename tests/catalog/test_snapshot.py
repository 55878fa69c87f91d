"""The copy in memory: its content, and when it is read again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from threading import Barrier, Event, Lock
from typing import Any

import pytest
from django.db import DatabaseError, connection
from pytest_django import DjangoAssertNumQueries, Settings

from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import read_catalog
from apps.catalog.load import load
from apps.catalog.models import ModelProvider, Provider
from apps.catalog.offers import Catalog
from apps.kernel.prices import PriceCard
from apps.kernel.valkey import generation
from tests.catalog import stated
from tests.catalog.small import catalog as small_catalog
from tests.stack.product import eventually


@pytest.mark.django_db
def test_an_offer_has_prices_limits_and_facts(catalog: Catalog) -> None:
    [offer] = [offer for offer in catalog.models["gpt-oss-20b"].offers if offer.provider.id == "groq"]
    assert offer.prices.input == Decimal("0.075")
    assert offer.prices.cached_input == Decimal("0.0375")
    assert (offer.model_id, offer.model_name) == ("gpt-oss-20b", "openai/gpt-oss-20b")
    assert (offer.context_length, offer.max_output) == (131_072, 65_536)
    assert (offer.tools, offer.vision, offer.priority, offer.active) == (True, False, 1.0, True)
    assert offer.facts["reasoning_efforts"] == ["low", "medium", "high"]
    assert offer.facts["max_tokens_field"] == "max_completion_tokens"
    assert offer.provider is catalog.providers["groq"]


@pytest.mark.django_db
def test_a_model_has_its_own_limits_and_the_life_of_its_offers(catalog: Catalog) -> None:
    model = catalog.models["gpt-image-1"]
    assert (model.created, model.mode, model.owned_by) == (1_745_452_800, "image_generation", "openai")
    assert (model.deprecated_at, model.deactivated_at) == (date(2026, 11, 20), date(2026, 10, 23))
    assert [offer.is_live(date(2026, 10, 22)) for offer in model.offers] == [True, True]
    assert [offer.is_live(date(2026, 10, 23)) for offer in model.offers] == [False, False]
    assert catalog.models["claude-opus-4-5"].deactivated_at is None
    assert catalog.models["claude-opus-4-5"].context_length == 200_000


@pytest.mark.django_db
def test_every_alias_leads_to_its_model(catalog: Catalog) -> None:
    assert set(catalog.aliases) == set().union(*stated.ALIASES.values())
    assert all(alias in catalog.models[model].aliases for alias, model in catalog.aliases.items())
    assert not catalog.aliases.keys() & catalog.models.keys()


@pytest.mark.django_db
def test_three_queries_read_it_all(loaded: None, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(3):
        assert set(read_catalog("word").models) == stated.served_models()


@pytest.mark.django_db
def test_operators_prices_lie_over_the_files(loaded: None) -> None:
    overrides = {"input": 0.15, "cached_input": None}
    ModelProvider.objects.filter(provider_id="openai", model_id="gpt-4o").update(price_overrides=overrides)
    offers = {offer.provider.id: offer for offer in read_catalog("word").models["gpt-4o"].offers}
    assert offers["openai"].prices.input == Decimal("0.15")
    assert offers["openai"].prices.output == Decimal(10)
    assert offers["openai"].prices.cached_input is None
    assert offers["azure"].prices.input == Decimal("2.5")


@pytest.mark.django_db
def test_an_address_may_cost_more(loaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def price(model: str, provider: str) -> PriceCard:
        offers = read_catalog("word").models[model].offers
        return next(offer.prices for offer in offers if offer.provider.id == provider)

    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "global")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert price("claude-opus-5-5", "vertex").input == 4
    assert price("gpt-6-sol", "openai").input == 2
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://eu.api.openai.com/v1")
    regional = price("claude-opus-5-5", "vertex")
    assert (regional.input, regional.output) == (Decimal("4.4"), Decimal(22))
    assert (regional.cached_input, regional.cache_write) == (Decimal("0.22"), Decimal("5.5"))
    # A search costs the same, and so do models that are the same price everywhere.
    assert regional.web_search == Decimal("0.01")
    assert price("gemini-2.5-pro", "vertex").input == Decimal("1.25")
    european = price("gpt-6-sol", "openai")
    assert (european.input, european.tiers[0].input) == (Decimal("2.2"), Decimal("4.4"))
    assert european.service_tiers["flex"].input == Decimal("1.1")
    assert european.service_tiers["flex"].tiers[0].input == Decimal("2.2")
    # An operator's own prices hold as they are, and the others cost more as before.
    ModelProvider.objects.filter(provider_id="vertex", model_id="claude-opus-5-5").update(price_overrides={"input": 3})
    overridden = price("claude-opus-5-5", "vertex")
    assert (overridden.input, overridden.output, overridden.cached_input) == (3, 22, Decimal("0.22"))


@pytest.mark.django_db
def test_an_offer_whose_prices_cannot_be_read_is_left_out(loaded: None) -> None:
    ModelProvider.objects.filter(provider_id="openai", model_id="gpt-4o").update(price_overrides={"input": "free"})
    providers = {offer.provider.id for offer in read_catalog("word").models["gpt-4o"].offers}
    assert "azure" in providers
    assert "openai" not in providers


@pytest.mark.django_db
@pytest.mark.parametrize("row", ["mapping", "model", "provider"])
def test_what_an_operator_switched_off_is_not_live(loaded: None, row: str) -> None:
    mapping = ModelProvider.objects.get(provider_id="groq", model_id="gpt-oss-20b")
    switched = mapping if row == "mapping" else getattr(mapping, row)
    switched.active = False
    switched.save()
    offers = read_catalog("word").models["gpt-oss-20b"].offers
    [groq] = [offer for offer in offers if offer.provider.id == "groq"]
    assert not groq.is_live(date(2026, 11, 21))
    assert any(offer.is_live(date(2026, 11, 21)) for offer in offers) is (row != "model")


@pytest.mark.django_db
def test_the_sandbox_stays_in_development(loaded: None, settings: Settings) -> None:
    assert "sandbox" in read_catalog("word").providers
    settings.DEVELOPMENT = False
    production = read_catalog("word")
    assert "sandbox" not in production.providers
    assert "echo" not in production.models
    assert set(production.models) == stated.served_models(development=False)


@pytest.mark.django_db
def test_the_environment_may_name_another_address(loaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Provider.objects.create(id="my-own", name="My own", dialect="openai", auth="bearer", base_url="https://my.test/v1/")
    monkeypatch.setenv("GROQ_BASE_URL", "http://10.0.0.1:9000/v1/")
    monkeypatch.setenv("MY_OWN_BASE_URL", "")
    providers = read_catalog("word").providers
    assert providers["groq"].base_url == "http://10.0.0.1:9000/v1"
    assert providers["my-own"].base_url == "https://my.test/v1"
    assert providers["openai"].base_url == "https://api.openai.com/v1"


@pytest.mark.django_db(transaction=True)
def test_a_change_by_an_operator_reaches_the_copy_and_no_connection_is_kept() -> None:
    load()
    before = catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))
    Provider.objects.filter(id="groq").update(priority=Decimal("0.5"))
    after = catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))
    assert connection.connection is None
    assert (before.providers["groq"].priority, after.providers["groq"].priority) == (1.0, 0.5)
    assert catalog_cache.current() is after
    assert catalog_cache.refresh(after.generation) is after


class Source:
    """The source of a copy: counts its readings, and does what a test sets."""

    def __init__(self) -> None:
        self.word: str | None = "one"
        self.words_read = 0
        self.read_under: list[str] = []
        self.broken = False
        self.may_go_on = Event()
        self.may_go_on.set()

    def find_word(self) -> str | None:
        """Read the generation."""
        self.words_read += 1
        return self.word

    def read(self, word: str) -> Catalog:
        """Read a new, empty catalog."""
        self.read_under.append(word)
        assert self.may_go_on.wait(60)
        if self.broken:
            raise DatabaseError("away")
        empty = small_catalog()
        return Catalog(empty.models, empty.providers, generation=word)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def copy(source: Source) -> catalog_cache.CatalogCache:
    return catalog_cache.CatalogCache(source.read, source.find_word)


def test_a_copy_is_read_once_and_kept(source: Source, copy: catalog_cache.CatalogCache) -> None:
    first = copy.current()
    assert copy.current() is first
    assert copy.refresh("one") is first
    assert source.read_under == ["one"]


class Door:
    """A copy's lock, with a note of everyone who has come to it."""

    def __init__(self) -> None:
        self.arrivals: list[int] = []
        self._lock = Lock()

    def __enter__(self) -> None:
        self.arrivals.append(1)
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_a_new_generation_is_read_once_however_many_ask(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = copy.current()
    door = Door()
    monkeypatch.setattr(copy, "_lock", door)
    source.word = "two"
    source.may_go_on.clear()
    together = Barrier(9)

    def ask() -> Catalog:
        together.wait()
        return copy.refresh("two")

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        together.wait()
        eventually(lambda: len(door.arrivals) == 8)
        source.may_go_on.set()
        answers = {answer.result() for answer in asking}
    assert len(answers) == 1
    assert first not in answers
    assert source.read_under == ["one", "two"]
    assert source.words_read == 2


def test_a_word_that_is_out_of_date_reads_nothing(source: Source, copy: catalog_cache.CatalogCache) -> None:
    first = copy.current()
    assert copy.refresh("an older word, held by a request that is on its way") is first
    assert source.read_under == ["one"]


def test_what_cannot_be_read_leaves_the_old_copy_and_is_not_asked_again_at_once(
    source: Source, copy: catalog_cache.CatalogCache
) -> None:
    first = copy.current()
    source.word, source.broken = "two", True
    assert [copy.refresh("two") for _ in range(3)] == [first] * 3
    assert source.read_under == ["one", "two"]


def test_a_copy_that_could_not_be_renewed_is_renewed_later(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_cache, "PAUSE_AFTER_FAILURE", 0.0)
    copy.current()
    source.word, source.broken = "two", True
    copy.refresh("two")
    source.broken = False
    assert copy.refresh("two").generation == "two"


def test_without_any_copy_the_failure_is_told(source: Source, copy: catalog_cache.CatalogCache) -> None:
    source.broken = True
    with pytest.raises(DatabaseError):
        copy.current()
    source.broken = False
    assert copy.current().generation == "one"


def test_an_old_copy_is_compared_with_the_generation(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_cache, "MAX_AGE", 0.0)
    first = copy.current()
    assert copy.current() is first
    source.word = "two"
    assert copy.current().generation == "two"
    assert source.read_under == ["one", "two"]


def test_a_copy_in_use_is_compared_in_the_background_within_seconds(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(catalog_cache, "run_in_background", begun.append)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = copy.current()
    source.word = "two"
    now += 2.9
    assert (copy.current() is first, begun) == (True, [])
    now += 0.2
    assert (copy.current() is first, len(begun)) == (True, 1)
    begun[0]()
    assert (copy.current().generation, source.read_under) == ("two", ["one", "two"])


def test_a_copy_that_was_not_in_use_is_compared_before_it_is_used(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    copy.current()
    source.word = "two"
    now += 15
    assert copy.current().generation == "two"


def test_an_old_copy_is_read_anew_while_redis_cannot_tell(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_cache, "MAX_AGE_IN_AN_OUTAGE", 0.0)
    source.word = None
    first = copy.current()
    second = copy.current()
    assert first.generation != second.generation
    assert source.read_under == [first.generation, second.generation]


def test_while_one_renews_an_old_copy_the_others_do_not_wait(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_cache, "MAX_AGE", 0.0)
    first = copy.current()
    source.word = "two"
    source.may_go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        renewed = pool.submit(copy.current)
        eventually(lambda: len(source.read_under) == 2)
        assert copy.current() is first
        source.may_go_on.set()
        assert renewed.result().generation == "two"


def test_those_who_wait_for_the_first_copy_share_its_failure(
    source: Source, copy: catalog_cache.CatalogCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Door()
    monkeypatch.setattr(copy, "_lock", door)
    source.broken = True
    source.may_go_on.clear()
    together = Barrier(9)

    def ask() -> str:
        together.wait()
        with pytest.raises(DatabaseError):
            copy.current()
        return "told"

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        together.wait()
        eventually(lambda: len(door.arrivals) == 8)
        source.may_go_on.set()
        assert [one.result() for one in asking] == ["told"] * 8
    assert len(source.read_under) == 1
    source.broken = False
    assert copy.current().generation == "one"
