"""Proposals: what a list changes, and what a person must decide."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.catalog.files import CatalogFiles, read_files
from apps.catalog.price_lists import Listed, PriceList, fetch_list
from apps.catalog.proposals import ListComparison, compare, describe

FOLDER = Path(__file__).parent
TODAY = date(2026, 11, 28)
# The prices of LiteLLM's release 1.105.0, written by hand.
OURS = {
    "anthropic": """
[[models]]
id = "claude-sonnet-5-5"
prices = { input = 2, output = 10, cached_input = 0.2, cache_write = 2.5, cache_write_1h = 4, web_search = 0.01 }
[[models]]
id = "claude-sonnet-4-5"
prices = { input = 3, output = 15, cached_input = 0.3, cache_write = 3.75, cache_write_1h = 6 }
deactivated = 2026-11-30
[[models.tiers]]
above_input_tokens = 200000
input = 6
output = 22.5
cached_input = 0.6
cache_write = 7.5
cache_write_1h = 12
""",
    "deepinfra": """
[[models]]
id = "gemma-4-31b-it"
model_name = "google/gemma-4-31B-it"
prices = { input = 0.13, output = 0.38 }
""",
    "openai": """
[[models]]
id = "gpt-4o"
prices = { input = 2.5, output = 10, cached_input = 1.25 }
[[models]]
id = "gpt-4o-mini"
prices = { input = 0.15, output = 0.6, cached_input = 0.075 }
""",
}


def catalog(folder: Path, providers: dict[str, str]) -> CatalogFiles:
    """Read providers' files with these models."""
    models = []
    for name in ("providers", "families"):
        (folder / name).mkdir(exist_ok=True)
    for provider, entries in providers.items():
        (folder / "providers" / f"{provider}.toml").write_text(
            f'id = "{provider}"\nname = "{provider}"\ndialect = "openai"\nauth = "bearer"\n'
            f'base_url = "https://{provider}.example"\napi_key_env = "KEY"\nchecked = 2026-09-01\n{entries}'
        )
        models += [line for line in entries.splitlines() if line.startswith("id = ")]
    (folder / "families/all.toml").write_text(
        'family = "all"\n'
        + "".join(
            f'[[models]]\n{line}\nname = "x"\ninput_modalities = ["text"]\noutput_modalities = ["text"]\n'
            for line in dict.fromkeys(models)
        )
    )
    return read_files(folder)


def compare_one(folder: Path, entry: str, *listed: PriceList) -> ListComparison:
    """Compare one model of OpenAI's with lists."""
    return compare(catalog(folder, {"openai": f'[[models]]\nid = "fox"\n{entry}'}), listed, TODAY)


def listing(source: str = "litellm", tiers: Any = None, ends: date | None = None, **prices: str) -> PriceList:
    """A list with one price of the model."""
    found = {name: Decimal(price) for name, price in prices.items()}
    return PriceList(source, [Listed("openai", "fox", found, tiers, ends)])


def reasons(comparison: ListComparison) -> list[str]:
    """Return the reasons of the only proposal."""
    [proposal] = comparison.proposals
    return list(proposal.reasons)


def test_two_releases_of_a_list_differ_as_read_by_hand(tmp_path: Path) -> None:
    ours = catalog(tmp_path, OURS)
    assert compare(ours, [fetch_list("litellm", str(FOLDER / "litellm_1_105_0.json"))], TODAY) == ListComparison([], [])
    found = compare(ours, [fetch_list("litellm", str(FOLDER / "litellm_1_110_2.json"))], TODAY)
    assert found.notes == []
    age = "(litellm; ours checked 2026-09-01, 88 days ago; OLD)"
    assert [list(describe(proposal, TODAY)) for proposal in found.proposals] == [
        [f"anthropic/claude-sonnet-5-5 {age}", "    cached_input 0.2 -> 0.1"],
        [
            f"anthropic/claude-sonnet-4-5 {age}",
            "    tiers above 200000: input 6, output 22.5, cached_input 0.6, cache_write 7.5, cache_write_1h 12 "
            "-> none",
            "    ! loses the tier above 200000 tokens",
        ],
        [f"deepinfra/gemma-4-31b-it {age}", "    input 0.13 -> 0.2", "    output 0.38 -> 0.4"],
        [f"openai/gpt-4o {age}", "    deactivated - -> 2027-01-14"],
        [f"openai/gpt-4o-mini {age}", "    deactivated - -> 2027-01-14"],
    ]
    # Only what changes is laid over the file.
    assert found.proposals[0].entry == {"prices": {"cached_input": Decimal("0.1")}}


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ("3", []),
        ("3.000001", ["input moves more than 3-fold"]),
        ("0.333334", []),
        ("0.333333", ["input moves more than 3-fold"]),
        ("0", ["input falls to 0"]),
    ],
)
def test_a_move_beyond_threefold_and_a_fall_to_0_need_a_person(tmp_path: Path, price: str, expected: list[str]) -> None:
    found = compare_one(tmp_path, "prices = { input = 1, output = 4 }", listing(input=price, output="4"))
    assert reasons(found) == expected


def test_a_new_price_a_tier_an_alias_and_a_past_end_need_a_person(tmp_path: Path) -> None:
    tiers = ({"above_input_tokens": 200_000, "input": Decimal(2)},)
    several = PriceList("litellm", [*listing(input="2").entries, Listed("openai", "old-fox", {"input": Decimal(3)})])
    found = compare_one(
        tmp_path,
        'aliases = ["old-fox"]\nprices = { input = 1, output = 4 }',
        PriceList("litellm", [several.entries[0]._replace(tiers=tiers, deactivated=TODAY), several.entries[1]]),
    )
    assert [(one.kind, one.reasons) for one in found.proposals] == [
        (
            "prices",
            ("litellm has several prices for the names of this offer", "gains the tier above 200000 tokens"),
        ),
        ("deactivation", ("is out of service at once: its end is 2026-11-28",)),
    ]
    found = compare_one(tmp_path, "prices = { output = 4 }", listing(input="2"))
    assert reasons(found) == ["gains a price of input"]
    # 0 where we state none: the model has prices in another unit.
    assert compare_one(tmp_path, "prices = { image = 0.04 }", listing(input="0")).proposals == []


def test_a_tier_that_moves_keeps_what_the_list_does_not_state(tmp_path: Path) -> None:
    tiers = ({"above_input_tokens": 200_000, "input": Decimal(8)},)
    ours = "prices = { input = 1 }\ntiers = [{ above_input_tokens = 200000, input = 2, output = 9 }]"
    found = compare_one(tmp_path, ours, listing(tiers=tiers, input="1"))
    assert reasons(found) == ["input above 200000 tokens moves more than 3-fold or to 0"]
    assert found.proposals[0].entry == {
        "tiers": [{"above_input_tokens": 200_000, "input": Decimal(8), "output": Decimal(9)}]
    }
    # A list that states no tiers at all says nothing about ours.
    assert compare_one(tmp_path, ours, listing("modelsdev", input="1")).proposals == []


def test_input_and_output_that_look_swapped_need_a_person(tmp_path: Path) -> None:
    found = compare_one(tmp_path, "prices = { input = 1, output = 2 }", listing(input="2", output="1"))
    assert reasons(found) == ["input costs more than output; they look swapped"]


def test_sources_that_agree_are_named_and_a_dispute_names_each_price(tmp_path: Path) -> None:
    ours = "prices = { input = 1 }"
    found = compare_one(tmp_path, ours, listing(input="0.9"), listing("modelsdev", input="0.90"))
    [proposal] = found.proposals
    assert (proposal.sources, proposal.reasons, proposal.disputed) == (("litellm", "modelsdev"), (), False)
    found = compare_one(tmp_path, ours, listing(input="1"), listing("modelsdev", input="0.9"))
    assert reasons(found) == ["sources disagree on input: litellm 1, modelsdev 0.9"]
    assert found.proposals[0].disputed
    ends = [listing(source, ends=day, input="1") for source, day in (("litellm", TODAY), ("x", date(2027, 1, 1)))]
    assert reasons(compare_one(tmp_path, ours, *ends))[0] == (
        "sources disagree on the end: litellm 2026-11-28, x 2027-01-01"
    )


def test_an_invalid_entry_is_noted_and_changes_nothing(tmp_path: Path) -> None:
    broken = PriceList("litellm", [Listed("openai", "fox", {}, fault="input_cost_per_token is NaN")])
    assert compare_one(tmp_path, "prices = { input = 1 }", broken) == ListComparison(
        [], ["litellm: openai/fox: input_cost_per_token is NaN"]
    )
    assert compare_one(tmp_path, "", PriceList("litellm", [])).notes == ["litellm: has none of the catalog's models"]


@pytest.mark.parametrize(("factor", "swapped"), [("0.000001", False), ("1000", False), ("1", True)])
def test_a_list_in_another_unit_or_with_swapped_columns_is_refused(tmp_path: Path, factor: str, swapped: bool) -> None:
    models = "".join(f'[[models]]\nid = "fox-{n}"\nprices = {{ input = 1, output = 4 }}\n' for n in range(6))
    prices = {"input": Decimal(4 if swapped else 1), "output": Decimal(1 if swapped else 4)}
    listed = [
        Listed("openai", f"fox-{n}", {name: price * Decimal(factor) for name, price in prices.items()})
        for n in range(6)
    ]
    assert compare(catalog(tmp_path, {"openai": models}), [PriceList("litellm", listed)], TODAY) == ListComparison(
        [],
        [
            "litellm: refused. 6 of 6 prices are invalid or moved more than 3-fold; the list may be in another unit, "
            "or its columns are swapped"
        ],
        ("litellm",),
    )


def test_an_edition_is_noted_unless_the_offers_new_price_explains_it(tmp_path: Path) -> None:
    ours = 'prices = { input = 1 }\neditions = [{ names = ["eu.fox"], factor = 1.1 }]'
    listed = listing(input="0.9")
    explained = Listed("openai", "eu.fox", {"input": Decimal("0.99")})
    assert compare_one(tmp_path, ours, PriceList("litellm", [*listed.entries, explained])).notes == []
    other = Listed("openai", "eu.fox", {"input": Decimal("1.2")})
    assert compare_one(tmp_path, ours, PriceList("litellm", [*listed.entries, other])).notes == [
        "litellm: edition openai/eu.fox: input 0.99 -> 1.2; change `editions` by hand"
    ]


def test_prices_that_an_operator_states_are_left_alone(tmp_path: Path) -> None:
    ours = catalog(tmp_path, {"openai": '[[models]]\nid = "fox"\nprices = { input = 1 }'})
    assert compare(ours, [listing(input="0.9")], TODAY, frozenset({("openai", "fox")})).proposals == []


@pytest.mark.parametrize(
    ("prices", "falls"),
    [
        ({"input": "0.5", "output": "4"}, True),
        ({"input": "0.5", "output": "3"}, True),
        ({"input": "0.5", "output": "4.5"}, False),
        ({"input": "1.5", "output": "4"}, False),
        ({"input": "1", "output": "4", "cached_input": "0.1"}, False),
    ],
)
def test_only_prices_that_all_fall_are_a_fall(tmp_path: Path, prices: dict[str, str], falls: bool) -> None:
    [proposal] = compare_one(tmp_path, "prices = { input = 1, output = 4 }", listing(**prices)).proposals
    assert proposal.falls is falls


def test_a_tier_that_rises_is_no_fall(tmp_path: Path) -> None:
    ours = "prices = { input = 1 }\ntiers = [{ above_input_tokens = 200000, input = 2 }]"
    for price, falls in (("1.5", True), ("2.5", False)):
        tiers = ({"above_input_tokens": 200_000, "input": Decimal(price)},)
        [proposal] = compare_one(tmp_path, ours, listing(tiers=tiers, input="0.9")).proposals
        assert (proposal.falls, proposal.reasons) == (falls, ())


def test_an_end_that_passed_and_is_stated_again_needs_a_person(tmp_path: Path) -> None:
    ours = "prices = { input = 1 }\ndeactivated = 2026-11-20"
    assert reasons(compare_one(tmp_path, ours, listing(ends=date(2027, 1, 1), input="1"))) == [
        "returns to service: its end was 2026-11-20"
    ]
