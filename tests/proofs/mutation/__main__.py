"""`script/mutants`: puts small faults into the code that moves money, and counts those that a test notices."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.proofs.mutation.mutator import Mutant, mutate
from tests.proofs.mutation.plugin import BUDGET, FINDINGS, MODULES, SHARE, SPOILED, Findings

_BILLING, _SETTLEMENT, _ADMISSION = "apps/billing", "apps/gateway/settlement", "apps/gateway/admission"
# Packages and modules to mutate, and the tests that are asked. Those of the first use no store: minutes in all.
AREAS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "pricing": (
        (f"{_BILLING}/pricing.py", f"{_ADMISSION}/worst_case.py"),
        (
            *("tests/billing/test_pricing.py", "tests/billing/test_pricing_properties.py"),
            *("tests/billing/test_price_factors.py", "tests/billing/test_usage_properties.py"),
            *("tests/gateway/admission/test_worst_case_factors.py", "tests/gateway/admission/test_worst_case.py"),
            "tests/gateway/admission/test_held_searches.py",
        ),
    ),
    "holds": (
        (
            *(f"{_BILLING}/reservations.py", f"{_BILLING}/limit_holds.py", "apps/limits/key_limits.py"),
            *(f"{_BILLING}/balances.py", f"{_BILLING}/balance_copies.py", f"{_BILLING}/ledger.py"),
            *(f"{_BILLING}/worker_leases.py", f"{_BILLING}/reconciliation.py", f"{_ADMISSION}/offline_accounts.py"),
        ),
        (
            *("tests/billing/test_ledger.py", "tests/billing/test_ledger_epoch.py", "tests/limits/test_key_limits.py"),
            *("tests/billing/test_ledger_properties.py", "tests/billing/test_reservation_properties.py"),
            *("tests/billing/test_reservations.py", "tests/billing/test_rate_limits.py"),
            *("tests/billing/test_reconciliation.py", "tests/billing/test_reconciliation_of_stores.py"),
            "tests/billing/test_hold_arithmetic.py",
            *("tests/limits/test_limit_holds.py", "tests/limits/test_limit_settlement.py"),
            *("tests/gateway/admission/test_settled_holds.py", "tests/gateway/admission/test_offline_decisions.py"),
            *("tests/gateway/admission/test_offline_admission.py", "tests/gateway/settlement/test_clearing.py"),
            *("tests/gateway/admission/test_offline_accounts.py", "tests/gateway/admission/test_store_answers.py"),
        ),
    ),
    "payments": (
        (
            *(f"{_BILLING}/topup.py", f"{_BILLING}/auto_topup.py", f"{_BILLING}/refunds.py", f"{_BILLING}/cards.py"),
            *(f"{_BILLING}/subscription.py", f"{_BILLING}/invoices.py", f"{_BILLING}/gifts.py"),
            *(f"{_BILLING}/discounts.py", f"{_BILLING}/accounts.py", f"{_BILLING}/tasks.py", f"{_BILLING}/webhooks.py"),
            *(f"{_BILLING}/payment_processor.py", f"{_BILLING}/payment_processor_types.py"),
            *(f"{_BILLING}/payment_emails.py", f"{_BILLING}/views.py", f"{_BILLING}/serializers.py"),
            *(f"{_BILLING}/access.py", f"{_BILLING}/hooks.py"),
        ),
        (
            *("tests/billing/test_cards.py", "tests/billing/test_discounts.py", "tests/billing/test_fair_recovery.py"),
            *("tests/billing/test_receipts.py", "tests/billing/test_processor_types.py"),
            "tests/billing/test_payment_journal.py",
            *("tests/billing/test_referrals.py", "tests/billing/test_refunds.py", "tests/billing/test_topup.py"),
            *("tests/billing/test_subscription.py", "tests/billing/test_subscription_crashes.py"),
            *("tests/billing/test_topup_automatic.py", "tests/billing/test_topup_crashes.py"),
            *("tests/billing/test_webhooks.py", "tests/billing/test_estimates.py", "tests/console/test_billing.py"),
            *("tests/console/test_payment_confirmation.py", "tests/organizations/test_deletion.py"),
            *("tests/organizations/test_erasure.py", "tests/admin/test_customers.py"),
            *("tests/billing/test_invoices.py", "tests/billing/test_payment_locks.py"),
            *("tests/billing/test_processor_requests.py", "tests/api/test_organizations.py"),
        ),
    ),
    "settlement": (
        (_SETTLEMENT,),
        (
            *("tests/gateway/settlement", "tests/billing/test_ledger_epoch.py", "tests/billing/test_reconciliation.py"),
            *("tests/billing/test_reconciliation_of_stores.py", "tests/billing/test_charging_policy.py"),
            *(
                "tests/gateway/test_recorder.py",
                "tests/api/test_log_records.py",
                "tests/limits/test_limit_settlement.py",
            ),
            "tests/gateway_project/observability/test_alerts_and_dashboard.py",
        ),
    ),
    "admission": (
        (f"{_ADMISSION}/admit.py", f"{_ADMISSION}/byte_budget.py", f"{_ADMISSION}/offline_admission.py"),
        (
            *("tests/gateway/admission", "tests/billing/test_rate_limits.py", "tests/api/test_rates.py"),
            *("tests/limits/test_limited_requests.py", "tests/limits/test_limit_holds.py"),
        ),
    ),
}
REASONS: Final = Path(__file__).with_name("survivors.toml")
# Seconds without a finding after which a process hangs, and processes that may end without one.
_SILENCE, _MAX_SILENT = 1_200.0, 3
_LEFT_OUT: Final = ("__init__", "migrations", "management", "admin", "models", "apps")


def modules_in(places: Sequence[str]) -> list[str]:
    """Return the names of the modules in folders and files; tables and admin pages hold no rules of money."""
    paths = [
        path for place in places for path in ([Path(place)] if place.endswith(".py") else Path(place).rglob("*.py"))
    ]
    names = [".".join(path.with_suffix("").parts) for path in paths]
    return sorted(name for name in names if not set(name.split(".")[1:]) & set(_LEFT_OUT))


def run(modules: Sequence[str], tests: Sequence[str], findings: Path, budget: float, share: float) -> None:
    """Run processes until every mutant has its fate. Raises RuntimeError where one ends for another reason."""
    environment = {
        **os.environ,
        MODULES: " ".join(modules),
        FINDINGS: str(findings),
        BUDGET: str(budget),
        SHARE: str(share),
    }
    words = ["-p", "tests.proofs.mutation.plugin", "-p", "no:cacheprovider", "-o", "addopts=", "--timeout=0", "-q"]
    words += ["-m", "not agents and not long and not stack", *tests]
    silent = 0
    Findings(findings).add(run=len(modules))
    while True:
        size = findings.stat().st_size if findings.exists() else 0
        status = _watched([sys.executable, "-m", "pytest", *words], environment, findings)
        if status == 0:
            return
        grown = findings.exists() and findings.stat().st_size > size
        if status != SPOILED:
            Findings(findings).add(ended=status)
        silent = 0 if grown else silent + 1
        if silent >= _MAX_SILENT or (not grown and status != SPOILED):
            said = findings.with_suffix(".log").read_text()[-2000:]
            raise RuntimeError(f"pytest ended with {status} and found nothing: {said}")


def _watched(command: Sequence[str], environment: Mapping[str, str], findings: Path) -> int:
    """Run a process; end it when it finds nothing for too long. Returns its exit status."""
    with (
        findings.with_suffix(".log").open("ab") as words,
        subprocess.Popen(command, env=environment, stdout=words, stderr=words) as process,
    ):
        size, since = -1, time.monotonic()
        while True:
            try:
                return process.wait(5)
            except subprocess.TimeoutExpired:
                now = findings.stat().st_size if findings.exists() else 0
                if now != size:
                    size, since = now, time.monotonic()
                elif time.monotonic() - since > _SILENCE:
                    process.kill()


def report(modules: Sequence[str], found: Mapping[str, Mapping[str, Any]]) -> tuple[str, float]:
    """Return the table of the score and the survivors without a reason, and the share of mutants that were killed."""
    reasons: dict[str, str] = tomllib.loads(REASONS.read_text()) if REASONS.exists() else {}
    rows, open_ones, total = defaultdict[str, Counter[str]](Counter), list[str](), Counter[str]()
    for module in modules:
        for one in mutants_of(module):
            fate = found.get(one.name, {}).get("fate", "not tried")
            if fate != "killed" and fate != "not tried" and one.name in reasons:
                fate = "explained"
            rows[module][fate] += 1
            total[fate] += 1
            if fate in {"survived", "not reached"}:
                open_ones.append(f"{fate}: {_words_of(one)}")
    fates = ("killed", "survived", "explained", "not reached", "not tried")
    lines = [f"| module | mutants | {' | '.join(fates)} | score |", f"|---|{'---:|' * (len(fates) + 2)}"]
    for module, counts in [*sorted(rows.items()), ("all", total)]:
        words = [str(counts.total()), *(str(counts[fate]) for fate in fates), f"{_score(counts):.1%}"]
        lines.append(f"| `{module}` | {' | '.join(words)} |")
    return "\n".join([*lines, "", *open_ones]), _score(total)


def _score(counts: Counter[str]) -> float:
    """Return the share of the tried mutants that were killed; those with a reason count as not killed."""
    tried = counts.total() - counts["not tried"]
    return counts["killed"] / tried if tried else 0.0


def mutants_of(module: str) -> list[Mutant]:
    """Return the mutants of a module."""
    return mutate(module, Path(*module.split(".")).with_suffix(".py").read_text())[1]


def _words_of(one: Mutant) -> str:
    return f"{Path(*one.module.split('.')).with_suffix('.py')}:{one.line} {one.name}"


def main() -> int:
    """Try the mutants of an area; return 1 when fewer than the wanted share were killed."""
    parser = argparse.ArgumentParser(prog="script/mutants", description=__doc__)
    parser.add_argument("area", choices=(*AREAS, "all"), nargs="?", default="pricing")
    parser.add_argument("--tests", nargs="+", help="other tests to ask than the area's")
    parser.add_argument("--modules", nargs="+", help="files or folders to mutate, in place of the area's")
    parser.add_argument("--share", type=float, default=1.0, help="of the mutants, drawn the same way each time")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for a mutant, then it counts as survived")
    parser.add_argument("--findings", type=Path, help="a folder with a file for each area, to go on with or to keep")
    parser.add_argument("--at-least", type=float, default=0.9, help="share of mutants that must be killed")
    parser.add_argument("--report", action="store_true", help="only print what the findings say")
    asked: Any = parser.parse_args()
    began, every, fates = time.monotonic(), list[str](), dict[str, dict[str, Any]]()
    with ExitStack() as ends:
        folder = asked.findings or Path(ends.enter_context(TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        for area in AREAS if asked.area == "all" else (asked.area,):
            places, tests = AREAS[area]
            modules = modules_in(asked.modules or places)
            findings = folder / f"{area}.jsonl"
            if not asked.report:
                run(modules, asked.tests or tests, findings, asked.budget, asked.share)
            every += modules
            fates |= Findings(findings).fates
        words, score = report(every, fates)
    seconds = time.monotonic() - began
    sys.stdout.write(f"{words}\n{score:.1%} of the mutants that were tried were killed, {seconds:.0f} s\n")
    return 0 if score >= asked.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
