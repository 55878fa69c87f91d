"""`script/bench attack_peers FOLDER`: what other projects' filters find of the texts of `script/guardrails-report`.

The texts are scanned alone: none of these filters reads a program's instructions beside them. Peers are those that
install from PyPI and need neither a model nor a service: the content filter of LiteLLM's proxy, with all its categories
against prompt injection, or with its policy template for it.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apps.guardrails.rules import INPUT_ONLY_CATEGORIES, system_rules
from bench.attack_recall import SPLITS, FoundShare, Row, read_rows
from bench.detection_peers import litellm_filter

Judge = Callable[[str], bool]


def peers() -> dict[str, Judge]:
    """Return the installed peers by name: each tells whether it finds an attack in a text."""
    try:
        bundled: Any = importlib.import_module("litellm.proxy.guardrails.content_filter_data")
    except ImportError:
        return {}
    data = Path(bundled.__file__).parent
    names = sorted(path.stem for path in (data / "categories").glob("prompt_injection_*.yaml"))
    template = str(data / "policy_templates" / "prompt_injection.yaml")
    return {
        "LiteLLM, categories": _judge(categories=[_category(name) for name in names]),
        "LiteLLM, template": _judge(categories=[_category("prompt_injection") | {"category_file": template}]),
    }


def _category(name: str) -> dict[str, Any]:
    return {"category": name, "enabled": True, "action": "BLOCK", "severity_threshold": "low"}


def _judge(**settings: Any) -> Judge:
    find = litellm_filter(**settings)
    return lambda text: bool(find(text))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where `tuning` and `held-out` lie")
    parser.add_argument("--split", choices=SPLITS, action="append", help="only this part")
    chosen = parser.parse_args()
    judges = peers()
    for split in chosen.split or SPLITS:
        rows = [(row, {name: judge(row.text) for name, judge in judges.items()}) for row in _read(chosen.folder, split)]
        print(f"\n## {split}\n\n| | texts | this gateway | {' | '.join(judges)} |\n|---|--:|---|{'---|' * len(judges)}")
        for attack, title in ((True, "attacks found"), (False, "harmless texts flagged")):
            kept = [one for one in rows if one[0].attack == attack]
            _print_row(title, kept, judges)
            for family in sorted({row.family for row, _ in kept}):
                _print_row(family, [one for one in kept if one[0].family == family], judges)


def _read(folder: Path, split: str) -> list[Row]:
    rules = [name for name, rule in system_rules().items() if rule.category in INPUT_ONLY_CATEGORIES]
    return list(read_rows(folder / split, rules))


def _print_row(title: str, rows: list[tuple[Row, dict[str, bool]]], judges: dict[str, Judge]) -> None:
    shares = [FoundShare(sum(bool(row.alone) for row, _ in rows), len(rows))]
    shares += [FoundShare(sum(found[name] for _, found in rows), len(rows)) for name in judges]
    print(f"| {title} | {len(rows)} | {' | '.join(map(str, shares))} |", flush=True)


if __name__ == "__main__":
    main()
