"""The models, with the faults that each is visited within; `python -m tests.proofs.models.protocols` prints counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.proofs.models.checker import Model, check
from tests.proofs.models.ledger_epochs import LedgerEpochs
from tests.proofs.models.ledger_epochs import Rules as EpochRules
from tests.proofs.models.line_leases import LineLeases
from tests.proofs.models.line_leases import Rules as LineRules
from tests.proofs.models.settlement import Rules as SettlementRules
from tests.proofs.models.settlement import Settlement
from tests.proofs.models.shards import Rules as ShardRules
from tests.proofs.models.shards import Shards
from tests.proofs.models.worker_leases import Rules as WorkerRules
from tests.proofs.models.worker_leases import WorkerLeases


@dataclass(frozen=True)
class Protocol:
    """A model by its rules, and the number of faults that may strike in one history.

    `states` are those within these faults; more faults make a test that takes minutes.
    """

    model: Callable[[Any], Model[Any]]
    rules: Any
    max_faults: int
    states: int

    @property
    def name(self) -> str:
        """The model's name."""
        return getattr(self.model, "__name__", "")

    def mutants(self) -> Iterator[tuple[str, Any]]:
        """Yield the rules without each one of them, by its name."""
        for rule in fields(self.rules):
            yield rule.name, replace(self.rules, **{rule.name: False})


PROTOCOLS = (
    Protocol(Settlement, SettlementRules(), 1, 26_440),
    Protocol(LedgerEpochs, EpochRules(), 1, 7_234),
    Protocol(WorkerLeases, WorkerRules(), 3, 8_777),
    Protocol(LineLeases, LineRules(), 3, 2_394),
    Protocol(Shards, ShardRules(), 3, 5_216),
)
# Rules that more faults than a protocol's are needed to miss.
MORE_FAULTS = {"epochs_are_numbered_by_a_clock": 2}


def main() -> None:
    """Print the states of each protocol, and the promise that breaks without each rule."""
    for protocol in PROTOCOLS:
        report = check(protocol.model(protocol.rules), protocol.max_faults)
        sys.stdout.write(f"{protocol.name}, up to {protocol.max_faults} faults: {report}\n")
        for name, rules in protocol.mutants():
            mutant = check(protocol.model(rules), MORE_FAULTS.get(name, protocol.max_faults))
            steps = len(mutant.history) - 1
            sys.stdout.write(f"  without {name}: {mutant.broken or 'nothing breaks'} (after {steps} steps)\n")


if __name__ == "__main__":
    main()
