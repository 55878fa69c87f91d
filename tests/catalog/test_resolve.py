"""Every way to name a model, and the error for a name that means nothing."""

from __future__ import annotations

from datetime import date

import pytest

from apps.catalog import catalog_cache
from apps.catalog.offers import resolve
from apps.kernel.errors import ApiError, Gone, InvalidRequest
from apps.kernel.near_names import NearNames
from tests.catalog.small import catalog, model, offer
from tests.support.shipped_catalog import stock

TODAY = date(2026, 11, 21)
OLD, NEW = date(2026, 11, 20), date(2026, 11, 22)
CATALOG = catalog(
    model(
        "fox-1",
        offer("acme", "fox-1"),
        offer("bolt", "fox-1", model_name="makers/Fox-1", facts={"aliases": ["eu.makers/Fox-1"]}),
        aliases=("fox-1-2026-01-01",),
    ),
    model("fox-2", offer("acme", "fox-2", deactivated_at=NEW)),
    model("hen-1", offer("acme", "hen-1", deactivated_at=OLD), offer("bolt", "hen-1", active=False)),
    model("owl-1", offer("acme", "owl-1", deactivated_at=OLD), offer("bolt", "owl-1")),
)


@pytest.mark.parametrize(
    ("requested", "model_id", "provider", "name"),
    [
        ("fox-1", "fox-1", None, "fox-1"),
        ("fox-1-2026-01-01", "fox-1", None, "fox-1-2026-01-01"),
        ("acme/fox-1", "fox-1", "acme", "fox-1"),
        ("bolt/fox-1", "fox-1", "bolt", "fox-1"),
        ("bolt/fox-1-2026-01-01", "fox-1", "bolt", "fox-1-2026-01-01"),
        ("bolt/makers/Fox-1", "fox-1", "bolt", "makers/Fox-1"),
        ("bolt/eu.makers/Fox-1", "fox-1", "bolt", "eu.makers/Fox-1"),
        ("fox-2", "fox-2", None, "fox-2"),
        # Disabled at the named provider, but not everywhere: another provider may answer.
        ("acme/owl-1", "owl-1", "acme", "owl-1"),
    ],
)
def test_a_model_is_named_by_id_alias_provider_or_the_providers_own_name(
    requested: str, model_id: str, provider: str | None, name: str
) -> None:
    resolved = resolve(CATALOG, requested, TODAY)
    assert resolved.model is CATALOG.models[model_id]
    assert (resolved.provider.id if resolved.provider else None) == provider
    assert resolved.name == name


def test_a_named_edition_is_what_is_sent() -> None:
    acme, bolt = CATALOG.models["fox-1"].offers
    assert bolt.name_for("eu.makers/Fox-1") == "eu.makers/Fox-1"
    assert bolt.name_for("fox-1") == "makers/Fox-1"
    assert acme.name_for("eu.makers/Fox-1") == "fox-1"


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("fox1", "The model `fox1` does not exist; did you mean `fox-1`?"),
        ("FOX-1", "The model `FOX-1` does not exist; did you mean `fox-1`?"),
        ("", "The model `` does not exist"),
        ("acme/", "The model `acme/` does not exist"),
        ("fox-1/acme", "The model `fox-1/acme` does not exist"),
        ("nobody/fox-1", "The model `nobody/fox-1` does not exist; did you mean `fox-1`?"),
        ("acme/fox-3", "The model `acme/fox-3` does not exist; did you mean `fox-1` or `fox-2`?"),
        ("makers/Fox-1", "`makers/Fox-1` is a provider's own name for fox-1: ask for that, or for `bolt/makers/Fox-1`"),
        ("bolt/fox-2", "Bolt does not serve fox-2; these providers do: acme"),
        ("x" * 256, "A model name has at most 255 characters"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_advice(requested: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve(CATALOG, requested, TODAY)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "model_not_found", "model")
    assert error.message == message


@pytest.mark.parametrize("requested", ["hen-1", "acme/hen-1", "bolt/hen-1"])
def test_a_model_that_everyone_shut_off_is_gone(requested: str) -> None:
    with pytest.raises(Gone) as caught:
        resolve(CATALOG, requested, TODAY)
    assert (caught.value.status, caught.value.param) == (410, "model")


def test_a_model_is_gone_from_the_day_on_which_it_is_shut_off() -> None:
    assert resolve(CATALOG, "fox-2", TODAY).model.id == "fox-2"
    with pytest.raises(ApiError, match="fox-2 is no longer served by any provider"):
        resolve(CATALOG, "fox-2", NEW)


@pytest.mark.parametrize(
    ("requested", "near"),
    [
        ("gpt5", "`gpt-5`"),
        ("gpt-4-o", "`gpt-4o`"),
        ("claude-sonnet-4.5", "`claude-sonnet-4-5`"),
        ("claude-opus-4-55", "`claude-opus-4-5`"),
        ("anthropic/claude-opus-4-55", "`claude-opus-4-5`"),
        ("gemini-2.5-flsh", "`gemini-2.5-flash`"),
        ("mistral-larg-latest", "`mistral-large-latest`"),
        ("deepseek-cht", "`deepseek-chat`"),
        ("text-embedding-3-smal", "`text-embedding-3-small`"),
        ("gemini-pro", ""),
        ("llama-3", ""),
        ("nonsense", ""),
        ("no-such-model", ""),
        ("this-model-does-not-exist", ""),
    ],
)
def test_only_a_model_whose_name_is_near_is_named(db: None, requested: str, near: str) -> None:
    stock()
    with pytest.raises(InvalidRequest) as caught:
        resolve(catalog_cache.current(), requested)
    advice = f"; did you mean {near}?" if near else ""
    assert caught.value.message == f"The model `{requested}` does not exist{advice}"


def test_near_names_are_looked_for_when_the_message_is_read_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = []
    find = NearNames.find

    def counting(self: NearNames, wanted: str) -> list[str]:
        looked_for.append(wanted)
        return find(self, wanted)

    monkeypatch.setattr(NearNames, "find", counting)
    with pytest.raises(InvalidRequest) as caught:
        resolve(CATALOG, "acme/fox1", TODAY)
    assert looked_for == []
    assert caught.value.message == caught.value.message == "The model `acme/fox1` does not exist; did you mean `fox-1`?"
    assert looked_for == ["fox1"]
